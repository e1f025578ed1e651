"""Tells probes, and the log in one line, when the broker's folder cannot be written."""

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

#: With less room the next segment, or its indexes, could not be begun.
ROOM_BYTES_MIN: Final = 256 * 1024
#: What could not be written for another reason than room is over when nothing more has failed.
_QUIET_S: Final = 5.0


class StorageWatch:
    """Told of writes that fail, and asked to look now and then."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self._folder = folder
        self._disk = environment.disk
        self._clock = environment.clock
        self._trouble = StorageTrouble(folder, logger)
        self._failed_at = float("-inf")

    @property
    def reason(self) -> str | None:
        """Why the folder cannot be written; None where it can."""
        return self._trouble.reason

    def failed(self, error: BrokerError) -> None:
        """A write was refused; the disk's own error is the cause of `error`."""
        if isinstance(error.__cause__, OSError):
            self._failed_at = self._clock.monotonic()
            self._trouble.failed(error.__cause__)

    def look(self) -> None:
        """Find out what has changed."""
        free = self._disk.free_bytes(self._folder)
        if free is not None and free < ROOM_BYTES_MIN:
            self._trouble.failed(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        elif self._clock.monotonic() - self._failed_at > _QUIET_S:
            self._trouble.succeeded()
