from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from waylog.kafka.clients import AppendError, DeliveryCallback, RecordHeaders

BATCH_BYTES: int

def monotonic_ms() -> int: ...
def partition_of(key: bytes, partitions: int) -> int: ...

class Delivery:
    """A cheap delivery callback, called when the log has answered a record."""
    def __call__(self, error: AppendError | None, position: Any) -> None: ...

class RecordBatch:
    count: int
    created: int
    bytes_held: int
    attempted: bool
    def seal(self) -> None: ...
    @property
    def is_sealed(self) -> bool: ...
    def encoded(self, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes: ...

class Partition:
    topic: str
    index: int
    batches: deque[RecordBatch]
    leader: int
    in_flight: bool
    producer_id: int
    producer_epoch: int
    next_sequence: int
    not_before: float
    def __init__(self, topic: str, index: int) -> None: ...
    def identify(self, producer_id: int, producer_epoch: int) -> None: ...

class RecordAccumulator:
    records: int
    bytes_held: int
    waiting: dict[Partition, None]
    refusing: str | None
    def __init__(
        self,
        bytes_max: int,
        on_first: Callable[[], object],
        on_unknown_topic: Callable[[str], object],
    ) -> None: ...
    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: RecordHeaders | None,
        delivery: DeliveryCallback,
    ) -> None: ...
    @property
    def topics(self) -> list[str]: ...
    def partitions(self, topic: str) -> Sequence[Partition]: ...
    def placed(self, topic: str, count: int) -> None: ...
    def refused(self, topic: str, code: int) -> None: ...
    @property
    def unplaced(self) -> bool: ...
    def taken(self, partition: Partition) -> RecordBatch: ...
    def put_back(self, partition: Partition, batch: RecordBatch) -> None: ...
    def done(
        self, partition: Partition, batch: RecordBatch, base_offset: int, code: int
    ) -> None: ...
    def fail_before(self, created: int, code: int) -> list[Partition]: ...
