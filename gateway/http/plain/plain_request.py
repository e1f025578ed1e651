"""A plain request on its way through the log, and its response."""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

import msgspec

from gateway.fixes.plain_positions import PlainRecords
from gateway.fixes.plain_positions import answer as plain_answer
from gateway.formats import Parsed, positions
from gateway.http.ingest.app_responses import Receiving, newest
from gateway.http.plain.request_head import RequestHead
from gateway.http.plain.shared_state import SharedState
from gateway.http.requests.responses import Refused, unavailable
from gateway.limits.bounds import OVERHEAD_BYTES, RECORD_BYTES
from gateway.users.auth import Identity
from waylog.kafka.clients import AppendError
from waylog.messages import live_time

_encode = msgspec.json.Encoder().encode

_REASONS: Final = {
    200: b"OK",
    400: b"Bad Request",
    403: b"Forbidden",
    408: b"Request Timeout",
    413: b"Content Too Large",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    503: b"Service Unavailable",
}


def response(status: int, body: bytes, date: bytes, headers: dict[str, str] | None = None) -> bytes:
    """Return a whole HTTP/1.1 response with a JSON body, or without a body."""
    more = b"".join(
        b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in (headers or {}).items()
    )
    kind = b"Content-Type: application/json\r\n" if body else b""
    return b"HTTP/1.1 %d %b\r\n%bContent-Length: %d\r\nDate: %b\r\n%b\r\n%b" % (
        *(status, _REASONS.get(status, b"Error"), kind, len(body), date, more, body),
    )


class Answers(Protocol):
    """Writes the answers of a connection."""

    @property
    def shared(self) -> SharedState:
        """What the request has in common with those of other connections."""

    def answered(self, route: str, status: int) -> None:
        """Take note that a request has its answer."""


class PlainRequest:
    """One request from the parsed body to the response, without a task and without a future."""

    __slots__ = (
        "_answers",
        "_error",
        "_head",
        "_identity",
        "_parsed",
        "_records",
        "_size",
        "_waiting",
        "answer",
        "started",
        "status",
    )

    def __init__(
        self, answers: Answers, head: RequestHead, identity: Identity, parsed: Parsed
    ) -> None:
        self._answers = answers
        self._head = head
        self._identity = identity
        self._parsed = parsed
        self._records: PlainRecords | None = None
        self._waiting = 0
        self._size = 0
        self._error: BaseException | None = None
        self.started = time.monotonic()
        self.answer: bytes | None = None
        self.status = 0

    def begin(self, body_bytes: int, records: int) -> bool:
        """Take the request's size from the user's budget. Return False if that is exceeded."""
        size = body_bytes + OVERHEAD_BYTES + records * RECORD_BYTES
        if not self._answers.shared.services.under_way.take(self._identity.user, size):
            return False
        self._size = size
        return True

    def submit(self, traceparent: str | None) -> None:
        """Append everything; the response follows when the log has stored all of it."""
        parsed = self._parsed
        submitter = self._answers.shared.services.submitter
        trace = submitter.traces.continue_from(traceparent)
        # One more than the number of appends, so that nothing is answered before all are submitted.
        self._waiting = 1
        fixes = parsed.fixes
        if len(fixes) == 1:
            self._waiting = 2
            submitter.submit_location(fixes[0], trace).add_done_callback(self._one_done)
        elif fixes:
            self._waiting = 2
            submitter.submit_locations(fixes, trace).add_done_callback(self._one_done)
        for completion in (
            *(submitter.submit_event(event, trace) for event in parsed.events),
            *(submitter.submit_rejected(rejected, trace) for rejected in parsed.rejected),
        ):
            self._waiting += 1
            completion.add_done_callback(self._one_done)
        self._one_done(None)

    def submit_records(self, records: PlainRecords, traceparent: str | None) -> None:
        """Append records that were made from the body without parsing it fully."""
        self._records = records
        self._waiting = 1
        submitter = self._answers.shared.services.submitter
        trace = None if traceparent is None else submitter.traces.continue_from(traceparent)
        receipt = submitter.submit_records(records, positions.SOURCE, trace)
        receipt.add_done_callback(self._one_done)

    def _one_done(self, completion: Any) -> None:
        self._waiting -= 1
        if completion is not None and self._error is None:
            self._error = completion.exception()
        if self._waiting:
            return
        services = self._answers.shared.services
        user = self._identity.user
        services.under_way.give_back(user, self._size)
        # The log may have answered thousands of requests at once.
        services.turns.call(user, self._finish)

    def _finish(self) -> None:
        """Answer: the log has stored all, or refused some."""
        if self.answer is not None:
            return
        if self._error is not None:
            self.refuse(unavailable(f"not stored: {self._error}"))
            return
        if self._head.format.tells_address:
            fix = newest(self._parsed)
            if fix is not None:
                services = self._answers.shared.services
                services.address_view.when(
                    fix.device,
                    live_time(fix.time, fix.received),
                    services.limits.address_timeout_s,
                    self._answer,
                )
                return
        self._answer()

    def _answer(self) -> None:
        if self.answer is not None:
            return
        if self._records is not None:
            body = plain_answer(self._records)
        else:
            services = self._answers.shared.services
            parsed = self._parsed
            received = Receiving(parsed, self._identity, services, newest(parsed))
            body = b"".join(self._head.format.answer(received))
        self.status = 200
        date = self._answers.shared.date
        self.answer = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Date: %b\r\n\r\n%b" % (len(body), date, body)
            if body
            else b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nDate: %b\r\n\r\n" % date
        )
        self._answers.answered(self._head.template, 200)

    def refuse(self, refusal: Refused) -> None:
        """Answer with an error."""
        self.status = refusal.status
        self.answer = response(
            refusal.status,
            _encode({"error": refusal.reason}),
            self._answers.shared.date,
            refusal.headers,
        )
        self._answers.answered(self._head.template, refusal.status)

    def late(self) -> None:
        """Answer with 503: the log has not stored the request in time. A repeat joins the wait."""
        if self.answer is None:
            self._error = AppendError("late")
            self.refuse(unavailable("not stored yet: the log does not answer"))
