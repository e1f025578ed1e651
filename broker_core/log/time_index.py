"""The time index of one segment: a sparse, sorted table from timestamps to offsets.

File format as Kafka's `.timeindex`: entries of 12 bytes, a timestamp (ms, 64 bits) and an offset
relative to the segment's base offset (32 bits), both big-endian.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from operator import lt
from typing import Final

ENTRY_BYTES: Final = 12
_HIGH_HALF: Final = 1 if sys.byteorder == "little" else 0  # of a timestamp seen as two words


class TimeIndex:
    """Timestamps, strictly ascending, each with an offset.

    Invariant: no record at or before an entry's offset has a later timestamp than the entry, so a
    record with a later timestamp lies behind the entry's offset.
    """

    __slots__ = ("_offsets", "_timestamps")

    def __init__(self) -> None:
        self._timestamps = array("q")
        self._offsets = array("I")

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def last_timestamp(self) -> int:
        """The newest entry's timestamp, -1 if the index is empty."""
        return self._timestamps[-1] if self._timestamps else -1

    def append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry at the end; ignore one that is not later than the last."""
        if timestamp_ms > self.last_timestamp:
            self._timestamps.append(timestamp_ms)
            self._offsets.append(relative_offset)

    def lookup(self, timestamp_ms: int) -> int:
        """Return the first relative offset whose record can be at `timestamp_ms` or later."""
        index = bisect_left(self._timestamps, timestamp_ms)
        return self._offsets[index - 1] + 1 if index else 0

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries at or above an offset."""
        while self._offsets and self._offsets[-1] >= relative_offset:
            self._offsets.pop()
            self._timestamps.pop()

    def to_bytes(self) -> bytes:
        """Return the content of the index file."""
        halves = array("I", self._timestamps.tobytes())
        words = array("I", bytes(ENTRY_BYTES * len(self)))
        words[0::3] = halves[_HIGH_HALF::2]
        words[1::3] = halves[1 - _HIGH_HALF :: 2]
        words[2::3] = self._offsets
        if sys.byteorder == "little":
            words.byteswap()
        return words.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> TimeIndex | None:
        """Parse a file's content; return None if it cannot be a time index."""
        if len(data) % ENTRY_BYTES:
            return None
        words = array("I", data)
        if sys.byteorder == "little":
            words.byteswap()
        halves = array("I", bytes(len(words) // 3 * 8))
        halves[_HIGH_HALF::2] = words[0::3]
        halves[1 - _HIGH_HALF :: 2] = words[1::3]
        index = cls()
        index._timestamps = array("q", halves.tobytes())
        index._offsets = words[2::3]
        ascends = all(map(lt, index._timestamps, index._timestamps[1:])) and all(
            map(lt, index._offsets, index._offsets[1:])
        )
        return index if ascends else None


def last_timestamp_of(tail: bytes) -> int:
    """Return the last entry's timestamp from at least the last 12 bytes of a file; -1 if empty."""
    if len(tail) < ENTRY_BYTES:
        return -1
    return int.from_bytes(tail[-ENTRY_BYTES:-4], "big", signed=True)
