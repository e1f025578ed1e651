"""The offset index of one segment: a sparse, sorted table from offsets to file positions.

File format as Kafka's `.index`: entries of 8 bytes, the offset relative to the segment's base
offset and the position in the `.log` file, both big-endian 32 bits. In memory the table is a pair
of arrays. The file is written once, when the segment is closed; before that, recovery can rebuild
it.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from operator import lt
from typing import Final

ENTRY_BYTES: Final = 8


class OffsetIndex:
    """Ascending offsets of a segment, each with the position of the batch that begins there.

    Invariant: the batch at an entry's position has the entry's offset as its base offset, so all
    offsets from it on are at that position or behind it.
    """

    __slots__ = ("_offsets", "_positions")

    def __init__(self) -> None:
        self._offsets = array("I")
        self._positions = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_position(self) -> int:
        """Position of the newest entry, 0 if the index is empty."""
        return self._positions[-1] if self._positions else 0

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry at the end."""
        self._offsets.append(relative_offset)
        self._positions.append(position)

    def lookup(self, relative_offset: int) -> int:
        """Return the position to search from: that of the last entry not above the offset."""
        index = bisect_right(self._offsets, relative_offset)
        return self._positions[index - 1] if index else 0

    def position_behind(self, position: int) -> int | None:
        """Return the position of the first entry behind a position, None if there is none."""
        index = bisect_right(self._positions, position)
        return self._positions[index] if index < len(self) else None

    def last_boundary(self, position: int, relative_offset: int) -> tuple[int, int]:
        """Return the last entry not above `position` and `relative_offset`, (0, 0) if none.

        It is returned as (relative offset, position).
        """
        index = min(
            bisect_right(self._positions, position), bisect_right(self._offsets, relative_offset)
        )
        return (self._offsets[index - 1], self._positions[index - 1]) if index else (0, 0)

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries at or above an offset."""
        index = bisect_right(self._offsets, relative_offset - 1) if relative_offset > 0 else 0
        del self._offsets[index:]
        del self._positions[index:]

    def to_bytes(self) -> bytes:
        """Return the content of the index file."""
        interleaved = array("I", bytes(ENTRY_BYTES * len(self)))
        interleaved[0::2] = self._offsets
        interleaved[1::2] = self._positions
        if sys.byteorder == "little":
            interleaved.byteswap()
        return interleaved.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, segment_size: int) -> OffsetIndex | None:
        """Parse a file's content; None if it cannot be the index of a segment of that size."""
        if len(data) % ENTRY_BYTES:
            return None
        interleaved = array("I", data)
        if sys.byteorder == "little":
            interleaved.byteswap()
        index = cls()
        index._offsets = interleaved[0::2]
        index._positions = interleaved[1::2]
        if index and index.last_position >= segment_size:
            return None
        # After a power cut, unsynced blocks of a file read as zeros; the order check detects them.
        return index if _ascends(index._offsets) and _ascends(index._positions) else None


def _ascends(numbers: array[int]) -> bool:
    return all(map(lt, numbers, numbers[1:]))
