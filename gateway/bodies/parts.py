"""Bodies of requests and responses kept in parts, because joining several MiB takes long."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

#: The size of one write.
_SLICE_BYTES: Final = 64 * 1024


class Body:
    """Bytes in the parts in which they were received or made."""

    __slots__ = ("_parts", "_size")

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)
        self._size = sum(map(len, parts))

    def append(self, part: bytes) -> None:
        """Add the part received next."""
        self._parts.append(part)
        self._size += len(part)

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self._size

    def __bytes__(self) -> bytes:
        """Return all bytes joined; only for small bodies, or in a thread."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def parts(self) -> Sequence[bytes]:
        """The parts, of any size."""
        return self._parts

    def slices(self) -> Iterator[bytes | memoryview]:
        """Yield all bytes in parts of at most 64 KiB."""
        for part in self._parts:
            if len(part) <= _SLICE_BYTES:
                yield part
                continue
            view = memoryview(part)
            for start in range(0, len(part), _SLICE_BYTES):
                yield view[start : start + _SLICE_BYTES]
