"""Sorts recorded fixes by time, however many there are."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO, Final

import msgspec

from waylog.replay.readers.recorded import RecordedFix

_BLOCK_FIXES: Final = 1000


class Timeline:
    """Sorts fixes by time, on disk if they are more than `chunk_fixes`.

    Files hold one device after another, or months out of order; but devices are to send side by
    side, each in its own order. With `together` all devices begin at once, even those that were
    recorded years apart. Fixes with the same time stay in their order. It can be iterated
    repeatedly; close it (or leave its `with`) to remove its temporary file.
    """

    def __init__(
        self,
        fixes: Iterable[RecordedFix],
        *,
        together: bool = False,
        chunk_fixes: int = 100_000,
    ) -> None:
        self._together = together
        self._begin: dict[str | None, int] = {}  # the time of each device's first fix as read
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[RecordedFix])
        self._newest: list[RecordedFix] = []
        self._spilled: IO[bytes] | None = None
        self._runs: list[tuple[int, int]] = []  # start and end of each sorted run in the file
        self.count = 0
        iterator = iter(fixes)
        while chunk := list(islice(iterator, chunk_fixes)):
            if self._newest:
                self._spill(self._newest)
            if together:
                for fix in chunk:
                    self._begin.setdefault(fix.device, fix.time)
            chunk.sort(key=self._key)
            self._newest = chunk
            self.count += len(chunk)

    def __enter__(self) -> Timeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[RecordedFix]:
        # The runs in the file were read first, and heapq.merge is stable over its inputs.
        return heapq.merge(*(self._run(run) for run in self._runs), self._newest, key=self._key)

    def close(self) -> None:
        """Remove the temporary file."""
        if self._spilled is not None:
            self._spilled.close()

    def _spill(self, chunk: list[RecordedFix]) -> None:
        if self._spilled is None:
            self._spilled = tempfile.TemporaryFile(  # noqa: SIM115 - close() does
                prefix="waylog-replay-"
            )
        start = self._spilled.tell()
        for first in range(0, len(chunk), _BLOCK_FIXES):
            block = self._encoder.encode(chunk[first : first + _BLOCK_FIXES])
            self._spilled.write(len(block).to_bytes(4, "big"))
            self._spilled.write(block)
        self._runs.append((start, self._spilled.tell()))

    def _run(self, run: tuple[int, int]) -> Iterator[RecordedFix]:
        assert self._spilled is not None
        position, end = run
        while position < end:
            self._spilled.seek(position)
            size = int.from_bytes(self._spilled.read(4), "big")
            block = self._spilled.read(size)
            position += 4 + size
            yield from self._decoder.decode(block)

    def _key(self, fix: RecordedFix) -> int:
        # Subtracting a constant keeps a device's order; its first time makes all begin at 0.
        return fix.time - self._begin[fix.device] if self._together else fix.time
