"""Clock and disk as the log sees them.

`broker_core.log` touches time and files only through an `Environment`, so that a simulation can put
a virtual clock and a disk that loses, tears and refuses writes in their place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Wall time for records and retention, monotonic time for durations."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump in both directions."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""


class File(Protocol):
    """An open file. It is closed with its last reference.

    A thread that holds a reference can therefore go on using it after another thread has let go of
    it: a number that the system gave to a different file meanwhile is never read or written.
    """

    def pread(self, size: int, position: int) -> bytes:
        """At most `size` bytes at `position`; fewer at the end of the file."""

    def pwrite(self, data: Buffer, position: int) -> int:
        """Write at `position`; answers how many bytes were taken, which can be fewer."""

    def fdatasync(self) -> None:
        """Return when everything written is on the medium."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """Length in bytes."""

    def close(self) -> None:
        """Close now; closing twice does nothing."""


class Disk(Protocol):
    """The file system. All methods raise OSError."""

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        """Open a file that exists, or with `create` one that need not; `create` can write."""

    def read(self, path: Path) -> bytes:
        """The whole content of a small file."""

    def write(self, path: Path, parts: Sequence[Buffer]) -> None:
        """Replace a small file; after a crash it may hold anything."""

    def replace(self, path: Path, data: Buffer) -> None:
        """Replace a small file durably; after a crash it holds the old or the new content."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file a new name, taking the place of what has it."""

    def remove(self, path: Path) -> None:
        """Delete a file; one that does not exist is no error."""

    def size(self, path: Path) -> int | None:
        """Length in bytes, None if there is no such file."""

    def names(self, directory: Path) -> list[str]:
        """Names in a directory, in no order."""

    def make_directory(self, directory: Path) -> None:
        """Create a directory and its parents; one that exists is no error."""

    def remove_directory(self, directory: Path) -> None:
        """Delete an empty directory."""

    def fsync_directory(self, directory: Path) -> None:
        """Make creations, renames and removals inside a directory durable."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the log needs from outside."""

    clock: Clock
    disk: Disk

    @classmethod
    def real(cls) -> Environment:
        """The system's clock and file system."""
        return cls(SystemClock(), SystemDisk())


class SystemClock:
    """The system's clocks."""

    def now_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """See Clock."""
        return time.monotonic()


class SystemFile:
    """A file descriptor of the system."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pread(self, size: int, position: int) -> bytes:
        """See File."""
        return os.pread(self._descriptor, size, position)

    def pwrite(self, data: Buffer, position: int) -> int:
        """See File."""
        return os.pwrite(self._descriptor, data, position)

    def send(self, socket: int, position: int, size: int) -> int:
        """From the page cache to a socket, without a copy of ours; returns how many bytes went."""
        return os.sendfile(socket, self._descriptor, position, size)

    def fdatasync(self) -> None:
        """See File."""
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        """See File."""
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        """See File."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """See File."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class FileSlice:
    """Bytes of a file that nobody has read yet: the system can send them without that."""

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: SystemFile, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, start: int = 0) -> bytes:
        """The bytes from `start` on; raises OSError where the file ends before them."""
        wanted = self._size - start
        data = self._file.pread(wanted, self._position + start)
        if len(data) != wanted:
            raise OSError(f"{len(data)} of {wanted} bytes are there")
        return data

    def send(self, socket: int, start: int) -> int:
        """Send what the socket takes of the bytes from `start` on; returns how many those were.

        Raises BlockingIOError where it takes none now, OSError where the file ends before them.
        """
        sent = self._file.send(socket, self._position + start, self._size - start)
        if not sent:
            raise OSError("the file has become shorter")
        return sent


class SystemDisk:
    """The system's file system."""

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        """See Disk."""
        flags = os.O_RDWR if create or writable else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        return SystemFile(os.open(path, flags | os.O_CLOEXEC, 0o640))

    def read(self, path: Path) -> bytes:
        """See Disk."""
        return path.read_bytes()

    def write(self, path: Path, parts: Sequence[Buffer]) -> None:
        """See Disk."""
        with path.open("wb") as file:
            file.writelines(parts)

    def replace(self, path: Path, data: Buffer) -> None:
        """See Disk."""
        temporary = path.with_name(path.name + ".tmp")
        # The owner's alone: some of these files hold what belongs to a password.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        self.fsync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """See Disk."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """See Disk."""
        path.unlink(missing_ok=True)

    def size(self, path: Path) -> int | None:
        """See Disk."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def names(self, directory: Path) -> list[str]:
        """See Disk."""
        return [entry.name for entry in directory.iterdir()]

    def make_directory(self, directory: Path) -> None:
        """See Disk."""
        directory.mkdir(parents=True, exist_ok=True)

    def remove_directory(self, directory: Path) -> None:
        """See Disk."""
        directory.rmdir()

    def fsync_directory(self, directory: Path) -> None:
        """See Disk."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
