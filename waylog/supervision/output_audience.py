"""Tells whether other accounts of the machine can read what a process prints."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH


def is_readable_by_others(descriptor: int, journal: str | None = None) -> bool:
    """Return whether an open file is one that others read: a log file, or systemd's journal.

    `journal` is $JOURNAL_STREAM (systemd.exec(5)). A terminal belongs to its user, and the reader
    of a pipe was started together with us.
    """
    status = os.fstat(descriptor)
    if journal is not None and journal == f"{status.st_dev}:{status.st_ino}":
        return True
    if not stat.S_ISREG(status.st_mode) or not status.st_mode & _OTHERS_READ:
        return False
    try:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        return all(folder.stat().st_mode & _OTHERS_ENTER for folder in path.parents)
    except OSError:
        return True
