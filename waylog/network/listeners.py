"""Finds the process that listens on a port, if this account may see it (Linux's /proc)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENING: Final = "0A"


def listener_of(port: int) -> str | None:
    """Return a process that listens on the TCP port, `name (process 123)`; None if unknown."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not sockets:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        if sockets.isdisjoint(_open_files(process)):
            continue
        with contextlib.suppress(OSError):  # it has ended
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            name = (process / "comm").read_text(encoding="utf-8").strip()
            if "waylog.cli" in words:
                name = "waylog " + words[words.index("waylog.cli") + 1]
            return f"{name} (process {process.name})"
    return None


def _open_files(process: Path) -> Iterator[str]:
    """Yield the open files of a process; none if it has ended or belongs to another account."""
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return
    for each in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile; the others are still open
            yield str(each.readlink())


def _inodes(port: int) -> set[str]:
    found: set[str] = set()
    for table in _TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found
