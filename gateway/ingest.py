"""Receiving: every device format over HTTP, each with the answer its app expects.

200 leaves only when every in-sync replica has all of a request. What can never be accepted is kept
in topic `error` and answered with success all the same: an app that reads 400 repeats the head of
its queue for ever, or deletes it. What cannot be accepted now is 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from aiohttp import web

from gateway.access import (
    kept_headers,
    parameters_without_secrets,
    sender,
)
from gateway.answers import Refused, json_answer, raw_json_answer, unavailable
from gateway.auth import Identity
from gateway.formats import (
    Context,
    Parsed,
    Parser,
    colota,
    gpslogger,
    home_assistant,
    osmand,
    overland,
    owntracks,
    positions,
    traccar,
)
from gateway.formats.values import build_rejected, live_time
from gateway.limits import BudgetExceeded, ByteBudget, TokenBucket
from gateway.services import Services
from gateway.views import AddressView
from waylog.kafka import AppendError
from waylog.messages import Fix
from waylog.telemetry import now_ms

Answer = Callable[[Parsed, Services], Awaitable[web.Response]]

_EMPTY_ARRAY: Final = b"[]"
#: A body up to this size does not count against the common budget.
_SMALL_BODY_BYTES: Final = 64 * 1024

_SUBMITTED_AT_ONCE: Final = 500


class Ingest:
    """The handlers that receive fixes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._bodies = ByteBudget(services.limits.all_body_bytes_max)
        self._refusals = TokenBucket(services.limits.refusals_recorded_per_s)

    def routes(self) -> list[web.RouteDef]:
        """All paths of all formats; a token may stand at the end of most."""
        formats: tuple[tuple[str, tuple[str, ...], Parser, Answer], ...] = (
            ("owntracks", ("POST",), owntracks.parse, _owntracks_answer),
            ("overland", ("POST",), overland.parse, _overland_answer),
            ("osmand", ("GET", "POST"), osmand.parse, _empty_answer),
            ("traccar", ("GET", "POST"), traccar.parse, _status_answer),
            ("gpslogger", ("GET", "POST"), gpslogger.parse, _empty_answer),
            ("colota", ("GET", "POST"), colota.parse, _object_answer),
        )
        routes = [
            web.post("/v1/positions", self._handler("positions", positions.parse, _positions))
        ]
        for name, methods, parser, answer in formats:
            handler = self._handler(name, parser, answer)
            paths = [f"/{name}", f"/{name}/{{token}}", f"/in/{name}/{{token}}"]
            if name == "owntracks":
                paths.append("/pub")
            routes += [
                web.route(
                    method, path, handler, **({"allow_head": False} if method == "GET" else {})
                )
                for path in paths
                for method in methods
            ]
        webhook = self._handler("home_assistant", home_assistant.parse, _object_answer)
        routes.append(web.post("/api/webhook/{token}", webhook))
        # Traccar Client posts to the root of whatever address it is given.
        routes.append(web.post("/", self._handler("traccar", traccar.parse, _status_answer)))
        return routes

    def osmand_at_root(self) -> Callable[[web.Request], Awaitable[web.Response]]:
        """`GET /?id=...`, as Traccar's oldest apps send it."""
        return self._handler("osmand", osmand.parse, _empty_answer)

    def _handler(
        self, source: str, parser: Parser, answer: Answer
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        return partial(self._receive, source, parser, answer)

    async def _receive(
        self, source: str, parser: Parser, answer: Answer, request: web.Request
    ) -> web.Response:
        try:
            identity = await sender(request, request.match_info.get("token"))
        except Refused as refusal:
            if refusal.status == 401:
                await self._keep_refused(source, request, refusal.reason)
            raise
        body = await self.read_body(request)
        parsed = parser(body, self.context(request, identity))
        if parsed.refused is not None:
            raise Refused(413, parsed.refused)
        await self.store(parsed, request.headers.get("traceparent"))
        return await answer(parsed, self._services)

    def context(self, request: web.Request, identity: Identity) -> Context:
        """What a parser is told about the request."""
        query = parameters_without_secrets(request)
        return Context(
            user=identity.user,
            device=_named_device(request, identity, query),
            received=now_ms(),
            any_user=identity.admin or self._services.authenticator.open_mode,
            query=query,
            headers=kept_headers(request),
            content_type=request.content_type,
        )

    async def read_body(self, request: web.Request) -> bytes:
        """The body, within all limits; raises Refused."""
        if not request.can_read_body:
            return b""
        limits = self._services.limits
        size = request.content_length
        if size is not None and size > limits.body_bytes_max:
            raise Refused(413, f"{size} bytes in one request; {limits.body_bytes_max} are allowed")
        small = size is not None and size <= _SMALL_BODY_BYTES
        try:
            if small and request.content.is_eof():
                # It is all here: no timer for what cannot take any time.
                return await request.read()
            reserved = (
                nullcontext() if small else self._bodies.reserve(size or limits.body_bytes_max)
            )
            with reserved:
                async with asyncio.timeout(limits.body_timeout_s):
                    return await request.read()
        except BudgetExceeded:
            raise unavailable("too many large requests at once") from None
        except TimeoutError:
            raise Refused(408, "the body did not come in time", {"Connection": "close"}) from None
        except web.HTTPRequestEntityTooLarge:
            raise Refused(413, f"more than {limits.body_bytes_max} bytes in one request") from None

    async def store(self, parsed: Parsed, traceparent: str | None = None) -> None:
        """Append everything, and wait until the log has it; raises Refused (503)."""
        submitter = self._services.submitter
        trace = submitter.traces.continue_from(traceparent)
        futures: list[asyncio.Future[None]] = []
        for start in range(0, len(parsed.fixes), _SUBMITTED_AT_ONCE):
            if start:
                # Ten thousand fixes of one must not keep the others waiting.
                await asyncio.sleep(0)
            part = parsed.fixes[start : start + _SUBMITTED_AT_ONCE]
            futures += [submitter.location_stored(fix, trace) for fix in part]
        futures += [submitter.submit_event(event, trace) for event in parsed.events]
        futures += [submitter.submit_rejected(rejected, trace) for rejected in parsed.rejected]
        try:
            await all_appended(futures, self._services.limits.append_timeout_s)
        except AppendError as error:
            raise unavailable(f"not stored: {error}") from error
        except TimeoutError:
            raise unavailable("not stored yet: the log does not answer") from None

    async def _keep_refused(self, source: str, request: web.Request, reason: str) -> None:
        """Keep what an unknown user sends, so that it can be replayed once the user is known."""
        if not self._refusals.take():
            return
        limits = self._services.limits
        size = request.content_length
        body = b""
        if size is not None and size <= limits.refusal_bytes_recorded:
            body = await self.read_body(request)
        headers = kept_headers(request)
        query = parameters_without_secrets(request)
        context = Context("", None, now_ms(), headers=headers, query=query)
        raw = body or "&".join(f"{name}={value}" for name, value in query.items()).encode()
        rejected = build_rejected(context, source, f"401: {reason}", raw)
        # Nobody waits for it: a log that is away must not delay the refusal.
        self._services.submitter.submit_rejected(rejected)


def _named_device(request: web.Request, identity: Identity, query: dict[str, str]) -> str | None:
    """The device named outside of the body. A token for one device decides alone."""
    if identity.device is not None:
        query.pop("id", None)
        query.pop("deviceid", None)
        return identity.device
    return query.pop("d", None) or query.pop("device", None) or request.headers.get("X-Limit-D")


async def all_appended(futures: Iterable[asyncio.Future[Any]], timeout_s: float) -> None:
    """Wait until all are done, without cancelling any; raises AppendError, TimeoutError."""
    futures = list(futures)
    pending = [future for future in futures if not future.done()]
    if pending:
        loop = asyncio.get_running_loop()
        all_done: asyncio.Future[None] = loop.create_future()
        count = len(pending)

        def one_done(_: asyncio.Future[Any]) -> None:
            nonlocal count
            count -= 1
            if not count and not all_done.done():
                all_done.set_result(None)

        def late() -> None:
            if not all_done.done():
                all_done.set_exception(TimeoutError())

        for future in pending:
            future.add_done_callback(one_done)
        timer = loop.call_later(timeout_s, late)
        try:
            await all_done
        finally:
            timer.cancel()
    for future in futures:
        if future.cancelled():
            raise AppendError("the append was given up")
        error = future.exception()
        if error is not None:
            raise error


async def _positions(parsed: Parsed, _: Services) -> web.Response:
    answer: dict[str, Any] = {
        "accepted": len(parsed.fixes),
        "ids": [fix.id for fix in parsed.fixes],
        "rejected": [
            {"index": index, "reason": rejected.reason}
            for index, rejected in zip(parsed.rejected_at, parsed.rejected, strict=True)
        ],
    }
    if parsed.client_ids:
        # By the client's own names: it can delete exactly what is stored.
        answer["acked"] = [name for name in parsed.client_ids if name is not None]
    return json_answer(answer)


async def _owntracks_answer(parsed: Parsed, services: Services) -> web.Response:
    fix = _newest(parsed)
    found = await _address_text(fix, services) if fix is not None else None
    if fix is None or found is None:
        return raw_json_answer(_EMPTY_ARRAY)
    device = fix.device.partition("/")[2]
    # The app knows itself as owntracks/http/<tid>, and drops a whole answer for one element that
    # it does not understand.
    return json_answer(
        [{"_type": "card", "tid": parsed.tid or device[-2:], "name": f"{device} - {found}"}]
    )


async def _overland_answer(parsed: Parsed, services: Services) -> web.Response:
    answer: dict[str, Any] = {"result": "ok"}
    fix = _newest(parsed)
    if fix is not None:
        found = await _address_text(fix, services)
        if found is not None:
            answer["geocode"] = {"full_name": found}
    return json_answer(answer)


async def _empty_answer(_: Parsed, __: Services) -> web.Response:
    return web.Response()


async def _status_answer(_: Parsed, __: Services) -> web.Response:
    return raw_json_answer(b'{"status":"success"}')


async def _object_answer(_: Parsed, __: Services) -> web.Response:
    return raw_json_answer(b"{}")


def _newest(parsed: Parsed) -> Fix | None:
    if not parsed.fixes:
        return None
    return max(parsed.fixes, key=lambda fix: live_time(fix.time, fix.received))


async def _address_text(fix: Fix, services: Services) -> str | None:
    """The address of this fix if it comes in time, else the last known one of its device."""
    view: AddressView = services.address_view
    live = live_time(fix.time, fix.received)
    await view.wait(fix.device, live, services.limits.address_timeout_s)
    address = view.latest(fix.device)
    return None if address is None else address.display_name
