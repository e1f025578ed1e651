"""The way of fixes, events and rejected messages into the log.

The acknowledgement to a device hangs on the receipts and futures given out here: they are done when
every in-sync replica has the record (acks=all), or when the log is known to have it already.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, Message

from gateway.known_fixes import KnownFixes, fix_key
from gateway.metrics import GatewayMetrics
from gateway.traceparent import HEADER, TraceSource
from waylog.interceptors import Telemetry, parameter_logged, performance_logged
from waylog.kafka import AppendError, DeliveryCallback, RecordHeaders
from waylog.messages import Event, Fix, Rejected, encode
from waylog.topics import ERROR, EVENT, LOCATION

logger = logging.getLogger(__name__)

#: A record beyond it would be refused by the broker (message.max.bytes is 1 MB).
RECORD_BYTES_MAX: Final = 900_000


class Log(Protocol):
    """The part of waylog.kafka.Producer that is needed here."""

    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: RecordHeaders | None,
        on_delivery: DeliveryCallback,
    ) -> None:
        """See waylog.kafka.Producer.send."""


class Receipt:
    """What the log says to one record: a future for those who cannot afford a future.

    Callbacks are called as soon as the log has answered, and not through the event loop: of the
    time a fix costs, futures and their turns of the loop were the greatest part.
    """

    __slots__ = ("_callbacks", "_done", "_error")

    def __init__(self) -> None:
        self._done = False
        self._error: AppendError | None = None
        # One callback, or a list of them: nearly always there is exactly one.
        self._callbacks: Callable[[Any], object] | list[Callable[[Any], object]] | None = None

    def done(self) -> bool:
        """Whether the log has answered."""
        return self._done

    def cancelled(self) -> bool:
        """Never; for those who take futures, too."""
        return False

    def exception(self) -> AppendError | None:
        """Why the log did not acknowledge the record; None when it did or has not answered yet."""
        return self._error

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(self)` when the log answers; at once when it has."""
        if self._done:
            callback(self)
        elif self._callbacks is None:
            self._callbacks = callback
        elif type(self._callbacks) is list:
            self._callbacks.append(callback)
        else:
            self._callbacks = [self._callbacks, callback]  # type: ignore[list-item]

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """For Log.send."""
        self.finish(None if error is None else AppendError(error.str()))

    def finish(self, error: AppendError | None) -> None:
        """The log has answered."""
        self._done = True
        self._error = error
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is None:
            return
        if type(callbacks) is list:
            for callback in callbacks:
                callback(self)
        else:
            callbacks(self)  # type: ignore[operator]


class _FixReceipt(Receipt):
    """Of a fix, which is known as soon as the log has it."""

    __slots__ = ("key", "source", "started", "submitter")

    def __init__(self, submitter: Submitter, key: int, source: str) -> None:
        self._done = False
        self._error = None
        self._callbacks = None
        self.submitter = submitter
        self.key = key
        self.source = source
        self.started = time.perf_counter()

    def finish(self, error: AppendError | None) -> None:
        self.submitter._answered(self, error)
        super().finish(error)


class Submitter:
    """Appends what devices send; each fix once, however often it is repeated."""

    def __init__(
        self,
        log: Log,
        telemetry: Telemetry,
        loop: asyncio.AbstractEventLoop,
        *,
        known_fixes: KnownFixes | None = None,
        metrics: GatewayMetrics | None = None,
    ) -> None:
        self.telemetry = telemetry
        self.known_fixes = KnownFixes() if known_fixes is None else known_fixes
        self.metrics = GatewayMetrics() if metrics is None else metrics
        self.traces = TraceSource()
        self._log = log
        self._loop = loop
        self._in_flight: dict[int, _FixReceipt] = {}
        self._stored = Receipt()
        self._stored.finish(None)

    @property
    def in_flight(self) -> int:
        """Fixes that wait for their acknowledgement."""
        return len(self._in_flight)

    @performance_logged
    @parameter_logged
    def submit_location(self, fix: Fix, traceparent: bytes | None = None) -> Receipt:
        """Append a fix to topic `location`, once; never raises."""
        key = fix_key(fix.device, fix.id)
        if key in self.known_fixes:
            self.metrics.repeated += 1
            return self._stored
        waiting = self._in_flight.get(key)
        if waiting is not None:
            self.metrics.repeated += 1
            return waiting
        receipt = self._in_flight[key] = _FixReceipt(self, key, fix.source or "")
        self._append(LOCATION, encode(fix), fix.device.encode(), traceparent, receipt)
        return receipt

    def location_stored(self, fix: Fix, traceparent: bytes | None = None) -> asyncio.Future[None]:
        """The same as a future, which fails with AppendError."""
        return self._future(self.submit_location(fix, traceparent))

    def submit_event(self, event: Event, traceparent: bytes | None = None) -> asyncio.Future[None]:
        """Append to topic `event`; the future fails with AppendError."""
        self.metrics.events += 1
        receipt = Receipt()
        self._append(EVENT, encode(event), event.device.encode(), traceparent, receipt)
        return self._future(receipt)

    def submit_rejected(
        self, rejected: Rejected, traceparent: bytes | None = None
    ) -> asyncio.Future[None]:
        """Append to topic `error`; the future fails with AppendError."""
        source = rejected.source
        self.metrics.rejected[source] = self.metrics.rejected.get(source, 0) + 1
        key = rejected.device.encode() if rejected.device is not None else None
        receipt = Receipt()
        self._append(ERROR, encode(rejected), key, traceparent, receipt)
        return self._future(receipt)

    def _append(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        traceparent: bytes | None,
        receipt: Receipt,
    ) -> None:
        try:
            if len(value) > RECORD_BYTES_MAX:
                raise AppendError(f"a record of {len(value)} bytes is too large")
            headers: RecordHeaders = [(HEADER, traceparent or self.traces.start())]
            self._log.send(topic, value, key, headers, receipt.delivered)
        except AppendError as error:
            if topic != LOCATION:
                self.metrics.append_failures += 1
            receipt.finish(error)

    def _answered(self, receipt: _FixReceipt, error: AppendError | None) -> None:
        del self._in_flight[receipt.key]
        if error is not None:
            self.metrics.append_failures += 1
            return
        self.known_fixes.add(receipt.key)
        self.metrics.acknowledged(receipt.source, time.perf_counter() - receipt.started)

    def _future(self, receipt: Receipt) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        receipt.add_done_callback(partial(_resolve, future))
        return future


def _resolve(future: asyncio.Future[None], receipt: Receipt) -> None:
    if future.done():
        return
    error = receipt.exception()
    if error is None:
        future.set_result(None)
    else:
        # One exception may be raised to several who wait: each gets its own.
        future.set_exception(type(error)(*error.args))
        # Whoever has given up waiting does not retrieve it.
        future.exception()
