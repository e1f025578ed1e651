from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError

from gateway.formats.plain_positions import PlainRecords
from gateway.known_fixes import KnownFixes
from gateway.metrics import GatewayMetrics
from gateway.submit import Log
from waylog.kafka import AppendError
from waylog.librdkafka import Delivery
from waylog.messages import Fix

RECORD_BYTES_MAX: Final = 900_000

class Receipt(Delivery):
    """What the log says to one record: a future for those who cannot afford a future."""

    def __init__(self) -> None: ...
    def done(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def exception(self) -> AppendError | None: ...
    def add_done_callback(self, callback: Callable[[Any], object]) -> None: ...
    def __call__(self, error: KafkaError | None, position: object) -> None: ...
    def finish(self, error: AppendError | None) -> None: ...

class BatchReceipt(Receipt):
    """Of several records: done when all are, with the first error there was."""

    def __init__(self, count: int) -> None: ...
    def one_done(self, receipt: Receipt) -> None: ...

class FixAppender:
    """The base of gateway.submit.Submitter: appends fixes, each once."""

    known_fixes: KnownFixes
    doubts_repeats: bool
    repeated: bool
    metrics: GatewayMetrics
    def __init__(self, log: Log, known_fixes: KnownFixes, metrics: GatewayMetrics) -> None: ...
    @property
    def in_flight(self) -> int: ...
    def forget_before(self, device: int, time_ms: int) -> None: ...
    def receipt_of(self, key: int) -> Receipt | None: ...
    def append_fix(
        self, key: int, fix: Fix, encode: Callable[[Fix], bytes], traceparent: bytes | None
    ) -> Receipt: ...
    def append_records(
        self, records: PlainRecords, source: str, traceparent: bytes | None
    ) -> Receipt: ...
