"""A folder that cannot be written: logged once when it begins and once when it is over."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Final, TypeGuard

_DISK_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class StorageTrouble:
    """The state of writing into one folder; logs each change in one line."""

    def __init__(self, folder: Path, logger: logging.Logger) -> None:
        self._folder = folder
        self._logger = logger
        #: The trouble in words for people; None if there is none.
        self.reason: str | None = None
        self._cause: int | None = None

    def failed(self, error: OSError) -> None:
        """Note a write that failed."""
        if self.reason is not None and self._cause == error.errno:
            return
        self._cause = error.errno
        self.reason = describe(self._folder, error)
        self._logger.error("%s", self.reason)

    def succeeded(self) -> None:
        """Note a write that succeeded."""
        if self.reason is not None:
            self.reason = self._cause = None
            self._logger.warning(
                "%s can be written again, %s are free", self._folder, free_space(self._folder)
            )


def is_disk_full(error: BaseException | None) -> TypeGuard[OSError]:
    """Tell whether a write has failed for lack of space."""
    return isinstance(error, OSError) and error.errno in _DISK_IS_FULL


def describe(folder: Path, error: OSError) -> str:
    """Describe why a folder cannot be written, with the free space."""
    if is_disk_full(error):
        return f"no room left in {folder}: {free_space(folder)} free ({error.strerror})"
    return f"{folder} cannot be written: {error.strerror or error}"


def room_trouble(folder: Path, bytes_min: int) -> str | None:
    """Return what is wrong if a folder has fewer free bytes, or cannot be asked; else None."""
    try:
        system = os.statvfs(folder)
    except OSError as error:
        return describe(folder, error)
    if system.f_bavail * system.f_frsize >= bytes_min:
        return None
    return describe(folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def free_space(folder: Path) -> str:
    """Return the space on a folder's file system that an ordinary user may use, for people."""
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
