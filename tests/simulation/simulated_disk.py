"""A file system in memory that loses what was not synced when the power is cut.

It can also be full, fail to sync, and corrupt bits.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path

from broker_core.environment import Buffer, File, Lock


class PowerCut(SystemExit):
    """The machine stops within a step of its disk; no code of its process may run after it."""


class _Content:
    """The bytes of a file as written, and those that a power cut leaves for certain."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytearray(data)
        # Changes since the last sync: (position, bytes), or (new length, None).
        self.unsynced: list[tuple[int, bytes | None]] = []

    def write(self, data: Buffer, position: int) -> None:
        self.unsynced.append((position, bytes(data)))
        _put(self.data, bytes(data), position)

    def truncate(self, size: int) -> None:
        self.unsynced.append((size, None))
        del self.data[size:]

    def sync(self) -> None:
        for position, piece in self.unsynced:
            if piece is None:
                del self.durable[position:]
            else:
                _put(self.durable, piece, position)
        self.unsynced.clear()

    def power_cut(self, randomness: random.Random, *, rots: bool = False) -> None:
        """Keep some of the changes since the last sync, the last of them perhaps in part."""
        data = bytearray(self.durable)
        kept = randomness.randint(0, len(self.unsynced))
        for number, (position, piece) in enumerate(self.unsynced[:kept]):
            if piece is None:
                del data[position:]
            elif number == kept - 1 and randomness.random() < 0.5:
                _put(data, piece[: randomness.randint(0, len(piece))], position)
            else:
                _put(data, piece, position)
                if rots and randomness.random() < 0.5:
                    _rot(data, position + len(piece), randomness)
        self.data = data
        self.durable = bytearray(data)
        self.unsynced.clear()


def _rot(data: bytearray, end: int, randomness: random.Random) -> None:
    """Flip a bit in the last bytes before `end`.

    Not further before: no checksum covers the first bytes of a record batch, such as its offset.
    """
    if end > 0:
        data[end - 1 - randomness.randrange(min(end, 8))] ^= 1 << randomness.randrange(8)


def _put(data: bytearray, piece: bytes, position: int) -> None:
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    data[position : position + len(piece)] = piece


class _SimulatedFile:
    def __init__(self, disk: SimulatedDisk, content: _Content) -> None:
        self._disk = disk
        self._content = content

    def pread(self, size: int, position: int) -> bytes:
        return bytes(self._content.data[position : position + size])

    def pwrite(self, data: Buffer, position: int) -> int:
        self._disk.step()
        taken = self._disk.room_for(len(data))
        self._content.write(memoryview(data)[:taken], position)
        return taken

    def fdatasync(self) -> None:
        self._disk.step()
        self._disk.check_sync()
        self._content.sync()

    def truncate(self, size: int) -> None:
        self._disk.step()
        self._content.truncate(size)

    def size(self) -> int:
        return len(self._content.data)

    def close(self) -> None:
        return


class _Unlocked:
    """A lock that needs no locking, since each simulated machine runs one process."""

    def release(self) -> None:
        return


class SimulatedDisk:
    """A simulated Disk; see the module. `steps_left` is the number of steps until a power cut."""

    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness
        self._files: dict[Path, _Content] = {}
        # Names as they are on the disk, and unsynced changes to them, by directory.
        self._durable: dict[Path, _Content] = {}
        self._unsynced: dict[Path, list[tuple[Path, _Content | None]]] = {}
        self._directories: set[Path] = set()
        self.steps_left: int | None = None
        #: Bytes that files may still take; None is no limit.
        self.room: int | None = None
        self.sync_fails = False
        #: The process that has mounted it is gone.
        self.is_gone = False

    def handed_over(self) -> SimulatedDisk:
        """Return the disk for the next process; the former one can change nothing any more."""
        successor = SimulatedDisk(self._random)
        successor._files = dict(self._files)
        successor._durable = self._durable
        successor._unsynced = self._unsynced
        successor._directories = self._directories
        successor.room = self.room
        self.is_gone = True
        return successor

    def room_for(self, size: int) -> int:
        """Return how many of these bytes can be written; raises OSError if none can."""
        if self.room is None:
            return size
        taken = min(size, self.room)
        self.room -= taken
        if not taken and size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return taken

    def check_sync(self) -> None:
        """Raise OSError if syncs fail at present."""
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def step(self) -> None:
        """Count a step, before a change; raises PowerCut if the power is cut in it."""
        if self.is_gone:
            raise PowerCut
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise PowerCut

    def power_cut(self, *, rots: bool = False) -> None:
        """Forget some or all unsynced changes; with `rots`, bits of what is kept may flip."""
        for changes in self._unsynced.values():
            kept = self._random.randint(0, len(changes))
            for path, content in changes[:kept]:
                if content is None:
                    self._durable.pop(path, None)
                else:
                    self._durable[path] = content
        self._unsynced.clear()
        self._files = dict(self._durable)
        # Directories without files are lost.
        self._directories.update(path.parent for path in self._files)
        for path in sorted(self._files):
            self._files[path].power_cut(self._random, rots=rots)
        self.steps_left = None

    def _change(self, path: Path, content: _Content | None) -> None:
        if content is None:
            self._files.pop(path, None)
        else:
            self._files[path] = content
        self._unsynced.setdefault(path.parent, []).append((path, content))

    def _find(self, path: Path) -> _Content:
        found = self._files.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return found

    def lock(self, directory: Path) -> Lock:
        return _Unlocked()

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        if create and path not in self._files:
            self.step()
            self.room_for(1)
            self._change(path, _Content())
        return _SimulatedFile(self, self._find(path))

    def read(self, path: Path) -> bytes:
        return bytes(self._find(path).data)

    def write(self, path: Path, parts: Sequence[Buffer]) -> None:
        self.step()
        content = self._files.get(path)
        if content is None:
            content = _Content()
            self._change(path, content)
        content.truncate(0)
        data = b"".join(parts)
        taken = self.room_for(len(data))
        content.write(data[:taken], 0)
        if taken < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def replace(self, path: Path, data: Buffer) -> None:
        self.step()
        if self.room_for(len(data)) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.check_sync()
        self._change(path, _Content(bytes(data)))
        self.fsync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        if source in self._directories:
            self._rename_directory(source, target)
            return
        content = self._find(source)
        self._change(source, None)
        self._change(target, content)

    def _rename_directory(self, source: Path, target: Path) -> None:
        # The directory's name changes on the disk at once; unsynced names in it stay unsynced.
        self._directories.discard(source)
        self._directories.add(target)
        for names in (self._files, self._durable):
            for path in [each for each in names if each.parent == source]:
                names[target / path.name] = names.pop(path)
        self._unsynced[target] = [
            (target / path.name, content) for path, content in self._unsynced.pop(source, [])
        ]

    def remove(self, path: Path) -> None:
        if path in self._files:
            self.step()
            self._change(path, None)

    def size(self, path: Path) -> int | None:
        found = self._files.get(path)
        return None if found is None else len(found.data)

    def names(self, directory: Path) -> list[str]:
        return [path.name for path in sorted(self._files) if path.parent == directory]

    def directories(self, directory: Path) -> list[str]:
        return [path.name for path in sorted(self._directories) if path.parent == directory]

    def make_directory(self, directory: Path) -> None:
        self._directories.add(directory)

    def remove_directory(self, directory: Path) -> None:
        self._directories.discard(directory)

    def free_bytes(self, directory: Path) -> int | None:
        return None

    def fsync_directory(self, directory: Path) -> None:
        self.step()
        self.check_sync()
        for path, content in self._unsynced.pop(directory, []):
            if content is None:
                self._durable.pop(path, None)
            else:
                self._durable[path] = content
