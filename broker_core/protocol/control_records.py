"""Transaction markers: the control records that end a transaction in a partition (KIP-98).

A control batch holds one record. Its key has version and type (0 abort, 1 commit), its value has
version and the epoch of the transaction coordinator that wrote it, all big-endian.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from broker_core.errors import BrokerError
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.record_reader import read_records

Buffer = bytes | bytearray | memoryview

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


class EndMarker(NamedTuple):
    """The end of a producer's transaction."""

    committed: bool
    coordinator_epoch: int


def build_end_marker(
    producer_id: int, producer_epoch: int, marker: EndMarker, now_ms: int
) -> bytearray:
    """Build the control batch; its offset is not assigned yet."""
    key = _KEY.pack(0, _COMMIT if marker.committed else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [(now_ms, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_marker(data: Buffer, header: BatchHeader) -> EndMarker | None:
    """Parse a control batch; return None for a kind that does not end a transaction."""
    try:
        ((_, _, key, value, _),) = read_records(data, header)
        _, kind = _KEY.unpack_from(key or b"")
        _, coordinator_epoch = _VALUE.unpack_from(value or b"")
    except (BrokerError, ValueError, struct.error):
        return None
    if kind not in {_ABORT, _COMMIT}:
        return None
    return EndMarker(kind == _COMMIT, coordinator_epoch)
