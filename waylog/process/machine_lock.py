"""A lock for work that one of several processes of a machine does."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class MachineLock:
    """A lock that one process of a machine holds until it ends."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)

    def held(self) -> bool:
        """Try to get the lock; tell whether this process holds it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Release the lock for another process."""
        os.close(self._file)
