"""Iteration over the batches of a file, for recovery and compaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker_core.environment import File
from broker_core.protocol.records import HEADER_BYTES, BatchHeader, scan_batches

_CHUNK_BYTES: Final = 1024 * 1024
_LENGTH_END: Final = 12  # where a batch's length field ends


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
