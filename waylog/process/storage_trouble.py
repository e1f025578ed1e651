"""A folder that cannot be written: said once when it begins and once when it is over."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Final

#: Error numbers of writes for which there is no room.
DISK_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class StorageTrouble:
    """What is known of writing into one folder; says each change in one line of the log."""

    def __init__(self, folder: Path, logger: logging.Logger) -> None:
        self._folder = folder
        self._logger = logger
        #: What is wrong, for people; None where nothing is.
        self.reason: str | None = None
        self._cause: int | None = None

    def failed(self, error: OSError) -> None:
        """Something could not be written."""
        if self.reason is not None and self._cause == error.errno:
            return
        self._cause = error.errno
        self.reason = describe(self._folder, error)
        self._logger.error("%s", self.reason)

    def succeeded(self) -> None:
        """Something was written."""
        if self.reason is not None:
            self.reason = self._cause = None
            self._logger.warning(
                "%s can be written again, %s are free", self._folder, free_space(self._folder)
            )


def describe(folder: Path, error: OSError) -> str:
    """What is wrong with a folder, with the room that there is."""
    if error.errno in DISK_IS_FULL:
        return f"no room left in {folder}: {free_space(folder)} free ({error.strerror})"
    return f"{folder} cannot be written: {error.strerror or error}"


def free_space(folder: Path) -> str:
    """The room that an ordinary user has at a folder's file system, for people."""
    try:
        system = os.statvfs(folder)
    except OSError as error:
        return f"an unknown amount ({error.strerror})"
    size = float(system.f_bavail * system.f_frsize)
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.0f} {_UNITS[-1]}"
