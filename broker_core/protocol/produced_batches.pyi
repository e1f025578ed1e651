from broker_core.protocol.batch_header import BatchHeader

_Buffer = bytes | bytearray | memoryview

BATCHES_MAX: int

def validate_batches(
    data: _Buffer, *, max_batch_bytes: int = ..., from_client: bool = ...
) -> list[BatchHeader]: ...
def transactional_producer(data: _Buffer) -> tuple[int, int] | None: ...
def inspect_compressed(data: _Buffer, header: BatchHeader, *, max_bytes: int = ...) -> None: ...
def assign_offsets(
    data: bytearray | memoryview,
    headers: list[BatchHeader],
    base_offset: int,
    leader_epoch: int,
    log_append_time_ms: int = -1,
) -> int: ...
