from collections.abc import Iterable, Sequence

# timestamp in ms, key, value, headers
NewRecord = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]

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
