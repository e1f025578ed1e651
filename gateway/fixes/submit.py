"""Appends fixes, events and rejected messages to the log.

A device receives its acknowledgement when the receipt or future returned here is done: when every
in-sync replica has the record (acks=all), or when the log is known to have it already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from gateway.fixes.erasure_reader import Record
from gateway.fixes.known_fixes import KnownFixes, device_key, fix_key
from gateway.fixes.plain_positions import PlainRecords
from gateway.fixes.receipts import RECORD_BYTES_MAX, BatchReceipt, FixAppender, Receipt
from gateway.fixes.traceparent import HEADER, TraceSource
from gateway.limits.error_bytes import ErrorBytes
from gateway.limits.token_buckets import TokenBuckets
from gateway.observability.metrics import GatewayMetrics
from waylog.history.erasures import Erasures
from waylog.kafka.clients import AppendError, DeliveryCallback, RecordHeaders
from waylog.kafka.topics import ERROR, EVENT
from waylog.messages import Event, Fix, Rejected, encode
from waylog.observability.interceptors import (
    RECORDS_PER_S,
    Telemetry,
    count_calls,
    parameter_logged,
    performance_logged,
)

logger = logging.getLogger(__name__)


_SAMPLE_S: Final = 1 / RECORDS_PER_S


class Log(Protocol):
    """The part of waylog.kafka.clients.Producer that is used here."""

    def send(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        headers: RecordHeaders | None,
        on_delivery: DeliveryCallback,
    ) -> None:
        """See waylog.kafka.clients.Producer.send."""


class Submitter(FixAppender):
    """Appends what devices send; each fix once, however often it is repeated.

    `error_bytes` bounds what is kept in topic `error`; without it the bounds are those of this
    process alone.
    """

    def __init__(
        self,
        log: Log,
        telemetry: Telemetry,
        loop: asyncio.AbstractEventLoop,
        *,
        known_fixes: KnownFixes | None = None,
        metrics: GatewayMetrics | None = None,
        error_bytes: ErrorBytes | None = None,
    ) -> None:
        super().__init__(
            log,
            KnownFixes() if known_fixes is None else known_fixes,
            GatewayMetrics() if metrics is None else metrics,
        )
        self.telemetry = telemetry
        self.traces = TraceSource()
        self._error_bytes = ErrorBytes(TokenBuckets()) if error_bytes is None else error_bytes
        self._log = log
        self._loop = loop
        self._erasures = Erasures()
        self._sampled = float("-inf")
        self._unrecorded = 0

    @performance_logged
    @parameter_logged
    def submit_location(self, fix: Fix, traceparent: bytes | None = None) -> Receipt:
        """Append a fix to topic `location`, once; never raises."""
        return self.append_fix(fix_key(fix.device, fix.id), fix, encode, traceparent)

    def submit_locations(self, fixes: Sequence[Fix], traceparent: bytes | None = None) -> Receipt:
        """Append several fixes; the receipt is done when the log has answered all of them."""
        batch = BatchReceipt(len(fixes))
        for fix in fixes:
            self.submit_location(fix, traceparent).add_done_callback(batch.one_done)
        return batch

    def is_sample(self) -> bool:
        """Return whether the next fixes are to use `submit_location`, for its interceptors.

        It is True up to RECORDS_PER_S times a second. The interceptors learn only the number of the
        fixes that use `submit_records` in between.
        """
        now = self._loop.time()
        if now - self._sampled < _SAMPLE_S:
            return False
        self._sampled = now
        count_calls(self.telemetry, "Submitter.submit_location", self._unrecorded)
        self._unrecorded = 0
        return True

    def submit_records(
        self, records: PlainRecords, source: str, traceparent: bytes | None
    ) -> Receipt:
        """Append several encoded fixes (gateway.fixes.plain_positions), like `submit_locations`."""
        self._unrecorded += len(records)
        return self.append_records(records, source, traceparent)

    def all_stored(self, receipts: Sequence[Receipt]) -> asyncio.Future[None]:
        """Return a future for all receipts; it fails with the first AppendError."""
        if len(receipts) == 1:
            return self._future(receipts[0])
        batch = BatchReceipt(len(receipts))
        for receipt in receipts:
            receipt.add_done_callback(batch.one_done)
        return self._future(batch)

    def on_erasures(self, records: Sequence[Record]) -> None:
        """Take records of topic `erasure`; earlier fixes are then acknowledged but not stored.

        If they were refused, a device with a backlog would send it again for ever.
        """
        for record in records:
            erasure = self._erasures.take(record.value())
            if erasure is not None:
                self.forget_before(device_key(erasure.device), erasure.before)

    def is_erased(self, device: str) -> bool:
        """Tell whether a device was erased, so that its earlier fixes are not stored again."""
        return device in self._erasures

    def submit_event(self, event: Event, traceparent: bytes | None = None) -> asyncio.Future[None]:
        """Append an event to topic `event`; the future fails with AppendError."""
        return self._future(self.event_receipt(event, traceparent))

    def event_receipt(self, event: Event, traceparent: bytes | None = None) -> Receipt:
        """Append an event to topic `event`, and return a receipt."""
        receipt = Receipt()
        if self._erasures.covers(event.device, event.time):
            self.metrics.erased += 1
            receipt.finish(None)
        else:
            self.metrics.events += 1
            self._append(EVENT, encode(event), event.device.encode(), traceparent, receipt)
        return receipt

    def submit_rejected(
        self,
        rejected: Rejected,
        traceparent: bytes | None = None,
        *,
        sender: str | None = None,
        stranger: str | None = None,
    ) -> asyncio.Future[None]:
        """Append a rejected message to topic `error`; the future fails with AppendError.

        The record's key is the device or else the user, so that the record is erased with them.
        Beyond what the `sender`, by default the message's user, may have kept it is cut
        (gateway.limits.error_bytes). `stranger` is the address of a sender who has not signed in;
        that bounds it then, and the record has no key.
        """
        return self._future(
            self.rejected_receipt(rejected, traceparent, sender=sender, stranger=stranger)
        )

    def rejected_receipt(
        self,
        rejected: Rejected,
        traceparent: bytes | None = None,
        *,
        sender: str | None = None,
        stranger: str | None = None,
    ) -> Receipt:
        """Append a rejected message as `submit_rejected` does, and return a receipt."""
        source = rejected.source
        self.metrics.rejected[source] = self.metrics.rejected.get(source, 0) + 1
        key: bytes | None = None
        if stranger is None:
            owner = rejected.device or rejected.user
            key = None if owner is None else owner.encode()
            value = self._error_bytes.of_user(sender or rejected.user or "", rejected)
        else:
            value = self._error_bytes.of_stranger(stranger, rejected)
        receipt = Receipt()
        self._append(ERROR, value, key, traceparent, receipt)
        return receipt

    def submit_message(
        self, topic: str, key: bytes, payload: bytes, headers: list[tuple[str, bytes]]
    ) -> Receipt:
        """Append a message unchanged to a topic that an operator has chosen."""
        self.metrics.messages += 1
        receipt = Receipt()
        self._append(topic, payload, key, None, receipt, headers)
        return receipt

    def _append(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        traceparent: bytes | None,
        receipt: Receipt,
        more: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        try:
            if len(value) > RECORD_BYTES_MAX:
                raise AppendError(f"a record of {len(value)} bytes is too large")
            headers: RecordHeaders = [(HEADER, traceparent or self.traces.start()), *more]
            self._log.send(topic, value, key, headers, receipt)
        except AppendError as error:
            self.metrics.append_failures += 1
            receipt.finish(error)

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
        # Each waiter gets an exception object of its own, as several may raise it.
        future.set_exception(type(error)(*error.args))
        # Mark it as retrieved: callers that have given up waiting do not look at it.
        future.exception()
