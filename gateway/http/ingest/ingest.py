"""Ingest: every device format over HTTP, each with the response its app expects.

A request is answered with 200 only when every in-sync replica has all of it. Items that can never
be accepted are kept in topic `error` and still answered with success: an app that reads 400 repeats
the head of its queue for ever, or deletes it. A request that cannot be accepted now is answered
with 503.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from gateway.bodies.content_encoding import ExpandedTooLarge, UnknownEncoding, expanded
from gateway.bodies.parsing import READ_HERE_BYTES_MAX, ParsingUnavailable, is_read_here, let_go
from gateway.bodies.parts import Body
from gateway.fixes.receipts import Receipt
from gateway.formats import Context, Parsed
from gateway.formats.members import without_secrets
from gateway.formats.values import build_rejected
from gateway.http.ingest.app_responses import Newest, Receiving
from gateway.http.ingest.paths import AT_ROOT, PATHS, Format
from gateway.http.requests.authentication import (
    header_text,
    kept_headers,
    parameters_without_secrets,
    remote_of,
    sender,
)
from gateway.http.requests.responses import Refused, raw_json_answer, unavailable
from gateway.http.requests.services import Services
from gateway.limits.bounds import OVERHEAD_BYTES, RECORD_BYTES, TOO_MUCH_UNDER_WAY
from gateway.limits.pools import Hold
from gateway.limits.turn_clock import TURN_S
from gateway.users.admission import Admission, QuotaExceeded, SendingNotAllowed
from gateway.users.auth import Identity
from gateway.users.permissions import may_send
from waylog.kafka.clients import AppendError
from waylog.messages import Fix, live_time
from waylog.network.peer_parties import party_of
from waylog.network.shares import ShareExceeded, Shares
from waylog.observability.telemetry import now_ms

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: A body of at most this size does not count against the shared budget.
_SMALL_BODY_BYTES: Final = 64 * 1024

_SUBMITTED_AT_ONCE: Final = 100


class Ingest:
    """The handlers of requests that carry fixes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of all formats; most paths may end with a token."""
        handlers: dict[Format, Handler] = {}
        routes: list[web.RouteDef] = []
        for path, device_format in PATHS.items():
            handler = handlers.setdefault(device_format, partial(self._receive, device_format))
            for method in device_format.methods:
                options: dict[str, Any] = {"allow_head": False} if method == "GET" else {}
                # Users type addresses, with a slash at the end or without.
                for spelled in dict.fromkeys((path, f"{path.rstrip('/')}/")):
                    routes.append(web.route(method, spelled, handler, **options))
        return routes

    def osmand_at_root(self) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return the handler of `GET /?id=...`, as Traccar's oldest apps send it."""
        return partial(self._receive, AT_ROOT)

    async def _receive(self, device_format: Format, request: web.Request) -> web.Response:
        token = request.match_info.get("token")
        try:
            identity = await sender(request, token)
        except Refused as refusal:
            if refusal.status == 401:
                await self.keep_refused(device_format.name, request, refusal.reason)
                if device_format.gone_for_unknown:
                    raise Refused(410, "this webhook is not registered (any more)") from refusal
            raise
        check_may_send(identity)
        body = await self.receive_body(request, identity)
        try:
            hold = Hold(self._services.under_way, identity.user, len(body) + OVERHEAD_BYTES)
        except ShareExceeded:
            raise unavailable(TOO_MUCH_UNDER_WAY) from None
        try:
            parsed = await self._parse(device_format, body, self.context(request, identity))
            if parsed.refused is not None:
                raise Refused(413, parsed.refused)
            if parsed.malformed is not None:
                raise Refused(400, parsed.malformed)
            hold.grow(parsed.count * RECORD_BYTES)
            trace = request.headers.get("traceparent")
            newest = await self.store(parsed, identity, trace, device_format, hold)
        except ShareExceeded:
            raise unavailable(TOO_MUCH_UNDER_WAY) from None
        finally:
            hold.release()
        if device_format.tells_address:
            await self.address_of(newest)
        # The log may have answered many requests of the user at once.
        await self._services.turns.let_others_work(identity.user)
        answer: list[bytes] = []
        for piece in device_format.answer(Receiving(parsed, identity, self._services, newest)):
            if answer:
                await asyncio.sleep(0)
            answer.append(piece)
        await let_go(parsed)
        return raw_json_answer(answer) if answer else web.Response()

    async def _parse(self, device_format: Format, body: Body, context: Context) -> Parsed:
        """Parse a body. Raises Refused (503) while large bodies cannot be parsed."""
        if len(body) <= READ_HERE_BYTES_MAX and is_read_here(small := bytes(body)):
            return device_format.parse(small, context)
        parsing = self._services.parsing
        try:
            return await parsing.parse(device_format.name, body, context, context.user)
        except ParsingUnavailable as error:
            raise unavailable(str(error)) from error

    def context(self, request: web.Request, identity: Identity) -> Context:
        """Return the context of a request that parsers need."""
        query = parameters_without_secrets(request)
        device = request.match_info.get("device")
        return Context(
            user=identity.user,
            device=named_device(identity, query, request.headers, device),
            received=now_ms(),
            any_user=identity.admin or self._services.authenticator.open_mode,
            query=query,
            headers=kept_headers(request),
            content_type=request.content_type,
            encryption_key=identity.rights.encryption_key,
        )

    async def read_body(
        self,
        request: web.Request,
        identity: Identity | None = None,
        bytes_max: int | None = None,
    ) -> bytes:
        """Read the body within all limits. Raises Refused.

        The limits are those of the sender, or of the client's address if the sender is not known.
        """
        return bytes(await self.receive_body(request, identity, bytes_max))

    async def receive_body(
        self,
        request: web.Request,
        identity: Identity | None = None,
        bytes_max: int | None = None,
    ) -> Body:
        """Return the body in the parts in which it came. Limits and errors as in read_body."""
        if not request.can_read_body:
            return Body()
        limits = self._services.limits
        most = limits.body_bytes_max if bytes_max is None else bytes_max
        size = request.content_length
        if size is not None and size > most:
            raise Refused(413, f"{size} bytes in one request; {most} are allowed")
        encoding = request.headers.get("Content-Encoding", "").strip().lower()
        encoded = encoding not in ("", "identity")
        small = size is not None and size <= _SMALL_BODY_BYTES and not encoded
        try:
            if small and request.content.is_eof():
                # The whole body is here already: no timeout is needed.
                return Body(await request.read())
            reserved = (
                nullcontext()
                if small
                else self._bodies(identity).hold(
                    _party(request, identity),
                    most if encoded or size is None else size,
                )
            )
            with reserved:
                async with asyncio.timeout(limits.body_timeout_s):
                    if small:
                        return Body(await request.read())
                    body = await _collected(request, most)
                    if not encoded:
                        return body
                    # Joining the parts takes as long as decompressing them, so the thread does
                    # both.
                    return await asyncio.to_thread(_expanded, encoding, body, most)
        except ShareExceeded:
            raise unavailable("too many large requests at once") from None
        except TimeoutError:
            raise Refused(408, "the body did not come in time", {"Connection": "close"}) from None
        except UnknownEncoding:
            reason = "Content-Encoding must be gzip, deflate or zstd"
            raise Refused(415, reason, {"Accept-Encoding": "gzip, deflate, zstd"}) from None
        except (web.HTTPRequestEntityTooLarge, ExpandedTooLarge):
            raise Refused(413, f"more than {most} bytes in one request") from None
        except (web.RequestPayloadError, ValueError) as error:
            reason = f"the body is not what its headers say: {error}"
            raise Refused(400, reason, {"Connection": "close"}) from error

    def _bodies(self, identity: Identity | None) -> Shares:
        # Unauthenticated requests have a budget of their own.
        services = self._services
        return services.bodies_of_strangers if identity is None else services.bodies

    async def store(
        self,
        parsed: Parsed,
        identity: Identity,
        traceparent: str | None = None,
        device_format: Format | None = None,
        hold: Hold | None = None,
    ) -> Fix | None:
        """Append everything, wait until the log has it, and return the fix of the current position.

        Raises Refused (403, 429, 503). `hold` is released only when the log has answered, even if
        the request gives up waiting before.
        """
        steps = self._services.admission.admit_in_steps(identity, parsed)
        with refusals(device_format):
            for _ in steps:
                await asyncio.sleep(0)
        submitter = self._services.submitter
        trace = submitter.traces.continue_from(traceparent)
        # One future per part: ten thousand futures, with a callback each, would delay other
        # requests.
        futures: list[asyncio.Future[None]] = []
        newest = Newest()
        receipts = itertools.chain(
            (submitter.submit_location(newest.seen(fix), trace) for fix in parsed.fixes),
            (submitter.event_receipt(event, trace) for event in parsed.events),
            (submitter.rejected_receipt(rejected, trace) for rejected in parsed.rejected),
        )
        more = True
        while more:
            part, more = _of_a_turn(receipts)
            if part:
                futures.append(submitter.all_stored(part))
                if hold is not None:
                    hold.keep_until(futures[-1:])
            if more:
                await asyncio.sleep(0)
        try:
            await all_appended(futures, self._services.append_timeout_s)
        except AppendError as error:
            raise unavailable(f"not stored: {error}") from error
        except TimeoutError:
            raise unavailable("not stored yet: the log does not answer") from None
        return newest.fix

    async def address_of(self, fix: Fix | None) -> None:
        """Wait, but not for long, for the address of the newest fix."""
        if fix is not None:
            services = self._services
            live = live_time(fix.time, fix.received)
            await services.address_view.wait(fix.device, live, services.limits.address_timeout_s)

    async def keep_refused(self, source: str, request: web.Request, reason: str) -> None:
        """Keep the request of an unknown user, to be replayed once the user is known."""
        if not self._services.refusals.take(remote_of(request)):
            return
        limits = self._services.limits
        size = request.content_length
        body = b""
        if size is not None and size <= limits.refusal_bytes_recorded:
            body = await self.read_body(request)
        headers = kept_headers(request)
        query = parameters_without_secrets(request)
        in_url = urlencode(without_secrets(query))
        if body and query:
            headers["query"] = in_url
        # The user is not known, so that no record's key is made of the name.
        device = request.match_info.get("device")
        context = Context("", device, now_ms(), headers=headers, query=query)
        raw = body or in_url.encode()
        rejected = build_rejected(context, source, f"401: {reason}", raw)
        # Nothing waits for this append: an unavailable log must not delay the refusal.
        self._services.submitter.submit_rejected(rejected, stranger=remote_of(request))


async def _collected(request: web.Request, bytes_max: int) -> Body:
    """Collect the parts of a body. Raises web.HTTPRequestEntityTooLarge."""
    body = Body()
    async for part in request.content.iter_any():
        body.append(part)
        if len(body) > bytes_max:
            raise web.HTTPRequestEntityTooLarge(max_size=bytes_max, actual_size=len(body))
    return body


def _of_a_turn(receipts: Iterator[Receipt]) -> tuple[list[Receipt], bool]:
    """Submit some records, fewer if they are large. Return them, and whether there may be more."""
    part: list[Receipt] = []
    until = time.monotonic() + TURN_S
    for receipt in receipts:
        part.append(receipt)
        if len(part) == _SUBMITTED_AT_ONCE or time.monotonic() > until:
            return part, True
    return part, False


def _expanded(encoding: str, body: Body, bytes_max: int) -> Body:
    return Body(expanded(encoding, bytes(body), bytes_max))


def _party(request: web.Request, identity: Identity | None) -> str:
    return party_of(remote_of(request)) if identity is None else identity.user


def check_may_send(identity: Identity) -> None:
    """Raise Refused if a user may only look: before the contents of a request are read."""
    if not may_send(identity):
        raise Refused(403, str(SendingNotAllowed()))


def admit(
    parsed: Parsed, identity: Identity, admission: Admission, device_format: Format | None = None
) -> None:
    """Admit the content of a request, see gateway.users.admission. Raises Refused."""
    with refusals(device_format):
        admission.admit(identity, parsed)


@contextmanager
def refusals(device_format: Format | None) -> Iterator[None]:
    """Turn an admission error into the refusal that clients of this format understand."""
    try:
        yield
    except QuotaExceeded as error:
        # Some apps delete a request that is answered with 4xx; after 503 they send it again.
        status = 429 if device_format is not None and device_format.heeds_429 else 503
        raise Refused(status, str(error), {"Retry-After": error.retry_after}) from error
    except SendingNotAllowed as error:
        raise Refused(403, str(error)) from error


def named_device(
    identity: Identity,
    query: dict[str, str],
    headers: Mapping[str, str],
    in_path: str | None = None,
) -> str | None:
    """Return the device named outside of the body. A token of one device overrides all names."""
    if identity.device is not None:
        # Another name than that is kept beside the fix, as what the phone calls itself.
        for name in ("id", "deviceid"):
            if query.get(name) == identity.device:
                del query[name]
        return identity.device
    named = in_path or query.pop("d", None) or query.pop("device", None)
    if named:
        return named
    named = header_text(headers, "X-Limit-D")
    if named == "device" and headers.get("X-Limit-U") == "user":
        # OwnTracks for iOS sends these values as long as nothing is configured.
        return None
    return named


async def all_appended(futures: Iterable[asyncio.Future[Any]], timeout_s: float) -> None:
    """Wait until all are done, without cancelling any. Raises AppendError and TimeoutError."""
    futures = list(futures)
    pending = [future for future in futures if not future.done()]
    if pending:
        loop = asyncio.get_running_loop()
        all_done: asyncio.Future[bool] = loop.create_future()
        count = len(pending)

        def one_done(_: asyncio.Future[Any]) -> None:
            nonlocal count
            count -= 1
            if not count and not all_done.done():
                all_done.set_result(True)

        def late() -> None:
            if not all_done.done():
                all_done.set_result(False)

        for future in pending:
            future.add_done_callback(one_done)
        timer = loop.call_later(timeout_s, late)
        try:
            if not await all_done:
                raise TimeoutError
        finally:
            timer.cancel()
    for future in futures:
        if future.cancelled():
            raise AppendError("the append was given up")
        error = future.exception()
        if error is not None:
            # A new one: that of the future, with the frames in which it is raised, would keep the
            # request until the garbage collector finds them.
            raise type(error)(*error.args)
