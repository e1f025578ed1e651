"""Processes that a test has started, some of which may end while they are examined."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psutil


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def children(module: str = "") -> list[int]:
    """Return the living children of this process, of one Python module if one is named."""
    return list(_children(module))


def _children(module: str) -> Iterator[int]:
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if is_alive(child.pid) and module in " ".join(child.cmdline()):
                yield child.pid
