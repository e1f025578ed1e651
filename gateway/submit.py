"""The way of fixes, events and rejected messages into the log.

The acknowledgement to a device hangs on the futures given out here: they are done when every
in-sync replica has the record (acks=all), or when the log is known to have it already.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Any, Final, Protocol, cast

from gateway.known_fixes import KnownFixes, fix_key
from gateway.metrics import GatewayMetrics
from gateway.traceparent import HEADER, TraceSource
from waylog.interceptors import Telemetry, parameter_logged, performance_logged
from waylog.kafka import AppendError, Headers
from waylog.messages import Event, Fix, Rejected, encode
from waylog.topics import ERROR, EVENT, LOCATION

logger = logging.getLogger(__name__)

#: A record beyond it would be refused by the broker (message.max.bytes is 1 MB).
RECORD_BYTES_MAX: Final = 900_000


class Log(Protocol):
    """The part of waylog.kafka.Producer that is needed here."""

    def append(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[Any]:
        """See waylog.kafka.Producer.append."""


class Submitter:
    """Appends what devices send; each fix once, however often it is repeated.

    Futures given out may be shared between requests that repeat each other: await them through
    `asyncio.shield` or `asyncio.wait`, so that one that gives up does not cancel the other's.
    """

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
        self._in_flight: dict[int, asyncio.Future[None]] = {}
        self._stored: asyncio.Future[None] = loop.create_future()
        self._stored.set_result(None)

    @property
    def in_flight(self) -> int:
        """Fixes that wait for their acknowledgement."""
        return len(self._in_flight)

    @performance_logged
    @parameter_logged
    def submit_location(self, fix: Fix, traceparent: bytes | None = None) -> asyncio.Future[None]:
        """Append a fix to topic `location`; the future fails with AppendError."""
        key = fix_key(fix.device, fix.id)
        if key in self.known_fixes:
            self.metrics.repeated += 1
            return self._stored
        waiting = self._in_flight.get(key)
        if waiting is not None and not waiting.cancelled():
            self.metrics.repeated += 1
            return waiting
        future = self._append(LOCATION, encode(fix), fix.device.encode(), traceparent)
        if not future.done():
            self._in_flight[key] = future
            future.add_done_callback(
                partial(self._location_done, key, fix.source or "", time.perf_counter())
            )
        return future

    def submit_event(self, event: Event, traceparent: bytes | None = None) -> asyncio.Future[None]:
        """Append to topic `event`; the future fails with AppendError."""
        self.metrics.events += 1
        return self._append(EVENT, encode(event), event.device.encode(), traceparent)

    def submit_rejected(
        self, rejected: Rejected, traceparent: bytes | None = None
    ) -> asyncio.Future[None]:
        """Append to topic `error`; the future fails with AppendError."""
        source = rejected.source
        self.metrics.rejected[source] = self.metrics.rejected.get(source, 0) + 1
        key = rejected.device.encode() if rejected.device is not None else None
        return self._append(ERROR, encode(rejected), key, traceparent)

    def _append(
        self, topic: str, value: bytes, key: bytes | None, traceparent: bytes | None
    ) -> asyncio.Future[None]:
        if len(value) > RECORD_BYTES_MAX:
            return self._failed(AppendError(f"a record of {len(value)} bytes is too large"))
        headers = ((HEADER, traceparent or self.traces.start()),)
        try:
            return cast("asyncio.Future[None]", self._log.append(topic, value, key, headers))
        except AppendError as error:
            return self._failed(error)

    def _failed(self, error: AppendError) -> asyncio.Future[None]:
        self.metrics.append_failures += 1
        future: asyncio.Future[None] = self._loop.create_future()
        future.set_exception(error)
        # Whoever has given up waiting does not retrieve it.
        future.exception()
        return future

    def _location_done(
        self, key: int, source: str, started: float, future: asyncio.Future[None]
    ) -> None:
        if self._in_flight.get(key) is future:
            del self._in_flight[key]
        if future.cancelled():
            return
        if future.exception() is not None:
            self.metrics.append_failures += 1
            return
        self.known_fixes.add(key)
        self.metrics.acknowledged(source, time.perf_counter() - started)
