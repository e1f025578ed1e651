"""The environment of a broker: clock, disk, threads and randomness.

`broker_core` uses time, files, threads, randomness and listening sockets only through an
`Environment`, and other sockets only through the event loop that it runs on. A simulation can
replace them by a virtual clock, a disk that loses, tears and refuses writes, and a seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import queue
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from waylog.config import ConfigError, Endpoint
from waylog.folders import sync_folder
from waylog.network.acceptor import Acceptor
from waylog.process.background import fail

Buffer = bytes | bytearray | memoryview

logger = logging.getLogger(__name__)

_LOCK: Final = ".lock"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Clock(Protocol):
    """Wall time for records and retention, monotonic time for durations."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump in both directions."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""


class File(Protocol):
    """An open file. It is closed with its last reference.

    A thread that holds a reference can therefore continue to use the file after another thread has
    dropped its own. It never reads or writes a different file that got the same descriptor number.
    """

    def pread(self, size: int, position: int) -> bytes:
        """Return at most `size` bytes at `position`; fewer at the end of the file."""

    def pwrite(self, data: Buffer, position: int) -> int:
        """Write at `position`; return how many bytes were written, which can be fewer."""

    def fdatasync(self) -> None:
        """Return when everything written is on disk."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    def size(self) -> int:
        """Return the length in bytes."""

    def close(self) -> None:
        """Close now; closing twice does nothing."""


class Lock(Protocol):
    """A lock that only one process can hold."""

    def release(self) -> None:
        """Release the lock."""


class Disk(Protocol):
    """The file system. All methods raise OSError."""

    def lock(self, directory: Path) -> Lock:
        """Lock a directory against other brokers; raises ConfigError if one has locked it."""

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        """Open an existing file, or with `create` also a new one, for writing too."""

    def read(self, path: Path) -> bytes:
        """Return the whole content of a small file."""

    def write(self, path: Path, parts: Sequence[Buffer]) -> None:
        """Replace a small file; after a crash its content is undefined."""

    def replace(self, path: Path, data: Buffer) -> None:
        """Replace a small file durably; after a crash it holds the old or the new content."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or directory; a file replaces an existing target."""

    def remove(self, path: Path) -> None:
        """Delete a file; do nothing if it does not exist."""

    def size(self, path: Path) -> int | None:
        """Return the length in bytes, None if there is no such file."""

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, in no particular order."""

    def directories(self, directory: Path) -> list[str]:
        """Return the names of subdirectories."""

    def make_directory(self, directory: Path) -> None:
        """Create a directory and its parents; do nothing if it exists."""

    def remove_directory(self, directory: Path) -> None:
        """Delete an empty directory."""

    def free_bytes(self, directory: Path) -> int | None:
        """Return the free space in bytes; None if it is not known."""

    def fsync_directory(self, directory: Path) -> None:
        """Make creations, renames and removals inside a directory durable."""


class Worker(Protocol):
    """A thread that runs tasks one after the other, beside the event loop."""

    def submit(self, work: Callable[[], None]) -> None:
        """Run a task soon; the task must not raise."""

    def close(self) -> None:
        """Return when all submitted tasks are done."""


def call_on_loop(
    loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object
) -> None:
    """Call a function on the event loop's thread, from a Worker; the loop may have been closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


class Threads(Protocol):
    """Creates threads for work that would block the event loop."""

    def worker(self, name: str) -> Worker:
        """Return a single thread, the option with least overhead; call it on the event loop."""

    def executor(self, count: int, name: str) -> Executor:
        """Return several threads whose tasks have results."""


class ConnectionAcceptor(Protocol):
    """A listener that makes a transport and a protocol of each connection."""

    def bind(self, endpoint: Endpoint, *, reuse_port: bool) -> None:
        """Bind without accepting; raises OSError."""

    def listen(self) -> None:
        """Accept connections from now on; raises OSError."""

    @property
    def address(self) -> Endpoint:
        """The first address that is bound, with the port that the system may have chosen."""

    async def close(self) -> None:
        """Accept no more; the protocols of all connections that it has accepted have been told."""


#: Makes an acceptor that calls the function for the protocol of each connection.
MakeAcceptor = Callable[[Callable[[], asyncio.BaseProtocol]], ConnectionAcceptor]
#: Records that consumers have to take are the page cache's own pages, not copies. With less in the
#: kernel a response would go in many steps, which cost half as much processor time again.
_make_acceptor: Final[MakeAcceptor] = partial(Acceptor, unsent_bytes_max=None)


class SystemClock:
    """The clocks of the operating system."""

    def now_ms(self) -> int:
        """See Clock."""
        return time.time_ns() // 1_000_000

    # The function itself: it is called several times for each request.
    monotonic = staticmethod(time.monotonic)


class SystemFile:
    """A file descriptor of the operating system."""

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
        """Send from the page cache to a socket without copying; return the bytes sent."""
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
    """A range of a file that has not been read: the kernel can send it directly to a socket."""

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: SystemFile, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """Return `size` bytes from `start` on, or all that follow.

        Raises OSError if the file ends before them.
        """
        wanted = self._size - start if size is None else size
        data = self._file.pread(wanted, self._position + start)
        if len(data) != wanted:
            raise OSError(f"{len(data)} of {wanted} bytes are there")
        return data

    def send(self, socket: int, start: int) -> int:
        """Send as many bytes from `start` on as the socket takes; return their number.

        Raises BlockingIOError if it takes none now, OSError if the file ends before them.
        """
        sent = self._file.send(socket, self._position + start, self._size - start)
        if not sent:
            raise OSError("the file has become shorter")
        return sent


class DirectoryLock:
    """Locks a log directory against a second broker, until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise ConfigError(f"{directory}: another broker uses this directory") from error

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


class SystemDisk:
    """The file system of the operating system."""

    def lock(self, directory: Path) -> DirectoryLock:
        """See Disk."""
        return DirectoryLock(directory)

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
        # Readable by the owner only: some of these files contain data derived from passwords.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            # What a full disk has taken of it would keep others from the room.
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
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

    def directories(self, directory: Path) -> list[str]:
        """See Disk."""
        return [entry.name for entry in directory.iterdir() if entry.is_dir()]

    def make_directory(self, directory: Path) -> None:
        """See Disk."""
        directory.mkdir(parents=True, exist_ok=True)

    def remove_directory(self, directory: Path) -> None:
        """See Disk."""
        directory.rmdir()

    def free_bytes(self, directory: Path) -> int | None:
        """See Disk."""
        system = os.statvfs(directory)
        return system.f_bavail * system.f_frsize

    def fsync_directory(self, directory: Path) -> None:
        """See Disk."""
        sync_folder(directory)


class ThreadWorker:
    """A thread with a queue of low overhead.

    A task that raises has failed its owner, which waits for it: the process ends (background.fail).
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        """Failures are reported to `loop`."""
        self._loop = loop
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A disk that hangs must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except BaseException as error:
                # The tasks that follow belong to other callers.
                call_on_loop(self._loop, fail, self._loop, f"thread {self._thread.name}", error)

    def submit(self, work: Callable[[], None]) -> None:
        """See Worker."""
        self._queue.put(work)

    def close(self) -> None:
        """See Worker."""
        self._queue.put(None)
        self._thread.join()


class SystemThreads:
    """Threads of the operating system."""

    def worker(self, name: str) -> ThreadWorker:
        """See Threads."""
        return ThreadWorker(name, asyncio.get_running_loop())

    def executor(self, count: int, name: str) -> ThreadPoolExecutor:
        """See Threads."""
        return ThreadPoolExecutor(count, thread_name_prefix=name)


@dataclass(frozen=True, slots=True)
class Environment:
    """The external dependencies of a broker."""

    clock: Clock
    disk: Disk
    threads: Threads = field(default_factory=SystemThreads)
    randomness: random.Random = field(default_factory=random.SystemRandom)
    #: Identifies a start of the machine; empty if the system does not provide it.
    boot_id: str = ""
    acceptor: MakeAcceptor = _make_acceptor

    @classmethod
    def real(cls) -> Environment:
        """Return the environment of the operating system, with its boot id."""
        boot_id = _BOOT_ID.read_text("ascii").strip() if _BOOT_ID.exists() else ""
        return cls(SystemClock(), SystemDisk(), boot_id=boot_id)

    def new_uuid(self) -> uuid.UUID:
        """Return a new random UUID."""
        return uuid.UUID(int=self.randomness.getrandbits(128), version=4)
