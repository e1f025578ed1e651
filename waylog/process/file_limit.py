"""The limit of a process for open files."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Final

_OWN_FILES: Final = 1000


def raise_file_limit() -> int:
    """Raise the limit for open files to the most that the system allows, and return it.

    Each connection and each log segment takes a file. The usual limit of 1,024 is too low for a
    server, and the system allows far more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def room_for_connections() -> int:
    """Return how many of its files a process may use for clients' connections.

    The others are its own: logs, databases, connections to other parts, and connections that are
    being refused.
    """
    files = _files()
    return max(files - _OWN_FILES, files // 2)


def part_of_files(part: float, most: int) -> int:
    """Return a part of the files that a process may open, `most` at most."""
    return min(int(part * _files()), most)


def files_left() -> int:
    """Return how many more files the process may open."""
    try:
        # One of them is the folder itself, while it is read.
        return _files() + 1 - sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0  # there is none left to read the folder with


def _files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
