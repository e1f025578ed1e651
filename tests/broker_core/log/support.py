"""A clock that stands still and a disk that fails on request, for the tests of the log."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from broker_core.environment import Buffer, Environment, File, SystemClock, SystemDisk
from broker_core.log import Log, LogConfig
from broker_core.log.log import AppendResult
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.record_reader import iterate_records
from broker_core.protocol.stored_batches import scan_batches

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000


class StandingClock(SystemClock):
    """A clock whose wall time moves only when a test sets it."""

    def __init__(self, now_ms: int = NOW) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now


class FailingFile:
    """A real file whose writes and syncs fail when its disk is told so."""

    def __init__(self, file: File, disk: FailingDisk) -> None:
        self._file = file
        self._disk = disk

    def pread(self, size: int, position: int) -> bytes:
        return self._file.pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> int:
        room = self._disk.room
        if room is None:
            return self._file.pwrite(data, position)
        taken = min(room, len(data))
        self._disk.room = room - taken
        if taken:
            return self._file.pwrite(bytes(data[:taken]), position)
        raise OSError(errno.ENOSPC, "No space left on device")

    def fdatasync(self) -> None:
        if self._disk.sync_fails:
            raise OSError(errno.EIO, "Input/output error")
        self._disk.syncs += 1
        self._file.fdatasync()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class FailingDisk(SystemDisk):
    """The real disk, which is full or broken on request."""

    def __init__(self) -> None:
        self.room: int | None = None  # bytes that can still be written; None is no limit
        self.sync_fails = False
        self.create_fails = False
        self.free: int | None = None  # what `free_bytes` says; None is the truth
        self.rename_fails = ""  # how the names end of files that cannot be renamed
        self.syncs = 0

    def free_bytes(self, directory: Path) -> int | None:
        return super().free_bytes(directory) if self.free is None else self.free

    def rename(self, source: Path, target: Path) -> None:
        if self.rename_fails and source.name.endswith(self.rename_fails):
            raise OSError(errno.EIO, "Input/output error")
        super().rename(source, target)

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        if create and self.create_fails:
            raise OSError(errno.ENOSPC, "No space left on device")
        return FailingFile(super().open(path, create=create, writable=writable), self)

    def write(self, path: Path, parts: Sequence[Buffer]) -> None:
        if self.room is not None and self.room < sum(map(len, parts)):
            super().write(path, [])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(path, parts)


class Workbench:
    """One log in a directory, with its clock and its disk."""

    def __init__(self, directory: Path, **config: object) -> None:
        self.clock = StandingClock()
        self.disk = FailingDisk()
        self.environment = Environment(self.clock, self.disk)
        self.directory = directory / "location-0"
        self.config = LogConfig(**config)  # type: ignore[arg-type]
        self.log = self.open()

    def open(self) -> Log:
        """Open the log again without closing it, as after kill -9."""
        self.log = Log.open(self.directory, "location", 0, self.config, self.environment)
        return self.log

    def append(self, *values: bytes, timestamp: int = NOW, **batch: int) -> AppendResult:
        """Append one batch of records with the key b"k"."""
        return self.append_records([(timestamp, b"k", value, []) for value in values], **batch)

    def append_records(
        self,
        records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]],
        **batch: int,
    ) -> AppendResult:
        """Append one batch."""
        data = build_batch(records, **batch)  # type: ignore[arg-type]
        return self.log.append(data, leader_epoch=0, now_ms=self.clock.now)

    def values(self) -> list[tuple[int, bytes | None]]:
        """Return offset and value of every record that can be read."""
        return [(record[0], record[3]) for record in self.records()]

    def records(self) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Return offset, timestamp, key and value of every record that can be read."""
        found: list[tuple[int, int, bytes | None, bytes | None]] = []
        offset = self.log.log_start_offset
        while data := self.log.read(offset, 1_000_000):
            for record in iterate_records(data):
                if record[0] >= offset:
                    found.append(record[:4])
            # As clients do: a compacted batch can extend beyond its last record.
            offset = scan_batches(data)[0][-1].next_offset
        return found

    def files(self, suffix: str) -> list[str]:
        """Return the names of the log's files with a suffix."""
        return sorted(path.name for path in self.directory.iterdir() if path.suffix == suffix)
