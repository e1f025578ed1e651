"""Token buckets that all gateway workers of a machine share: a small file in their memory.

The file is a table of sets of slots; a set is locked (fcntl) while a bucket in it is changed, and a
worker that dies lets go of its lock. There is no relay and no first worker: any of them may be
restarted at any time. A bucket that nobody has used for as long as it takes to fill is as good as
none, so that its slot may be taken.
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

_SLOT: Final = struct.Struct("<16sdd")  # key, tokens, when that was (s)
_SLOTS_A_SET: Final = 8
_SET_BYTES: Final = _SLOTS_A_SET * _SLOT.size
_SETS: Final = 4096
_SIZE: Final = _SETS * _SET_BYTES
_NOBODY: Final = bytes(16)
_SECONDS_A_MINUTE: Final = 60


class TokenBuckets:
    """Buckets by name. Without a file they are those of this process alone.

    `clock` counts seconds and is the same in all processes that share the file, as the system's
    monotonic clock is. With a `secret` (at most 64 bytes) nobody else knows which names share a
    set.
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
            os.ftruncate(self._file, _SIZE)  # zeros are buckets of nobody
            self._memory = mmap.mmap(self._file, _SIZE)

    def close(self) -> None:
        """Let go of the file."""
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def take(
        self, name: str, per_minute: float, count: int, capacity: float | None = None
    ) -> float:
        """Take tokens from a bucket that holds a minute's worth, unless `capacity` says otherwise;
        0.0 when they have been taken.

        Otherwise none has been, and the answer is after how many seconds there may be enough. More
        than it holds is taken from a full bucket alone, which then owes the rest. A negative count
        is given back.
        """
        holds = float(per_minute if capacity is None else capacity)
        key = blake2b(name.encode(), digest_size=16, key=self._secret).digest()
        start = int.from_bytes(key[:4], "little") % _SETS * _SET_BYTES
        rate = per_minute / _SECONDS_A_MINUTE
        wanted = min(count, holds)
        with self._locked(start):
            now = self._clock()
            at, tokens, filled = self._find(start, key, now)
            # The clock of a machine that was started again is behind what the file says.
            elapsed = max(0.0, now - filled) if filled else float("inf")
            tokens = min(holds, tokens + elapsed * rate)
            missing = wanted - tokens
            if missing <= 0:
                tokens -= count
            _SLOT.pack_into(self._memory, at, key, tokens, now)
        return max(0.0, missing / rate)

    def _find(self, start: int, key: bytes, now: float) -> tuple[int, float, float]:
        """The slot of a bucket, how many tokens it has, and since when (0: new)."""
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
