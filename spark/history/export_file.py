"""The file of an export: it has a hidden name until it is complete.

A process that is killed leaves what it has written. The next export to the same folder removes it:
whoever writes holds a lock (flock) on its file, which ends with the process, also on another host
that shares the folder. The number of a process alone would not tell, since numbers are used again.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_SUFFIX: Final = ".waylog-part"
_LEFT: Final = re.compile(rf"\..+\.\d+{re.escape(_SUFFIX)}")


class _Named(io.FileIO):
    """A file whose errors name the one that the user has named."""

    def __init__(self, file: Path | int, mode: str, shown: Path) -> None:
        self._shown = shown
        super().__init__(file, mode)

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._shown)) from error


@contextmanager
def export_file(path: Path) -> Iterator[IO[bytes]]:
    """Give what to write into; the file gets its name when the block ends without an error."""
    if path.exists() and not path.is_file():  # such as a pipe
        with io.BufferedWriter(_Named(path, "wb", path)) as stream:
            yield stream
        return
    try:
        _remove_left(path)
        aside, descriptor = _opened_aside(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with io.BufferedWriter(_Named(descriptor, "wb", path)) as stream:
            yield stream
            stream.flush()
            # While it is locked: nobody takes it for one that was left.
            aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _opened_aside(path: Path) -> tuple[Path, int]:
    """Create the hidden file and lock it; return its path and descriptor."""
    aside = path.with_name(f".{path.name}.{os.getpid()}{_SUFFIX}")
    while True:
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with suppress(OSError):  # a file system without locks: there nothing is removed, either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return aside, descriptor
        # Another process has removed it before it was locked.
        os.close(descriptor)


def _remove_left(path: Path) -> None:
    """Remove what killed exports have left in the folder of a file."""
    # As versions before 0.2 named it; that it has the same name tells that it is ours.
    older = re.compile(rf"\.{re.escape(path.name)}\.\d+\.part")
    for each in path.parent.iterdir():
        if _LEFT.fullmatch(each.name) or older.fullmatch(each.name):
            with suppress(OSError):
                _remove_unlocked(each)


def _remove_unlocked(path: Path) -> None:
    """Remove a file unless a process has locked it; raises OSError for what cannot be looked at."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    finally:
        os.close(descriptor)
