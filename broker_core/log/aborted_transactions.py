"""The aborted transactions of a segment, which readers of committed records skip.

File format as Kafka's `.txnindex`: entries of 34 bytes, big-endian: version, producer id, first
offset, last offset (that of the marker), and the last stable offset when the marker was written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

_ENTRY: Final = struct.Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size


class AbortedTransaction(NamedTuple):
    """A transaction that an abort marker ended."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the abort marker, which lies in the segment that has this entry
    last_stable_offset: int  # when the marker was written; earlier transactions are all decided


def to_bytes(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the content of the index file."""
    return b"".join(_ENTRY.pack(0, *entry) for entry in entries)


def from_bytes(data: bytes) -> list[AbortedTransaction]:
    """Parse the content of an index file; ignore an incomplete entry at its end."""
    whole = len(data) // ENTRY_BYTES * ENTRY_BYTES
    return [AbortedTransaction(*entry[1:]) for entry in _ENTRY.iter_unpack(data[:whole])]
