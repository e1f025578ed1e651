"""Reads a file that grows, waits for one that is missing, and goes on where one is replaced.

A file that is renamed away (log rotation) is read to its end before the new one of its name is
begun. One that becomes shorter than what was read is read from its beginning. Of a named pipe all
writers are read, one after the other or at once.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from pathlib import Path
from typing import Final

from consumers.connect.file.line_splitter import Line, LineSplitter

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 256 * 1024
#: A file that was renamed away may still be written to by who has it open. It is read until nothing
#: has come for this time, or until there is something in the new file. A last line without an end
#: is taken for whole then.
LAST_LINE_S: Final = 5.0


class FollowedFile:
    """One name of a file, read from a position on. All methods are called in one thread."""

    def __init__(self, path: Path, position: int, line_bytes_max: int) -> None:
        """`position` is a number of bytes, behind the end of a line.

        Of lines that are longer than `line_bytes_max` only the position is returned.
        """
        self._path: Final = path
        self._start = position
        self._file: int | None = None
        self._splitter: Final = LineSplitter(line_bytes_max)
        self._read_to = 0  # bytes of the open file that were read
        #: When something was read, or when the file was found to have lost its name.
        self._changed_at = 0.0
        self._has_name = True
        self._is_pipe = False

    @property
    def is_too_long(self) -> bool:
        """Tell whether the line that has no end yet is too long already."""
        return self._splitter.is_too_long

    def read_lines(self) -> list[Line] | None:
        """Return complete lines that have not been returned yet, each with the position behind it.

        None: the file does not exist (any more). An empty list: nothing new. Raises OSError.
        """
        if self._file is None and not self._open():
            return None
        assert self._file is not None
        try:
            data = os.read(self._file, _READ_BYTES)
        except BlockingIOError:  # a pipe whose writer is silent
            return []
        if not data:
            return self._at_end()
        position = self._read_to - self._splitter.rest_bytes
        self._read_to += len(data)
        self._changed_at = time.monotonic()
        return _with_positions(self._splitter.feed(data), position)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> bool:
        try:
            # A pipe without a writer must not hold up its task.
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        status = os.fstat(self._file)
        size = status.st_size
        self._is_pipe = stat.S_ISFIFO(status.st_mode)
        if self._is_pipe:
            self._start = 0
        elif size < self._start:
            logger.warning(
                "%s has %d bytes, and %d had been read: it is another file now, or was cut; it is "
                "read from its beginning",
                self._path,
                size,
                self._start,
            )
            self._start = 0
        if self._start:
            os.lseek(self._file, self._start, os.SEEK_SET)
        self._read_to, self._start = self._start, 0
        self._splitter.clear()
        self._has_name = True
        return True

    def _at_end(self) -> list[Line] | None:
        """Find out why there is nothing more to read."""
        assert self._file is not None
        if self._is_pipe:
            return []
        status = os.fstat(self._file)
        if status.st_size < self._read_to:
            logger.info("%s has become shorter: it is read from its beginning", self._path)
            os.lseek(self._file, 0, os.SEEK_SET)
            self._read_to = 0
            self._splitter.clear()
            return []
        try:
            named: os.stat_result | None = self._path.stat()
        except FileNotFoundError:
            named = None
        if named is not None and os.path.samestat(named, status):
            self._has_name = True
            return []
        if self._has_name:
            self._has_name = False
            self._changed_at = time.monotonic()
        rest_bytes = self._splitter.rest_bytes
        is_done = not rest_bytes and named is not None and named.st_size > 0
        if not is_done and time.monotonic() - self._changed_at < LAST_LINE_S:
            return []
        if os.fstat(self._file).st_size > self._read_to:
            return []  # something came after all
        if named is None and not rest_bytes:
            return None
        position = self._read_to - rest_bytes
        last = self._splitter.take_rest()
        if named is not None:
            logger.info("%s has been replaced: the new file is read from its beginning", self._path)
            self.close()
        return [] if last is None else _with_positions([last], position)


def _with_positions(lines: list[Line], position: int) -> list[Line]:
    placed: list[Line] = []
    for line, size in lines:
        position += size
        placed.append((line, position))
    return placed
