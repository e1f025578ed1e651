"""Bodies of requests and answers in parts: to put some MiB together takes long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

#: As much as is written at once.
_SLICE_BYTES: Final = 64 * 1024


class Body:
    """Bytes in the parts in which they came, or were made."""

    __slots__ = ("_parts", "_size")

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)
        self._size = sum(map(len, parts))

    def append(self, part: bytes) -> None:
        """Add what came next."""
        self._parts.append(part)
        self._size += len(part)

    def __len__(self) -> int:
        """The number of bytes."""
        return self._size

    def __bytes__(self) -> bytes:
        """All of it, put together: for small ones, and for threads."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def parts(self) -> Sequence[bytes]:
        """The parts, of any size."""
        return self._parts

    def slices(self) -> Iterator[bytes | memoryview]:
        """All of it, in parts of 64 KiB at most."""
        for part in self._parts:
            if len(part) <= _SLICE_BYTES:
                yield part
                continue
            view = memoryview(part)
            for start in range(0, len(part), _SLICE_BYTES):
                yield view[start : start + _SLICE_BYTES]
