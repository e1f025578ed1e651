"""The processes that a test has started, some of which may end while they are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psutil


def is_alive(pid: int) -> bool:
    """Tell whether a process is there, and not only to be waited for."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def children(module: str = "") -> list[int]:
    """Living children of this process, of one Python module if one is named."""
    return list(_children(module))


def _children(module: str) -> Iterator[int]:
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if is_alive(child.pid) and module in " ".join(child.cmdline()):
                yield child.pid
