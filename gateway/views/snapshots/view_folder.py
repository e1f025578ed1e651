"""Folders for data that outlives a process, one for each running process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

_FOLDERS_MAX: Final = 64


class ViewFolder:
    """A subfolder of a parent that no other process uses."""

    def __init__(self, parent: Path) -> None:
        """Raises OSError."""
        for number in range(1, _FOLDERS_MAX + 1):
            self.path = parent / str(number)
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
            else:
                return
        raise OSError(f"{parent} is used by {_FOLDERS_MAX} processes already")

    def close(self) -> None:
        """Release the folder for another process."""
        os.close(self._lock)
