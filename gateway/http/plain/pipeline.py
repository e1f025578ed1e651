"""The plain requests of a connection that are under way, and their answers, in order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway.bodies.parsing import is_read_here
from gateway.formats import Context, Parsed
from gateway.http.ingest.ingest import admit, check_may_send
from gateway.http.plain.last_head import LastHead
from gateway.http.plain.origin import Origin
from gateway.http.plain.plain_request import PlainRequest
from gateway.http.plain.request_head import RequestHead
from gateway.http.plain.shared_state import SharedState
from gateway.http.requests.responses import Refused, unavailable
from gateway.limits.bounds import TOO_MUCH_UNDER_WAY
from gateway.users.auth import Identity
from waylog.observability.telemetry import now_ms

logger = logging.getLogger(__name__)

#: Requests of one connection that may wait for the log; at this number reading pauses, until half
#: of them are answered.
PIPELINED_MAX: Final = 64

_NOTHING: Final = Parsed()


class Pipeline:
    """Submits or refuses requests, and writes their answers in the order in which they came."""

    __slots__ = (
        *("_last", "_on_answers", "_origin", "_requests", "_transport", "_was_full", "shared"),
    )

    def __init__(self, shared: SharedState, origin: Origin, last: LastHead) -> None:
        """`last` is the head of the request that is served next."""
        self.shared = shared
        self._origin = origin
        self._last = last
        self._transport: asyncio.Transport | None = None
        self._on_answers: Callable[[], None] | None = None
        self._requests: deque[PlainRequest] = deque()
        self._was_full = False

    def begin(self, transport: asyncio.Transport, on_answers: Callable[[], None]) -> None:
        """Write answers to this transport from now on, and call `on_answers` when one is ready."""
        self._transport = transport
        self._on_answers = on_answers

    def end(self) -> None:
        """Write no more. What the log has not stored yet is still under way."""
        # Whoever is called back refers to this object, too.
        self._transport = self._on_answers = None

    @property
    def is_empty(self) -> bool:
        """Tell whether all requests are answered."""
        return not self._requests

    @property
    def is_full(self) -> bool:
        """Tell whether as many requests wait as may."""
        return len(self._requests) >= PIPELINED_MAX

    def takes_more(self) -> bool:
        """Tell whether to read more; once full, not before half of the requests are answered."""
        if self.is_full:
            self._was_full = True
        elif len(self._requests) <= PIPELINED_MAX // 2:
            self._was_full = False
        return not self._was_full

    def look_after(self, now: float) -> None:
        """Answer the oldest request if the log has not stored it in time."""
        if self._requests:
            oldest = self._requests[0]
            if oldest.started + self.shared.services.append_timeout_s < now:
                oldest.late()

    def serve(self, head: RequestHead, identity: Identity, body: bytes) -> bool:
        """Submit or refuse a request. Return False if parsing it here would take too long."""
        services = self.shared.services
        origin = self._origin
        if (not origin.is_local or self.shared.has_proxies) and not self.shared.addresses.may_ask(
            origin.client(head.headers)
        ):
            self._refuse(head, unavailable("too many requests from your address"))
            return True
        context, plain = self._last.context_of(identity)
        received = now_ms()
        few = is_read_here(body)
        if plain is not None and not (few and services.submitter.is_sample()):
            records = plain.records(body, received)
            if records is not None:
                request = PlainRequest(self, head, identity, _NOTHING)
                if not request.begin(len(body), len(records)):
                    self._refuse(head, unavailable(TOO_MUCH_UNDER_WAY))
                    return True
                self._requests.append(request)
                request.submit_records(records, head.headers.get("traceparent"))
                return True
        if not few:
            return False
        context = Context(
            context.user,
            context.device,
            received,
            context.any_user,
            None,
            context.query,
            context.headers,
            context.content_type,
            context.encryption_key,
        )
        try:
            check_may_send(identity)
            parsed = head.format.parse(body, context)
            if parsed.refused is not None:
                raise Refused(413, parsed.refused)
            if parsed.malformed is not None:
                raise Refused(400, parsed.malformed)
            admit(parsed, identity, services.admission, head.format)
        except Refused as refusal:
            self._refuse(head, refusal)
            return True
        except Exception:
            # A bug in a parser must not make a phone repeat one message for ever.
            logger.exception("the parser of %s failed", head.format.name)
            self._refuse(head, Refused(500, "an error of the gateway; its log has the details"))
            return True
        request = PlainRequest(self, head, identity, parsed)
        if not request.begin(len(body), parsed.count):
            self._refuse(head, unavailable(TOO_MUCH_UNDER_WAY))
            return True
        self._requests.append(request)
        request.submit(head.headers.get("traceparent"))
        return True

    def _refuse(self, head: RequestHead, refusal: Refused) -> None:
        request = PlainRequest(self, head, Identity(""), _NOTHING)
        self._requests.append(request)
        request.refuse(refusal)

    def answered(self, route: str, status: int) -> None:
        """Write the answer of a request, and those after it that are ready, in order."""
        self.shared.services.metrics.request(route, status)
        requests, transport = self._requests, self._transport
        while requests and (answer := requests[0].answer) is not None:
            requests.popleft()
            if transport is not None:
                transport.write(answer)
        if self._on_answers is not None:
            self._on_answers()
