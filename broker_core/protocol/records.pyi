from collections.abc import Iterable, Iterator, Sequence

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]
# timestamp in ms, key, value, headers
NewRecord = tuple[int, bytes | None, bytes | None, Headers]
# offset, timestamp in ms, key, value, headers
Record = tuple[int, int, bytes | None, bytes | None, Headers]

HEADER_BYTES: int

class BatchHeader:
    position: int
    size: int
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    has_null_key: bool
    newest_timestamp: int
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def compression(self) -> int: ...
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def delete_horizon_ms(self) -> int: ...
    @property
    def is_control(self) -> bool: ...

def crc32c(data: Buffer, value: int = 0, *, by_table: bool = False) -> int: ...
def validate_batches(
    data: Buffer, *, max_batch_bytes: int = ..., from_client: bool = ...
) -> list[BatchHeader]: ...
def transactional_producer(data: Buffer) -> tuple[int, int] | None: ...
def inspect_compressed(data: Buffer, header: BatchHeader, *, max_bytes: int = ...) -> None: ...
def assign_offsets(
    data: bytearray | memoryview,
    headers: list[BatchHeader],
    base_offset: int,
    leader_epoch: int,
    log_append_time_ms: int = -1,
) -> int: ...
def scan_batches(
    data: Buffer, *, check_crc: bool = True, count_max: int = ...
) -> tuple[list[BatchHeader], int, str | None]: ...
def find_batch(data: Buffer, offset: int, timestamp_ms: int = ...) -> tuple[int, int]: ...
def whole_batches(data: Buffer, up_to_offset: int = ...) -> tuple[int, int]: ...

BATCHES_MAX: int

class RecordReader:
    def __init__(self, data: Buffer, header: BatchHeader, *, max_bytes: int = ...) -> None: ...
    def read(self, count: int) -> list[Record]: ...
    def first_at(self, timestamp_ms: int, from_offset: int) -> tuple[int, int] | None: ...

def read_records(data: Buffer, header: BatchHeader, *, max_bytes: int = ...) -> list[Record]: ...
def iterate_records(
    data: Buffer, *, check_crc: bool = True, max_bytes: int = ...
) -> Iterator[Record]: ...
def build_batch(
    records: Iterable[NewRecord],
    *,
    base_offset: int = 0,
    compression: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    offset_deltas: Iterable[int] | None = None,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    attributes: int = 0,
) -> bytearray: ...
def empty_batch(base_offset: int, next_offset: int) -> bytes: ...
