"""The metadata log, its snapshot and the election state in files.

A directory holds `quorum-state` (the vote), `snapshot`, and `entries-START` with the entries behind
the snapshot. Each entry is one frame: length, CRC-32 of the rest, epoch, kind, value. The entries
are also kept in memory; there are few of them, since a snapshot replaces them when there are many.
If that file cannot be shortened then, it still has at its begin what the snapshot stands for.

If all earlier entries are durable when entries are appended, a marker frame is written before them.
Damage before a marker is therefore not a write torn by a power cut.

`durable-end` has an offset before which all entries were durable once, so that a file that was cut
at the end of a frame, or is gone, is noticed too. It is written behind each flush, and not synced
itself: it may be too low, never too high.
"""

from __future__ import annotations

import logging
import re
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from broker_core.environment import Environment, File
from broker_core.errors import KafkaStorageError
from broker_core.quorum.entries import (
    Entry,
    EntryKind,
    EpochEnd,
    Snapshot,
    decode_voters,
    encode_voters,
)
from broker_core.quorum.storage import Election
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

_FRAME: Final = struct.Struct(">II")  # length of the rest, CRC-32 of the rest
_ENTRY: Final = struct.Struct(">ih")  # epoch, kind
_SNAPSHOT: Final = struct.Struct(">IqiI")  # CRC-32 of the rest, end offset, epoch, voters' length
_LOG_NAME: Final = re.compile(r"entries-(\d{20})")
_MARK: Final = struct.Struct(">qI")  # an offset, CRC-32 of it
#: Kind of a marker: everything before it was durable when the marker was written.
_DURABLE_KIND: Final = -2
#: Most bytes that one `read` returns, unless it is a single entry.
_READ_BYTES_MAX: Final = 4 * 1024 * 1024


class FileElectionStore:
    """An ElectionStore in a file."""

    def __init__(self, directory: Path, environment: Environment, *, is_only_voter: bool) -> None:
        self._directory = directory
        self._path = directory / "quorum-state"
        self._disk = environment.disk
        self._is_only_voter = is_only_voter

    def load(self) -> Election:
        """See ElectionStore. Raises KafkaStorageError: without its old vote, it must not vote.

        The vote of an only voter competes with no other, so it is not missed. The replica takes the
        epoch from its log then.
        """
        if self._disk.size(self._path) is None:
            if not self._has_log():
                return Election(0, None)
            problem = "is missing"
        else:
            try:
                return msgspec.json.decode(self._disk.read(self._path), type=Election)
            except (*MALFORMED, OSError) as error:
                problem = f"is damaged ({error})"
        if not self._is_only_voter:
            raise KafkaStorageError(
                f"{self._path}: {problem}, and with it this node's vote. Only while a majority of "
                f"the other controllers is running may {self._directory} be moved away, for the "
                "node to get its metadata from them"
            )
        logger.warning(
            "%s: %s; this node is the only voter and goes on in the next epoch of its log",
            self._path,
            problem,
        )
        return Election(0, None)

    def _has_log(self) -> bool:
        return any(
            self._disk.size(self._directory / name)
            for name in self._disk.names(self._directory)
            if name == "snapshot" or _LOG_NAME.fullmatch(name)
        )

    def save(self, election: Election) -> None:
        """See ElectionStore. Raises OSError."""
        self._disk.replace(self._path, msgspec.json.encode(election))


class FileMetadataLog:
    """A MetadataLog in files; writing raises OSError."""

    def __init__(self, directory: Path, environment: Environment, *, is_only_voter: bool) -> None:
        """Read the files; raises KafkaStorageError, OSError.

        `is_only_voter`: no other node has the entries; errors advise accordingly.
        """
        self._directory = directory
        self._disk = environment.disk
        self._is_only_voter = is_only_voter
        self._disk.make_directory(directory)
        self._mark_path = directory / "durable-end"
        self._mark: File | None = None
        # What the mark says; 0 if that is not known.
        self._marked = self._read_mark()
        self._snapshot = self._read_snapshot()
        self._entries: list[Entry] = []
        # Position in the file after each entry, and after those that the snapshot stands for.
        self._ends: list[int] = []
        self._begin = 0
        self._flushed = 0
        self._file: File
        self._open()
        self._note_durable_end()

    # -------------------------------------------------------------------------------------- reading

    @property
    def start_offset(self) -> int:
        """See MetadataLog."""
        return 0 if self._snapshot is None else self._snapshot.end_offset

    @property
    def flushed_offset(self) -> int:
        """See MetadataLog."""
        return self.start_offset + self._flushed

    @property
    def end_offset(self) -> int:
        """See MetadataLog."""
        return self.start_offset + len(self._entries)

    @property
    def last_epoch(self) -> int:
        """See MetadataLog."""
        if self._entries:
            return self._entries[-1].epoch
        return 0 if self._snapshot is None else self._snapshot.epoch

    @property
    def snapshot(self) -> Snapshot | None:
        """See MetadataLog."""
        return self._snapshot

    def read(self, offset: int, count: int) -> tuple[Entry, ...]:
        """See MetadataLog; returns fewer entries if they are large."""
        first = offset - self.start_offset
        size = 0
        last = first
        for entry in self._entries[first : first + count]:
            size += len(entry.value)
            if size > _READ_BYTES_MAX and last > first:
                break
            last += 1
        return tuple(self._entries[first:last])

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """See MetadataLog."""
        for number in range(len(self._entries), 0, -1):
            found = self._entries[number - 1].epoch
            if found <= epoch:
                return EpochEnd(found, self.start_offset + number)
        return EpochEnd(0 if self._snapshot is None else self._snapshot.epoch, self.start_offset)

    # -------------------------------------------------------------------------------------- writing

    def append(self, entries: Sequence[Entry]) -> None:
        """See MetadataLog."""
        if not entries:
            return  # an empty fetch response of a leader: no marker is written either
        position = self._size
        frames = bytearray()
        ends = []
        if self._entries and self._flushed == len(self._entries):
            frames += _DURABLE
        for entry in entries:
            frames += _frame(entry)
            ends.append(position + len(frames))
        written = 0
        try:
            while written < len(frames):
                written += self._file.pwrite(memoryview(frames)[written:], position + written)
        except OSError:
            # The log is as it was before; the part that was written must not be taken for more.
            with suppress(OSError):
                self._file.truncate(position)
            raise
        self._entries += entries
        self._ends += ends

    def flush(self) -> None:
        """See MetadataLog."""
        if self._flushed < len(self._entries):
            self._file.fdatasync()
            self._flushed = len(self._entries)
            self._note_durable_end()

    def truncate(self, end_offset: int) -> None:
        """See MetadataLog."""
        self._lower_mark(end_offset)
        count = end_offset - self.start_offset
        del self._entries[count:]
        del self._ends[count:]
        self._flushed = min(self._flushed, count)
        self._file.truncate(self._size)
        self._file.fdatasync()

    def install(self, snapshot: Snapshot) -> None:
        """See MetadataLog. If it raises, the log is as it was."""
        replaced = _count_replaced(snapshot, self.start_offset, self._entries)
        kept = [] if replaced is None else self._entries[replaced:]
        self._lower_mark(snapshot.end_offset + len(kept))
        voters = encode_voters(snapshot.voters)
        rest = _SNAPSHOT.pack(0, snapshot.end_offset, snapshot.epoch, len(voters))[4:]
        rest += voters + snapshot.data
        checksum = zlib.crc32(rest).to_bytes(4, "big")
        self._disk.replace(self._directory / "snapshot", checksum + rest)
        former = self._file
        if self._rewrite(snapshot.end_offset, kept, is_needed=replaced is None):
            former.close()
        else:
            assert replaced is not None
            self._begin = self._ends[replaced - 1]
            self._entries, self._ends = kept, self._ends[replaced:]
            self._flushed = max(self._flushed - replaced, 0)
        self._snapshot = snapshot
        self._note_durable_end()

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._mark is not None:
            self._mark.close()

    # -------------------------------------------------------------------------------------- details

    @property
    def _size(self) -> int:
        return self._ends[-1] if self._ends else self._begin

    def _path(self, start_offset: int) -> Path:
        return self._directory / f"entries-{start_offset:020d}"

    def _rewrite(self, start_offset: int, entries: list[Entry], *, is_needed: bool = True) -> bool:
        """Go on with a new file that has these entries alone; raises OSError.

        Unless it is needed, return False if it cannot be written.
        """
        path = self._path(start_offset)
        try:
            self._disk.replace(path, b"".join(map(_frame, entries)))
            file = self._disk.open(path, writable=True)
        except OSError as error:
            if is_needed:
                raise
            logger.warning("%s: the file of the entries before goes on: %s", path, error)
            # The next start would take it for the newest entries.
            self._disk.remove(path)
            self._disk.fsync_directory(self._directory)
            return False
        self._file = file
        self._entries = []
        self._ends = []
        self._begin = end = 0
        for entry in entries:
            end += len(_frame(entry))
            self._entries.append(entry)
            self._ends.append(end)
        self._flushed = len(entries)
        for name in self._disk.names(self._directory):
            if _LOG_NAME.fullmatch(name) and name != path.name:
                with suppress(OSError):  # only the newest of them is read
                    self._disk.remove(self._directory / name)
        return True

    def _read_mark(self) -> int:
        size = self._disk.size(self._mark_path)
        if size is None:
            return 0
        data = self._disk.read(self._mark_path)
        if len(data) == _MARK.size:
            offset, checksum = _MARK.unpack(data)
            if zlib.crc32(data[:8]) == checksum:
                return int(offset)
        logger.warning(
            "%s is damaged: whether the newest entries of the metadata are there is not known",
            self._mark_path,
        )
        return 0

    def _write_mark(self, offset: int) -> None:
        number = offset.to_bytes(8, "big")
        mark = number + zlib.crc32(number).to_bytes(4, "big")
        if self._mark is None:
            # It is made as the entries are: for nobody else to read.
            self._disk.replace(self._mark_path, mark)
            self._mark = self._disk.open(self._mark_path, writable=True)
        else:
            self._mark.pwrite(mark, 0)
        self._marked = offset

    def _note_durable_end(self) -> None:
        if self.flushed_offset > self._marked:
            # Without room for it the mark stays too low, which does no harm.
            with suppress(OSError):
                self._write_mark(self.flushed_offset)

    def _lower_mark(self, end_offset: int) -> None:
        """Lower the mark, durably, before the log is cut; raises OSError."""
        if self._marked > end_offset:
            self._write_mark(end_offset)
            assert self._mark is not None
            self._mark.fdatasync()

    def _read_snapshot(self) -> Snapshot | None:
        path = self._directory / "snapshot"
        if self._disk.size(path) is None:
            return None
        data = self._disk.read(path)
        if len(data) < _SNAPSHOT.size or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "big"):
            raise KafkaStorageError(f"{path}: is damaged. {self._advice}")
        _, end_offset, epoch, length = _SNAPSHOT.unpack_from(data)
        begin = _SNAPSHOT.size + length
        return Snapshot(
            end_offset, epoch, decode_voters(data[_SNAPSHOT.size : begin]), data[begin:]
        )

    def _open(self) -> None:
        starts = sorted(
            int(match[1])
            for name in self._disk.names(self._directory)
            if (match := _LOG_NAME.fullmatch(name))
        )
        if not starts or starts[-1] > self.start_offset:
            if starts:
                raise KafkaStorageError(
                    f"{self._directory}: the entries begin at {starts[-1]}, and the snapshot that "
                    f"stands for those before is missing. {self._advice}"
                )
            self._check_end(self.start_offset)
            self._rewrite(self.start_offset, [])
            return
        start = starts[-1]
        path = self._path(start)
        data = self._disk.read(path)
        entries, ends, whole = _read_frames(data)
        if data.find(_DURABLE, whole) >= 0:
            raise KafkaStorageError(
                f"{path}: the entry at offset {start + len(entries)} (byte {whole}) is damaged, "
                f"and there are later ones. {self._advice}"
            )
        replaced: int | None = 0
        if self._snapshot is not None and start < self._snapshot.end_offset:
            # The snapshot was written, but the entries behind it had not been rewritten yet.
            replaced = _count_replaced(self._snapshot, start, entries)
            kept = [] if replaced is None else entries[replaced:]
            self._check_end(self.start_offset + len(kept))
            if self._rewrite(self.start_offset, kept, is_needed=replaced is None):
                return
        else:
            self._check_end(start + len(entries))
        self._file = self._disk.open(path, writable=True)
        self._begin = ends[replaced - 1] if replaced else 0
        self._entries, self._ends = entries[replaced:], ends[replaced:]
        if whole < len(data):
            logger.warning("%s: what was being written at the end is cut off", path)
        if self._size < len(data):
            # Also removes a marker without an entry behind it.
            self._file.truncate(self._size)
        # The data that was read may have been written but never flushed.
        self._file.fdatasync()
        self._flushed = len(self._entries)

    def _check_end(self, end_offset: int) -> None:
        """Raise KafkaStorageError if entries are missing that were durable; nothing is changed."""
        if end_offset >= self._marked:
            return
        without = (
            f"; to go on without what was decided then, remove {self._mark_path}"
            if self._is_only_voter
            else ""
        )
        raise KafkaStorageError(
            f"{self._directory}: the entries at the offsets {end_offset} to {self._marked - 1} are "
            f"missing, which were on disk once. {self._advice}{without}"
        )

    @property
    def _advice(self) -> str:
        if self._is_only_voter:
            return f"No other controller has them: put a copy of {self._directory} back"
        return (
            "What is committed may rest on this node: only while a majority of the other "
            f"controllers is running may {self._directory} be moved away, for the node to get its "
            "metadata from them"
        )


def _framed(body: bytes) -> bytes:
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _frame(entry: Entry) -> bytes:
    return _framed(_ENTRY.pack(entry.epoch, entry.kind) + entry.value)


#: The marker; its value is invalid UTF-8, so it cannot occur in a text.
_DURABLE: Final = _framed(_ENTRY.pack(0, _DURABLE_KIND) + b"\xfe\xffdurable")


def _read_frames(data: bytes) -> tuple[list[Entry], list[int], int]:
    """Return the entries before the first invalid frame, the end of each, and where that begins."""
    entries: list[Entry] = []
    ends: list[int] = []
    position = 0
    while position + _FRAME.size + _ENTRY.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, position)
        begin = position + _FRAME.size
        body = data[begin : begin + length]
        if len(body) < max(length, _ENTRY.size) or zlib.crc32(body) != checksum:
            break
        epoch, kind = _ENTRY.unpack_from(body)
        position = begin + length
        if kind != _DURABLE_KIND:
            entries.append(Entry(epoch, EntryKind(kind), body[_ENTRY.size :]))
            ends.append(position)
    return entries, ends, position


def _count_replaced(snapshot: Snapshot, start: int, entries: list[Entry]) -> int | None:
    """Return how many entries the snapshot stands for; None if they are not those before its end.

    The first given entry has offset `start`.
    """
    count = snapshot.end_offset - start
    if 0 < count <= len(entries) and entries[count - 1].epoch == snapshot.epoch:
        return count
    return None
