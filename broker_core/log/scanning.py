"""Iteration over the batches of a file, up to damage and behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker_core.environment import File
from broker_core.log.offset_index import OffsetIndex
from broker_core.protocol.batch_header import HEADER_BYTES, BatchHeader
from broker_core.protocol.stored_batches import scan_batches

_CHUNK_BYTES: Final = 1024 * 1024
_LENGTH_END: Final = 12  # where a batch's length field ends
_MAGIC_AT: Final = 16  # position of that byte in a batch header
_SEARCH_BYTES_MAX: Final = 1024 * 1024  # behind a damaged length, where no index helps


class Scan:
    """Iterates over (header, position in the file, data that the header's own position refers to).

    Begins at `start`, where a batch must begin, and stops at the end of the file or at the first
    incomplete or damaged batch; `problem` then has the reason, and is None at the end of the file.
    """

    def __init__(self, file: File, size: int, *, check_crc: bool, start: int = 0) -> None:
        self._file = file
        self._size = size
        self._start = start
        self._check_crc = check_crc
        self.problem: str | None = None

    def __iter__(self) -> Iterator[tuple[BatchHeader, int, bytes]]:
        position, wanted = self._start, _CHUNK_BYTES
        while position < self._size:
            data = self._file.pread(min(wanted, self._size - position), position)
            headers, taken, problem = scan_batches(data, check_crc=self._check_crc)
            for header in headers:
                yield header, position + header.position, data
            position += taken
            wanted = _CHUNK_BYTES
            if problem is None:
                continue
            length = _length(data[taken:])
            if length <= len(data) - taken or length > self._size - position:
                self.problem = problem
                return
            # The batch is only cut by the end of the chunk: read again from where it begins.
            wanted = max(wanted, length)


def _length(batch: bytes) -> int:
    """Return how many bytes are needed to check the batch that begins here."""
    if len(batch) < _LENGTH_END:
        return HEADER_BYTES
    return int.from_bytes(batch[8:_LENGTH_END], "big", signed=True) + _LENGTH_END


def find_sound(
    file: File, size: int, index: OffsetIndex, base_offset: int, offsets: range
) -> tuple[int, int] | None:
    """Return (base offset, position) of the first sound batch that begins within some offsets.

    Damage before it is passed over. `size`, `index` and `base_offset` are those of the segment in
    the file. None if there is no such batch.
    """
    position = index.lookup(max(0, offsets.start - base_offset))
    while position < size:
        scan = Scan(file, size, check_crc=True, start=position)
        for header, at, _ in scan:
            if header.base_offset in offsets:
                return header.base_offset, at
            position = at + header.size
        if scan.problem is None:
            break
        position = _behind_damage(file, size, index, base_offset, position)
    return None


def _behind_damage(
    file: File, size: int, index: OffsetIndex, base_offset: int, position: int
) -> int:
    """Return where a batch may begin behind the damaged one that begins here."""
    length = _length(file.pread(_LENGTH_END, position))
    if length >= HEADER_BYTES and position + length < size:
        for _ in Scan(file, size, check_crc=True, start=position + length):
            return position + length
    # Its length is damaged, or the next one too: look for what begins as a batch.
    behind = index.position_behind(position)
    until = size if behind is None else behind
    data = file.pread(min(until - position, _SEARCH_BYTES_MAX), position)
    upper = base_offset.to_bytes(8, "big")[:4]
    at = data.find(upper, 1)
    while at >= 0:
        if data[at + _MAGIC_AT : at + _MAGIC_AT + 1] == b"\x02":
            for _ in Scan(file, size, check_crc=True, start=position + at):
                return position + at
        at = data.find(upper, at + 1)
    return until
