"""Token buckets shared by all gateway workers of a machine, in a small memory-mapped file.

The file is a table of sets of slots. A set is locked (fcntl) while one of its buckets is changed,
and the lock of a worker that dies is released. There is no leader, so any worker may be restarted
at any time. A bucket that has not been used for the time it takes to fill is equivalent to a new
one, so its slot may be reused.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

_SLOT: Final = struct.Struct("<16sdd")  # key, tokens, time of the last change (s)
_SLOTS_A_SET: Final = 8
_SET_BYTES: Final = _SLOTS_A_SET * _SLOT.size
_SETS: Final = 4096
_SIZE: Final = _SETS * _SET_BYTES
_NOBODY: Final = bytes(16)
_SECONDS_A_MINUTE: Final = 60


class TokenBuckets:
    """Token buckets by name. Without a file they belong to this process alone.

    `clock` counts seconds and must be the same in all processes that share the file, as the
    system's monotonic clock is. With a `secret` (at most 64 bytes) nobody can compute which names
    share a set.
    """

    def __init__(
        self,
        path: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        secret: bytes = b"",
    ) -> None:
        """Raises OSError."""
        self._clock = clock
        self._secret = secret
        self._file: int | None = None
        self._memory: mmap.mmap | bytearray = bytearray(_SIZE)
        if path is not None:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.ftruncate(self._file, _SIZE)  # zeros are free slots
            self._memory = mmap.mmap(self._file, _SIZE)

    def close(self) -> None:
        """Close the file."""
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def take(
        self, name: str, per_minute: float, count: int, capacity: float | None = None
    ) -> float:
        """Take tokens from a bucket that holds a minute's worth, or `capacity`; return 0.0.

        If there are too few, take none and return the seconds until there may be enough. More than
        a bucket holds can only be taken from a full one, which then goes negative. A negative count
        gives tokens back.
        """
        holds = float(per_minute if capacity is None else capacity)
        key = blake2b(name.encode(), digest_size=16, key=self._secret).digest()
        start = int.from_bytes(key[:4], "little") % _SETS * _SET_BYTES
        rate = per_minute / _SECONDS_A_MINUTE
        wanted = min(count, holds)
        with self._locked(start):
            now = self._clock()
            at, tokens, filled = self._find(start, key, now)
            # After a reboot the monotonic clock is behind the time in the file.
            elapsed = max(0.0, now - filled) if filled else float("inf")
            tokens = min(holds, tokens + elapsed * rate)
            missing = wanted - tokens
            if missing <= 0:
                tokens -= count
            _SLOT.pack_into(self._memory, at, key, tokens, now)
        return max(0.0, missing / rate)

    def _find(self, start: int, key: bytes, now: float) -> tuple[int, float, float]:
        """Return a bucket's slot, its tokens, and the time of the last change (0: a new bucket)."""
        oldest, oldest_filled = start, float("inf")
        for at in range(start, start + _SET_BYTES, _SLOT.size):
            owner, tokens, filled = _SLOT.unpack_from(self._memory, at)
            if owner == key:
                return at, tokens, filled
            if owner == _NOBODY or filled > now:
                filled = 0.0
            if filled < oldest_filled:
                oldest, oldest_filled = at, filled
        return oldest, 0.0, 0.0

    @contextmanager
    def _locked(self, start: int) -> Iterator[None]:
        if self._file is None:
            yield
            return
        fcntl.lockf(self._file, fcntl.LOCK_EX, _SET_BYTES, start)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, _SET_BYTES, start)
