"""Reports that the log directory cannot be written: to health probes, and once to the log."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Final

from broker_core.environment import Environment
from broker_core.errors import BrokerError
from waylog.process.storage_trouble import StorageTrouble

logger = logging.getLogger(__name__)

#: Free bytes below which the next segment, or its indexes, could not be created.
ROOM_BYTES_MIN: Final = 256 * 1024
#: Seconds without a further failure after which an error other than a full disk is over.
_QUIET_S: Final = 5.0
#: Seconds after which a flush that has not returned is told. A gigabyte on a slow disk takes ten.
_FLUSH_SLOW_S: Final = 10.0


class StorageWatch:
    """Keeps the state of the log directory: told of failed writes, and called periodically."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self._folder = folder
        self._disk = environment.disk
        self._clock = environment.clock
        self._trouble = StorageTrouble(folder, logger)
        self._failed_at = float("-inf")

    @property
    def reason(self) -> str | None:
        """The reason why the log directory cannot be written, or None if it can."""
        return self._trouble.reason

    def failed(self, error: BrokerError) -> None:
        """Take note of a failed write; `error.__cause__` is the operating system's error."""
        if isinstance(error.__cause__, OSError):
            self._failed_at = self._clock.monotonic()
            self._trouble.failed(error.__cause__)

    def look(self, flush_s: float = 0.0, standstill: str | None = None) -> None:
        """Check the free space, and whether the last failure is over.

        `flush_s`: seconds that the flush under way has taken so far. `standstill`: what else makes
        no progress.
        """
        free = self._disk.free_bytes(self._folder)
        if flush_s > _FLUSH_SLOW_S:
            told = f"a flush takes more than {_FLUSH_SLOW_S:.0f} s"
            self._trouble.failed(OSError(errno.ETIMEDOUT, told))
        elif standstill is not None:
            self._trouble.failed(OSError(errno.ETIMEDOUT, standstill))
        elif free is not None and free < ROOM_BYTES_MIN:
            self._trouble.failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        elif self._clock.monotonic() - self._failed_at > _QUIET_S:
            self._trouble.succeeded()
