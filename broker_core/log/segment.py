"""One segment of a log: a `.log` file of record batches with its indexes.

The files are named by the segment's base offset, 20 digits, as in Kafka. Only the last segment of a
log is written. The file and index of the others are opened when they are needed and closed
afterwards.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.environment import Buffer, Disk, File, FileSlice, SystemFile
from broker_core.errors import CorruptMessage, KafkaStorageError
from broker_core.log.offset_index import OffsetIndex
from broker_core.log.scanning import Scan, find_sound
from broker_core.log.segment_indexes import SegmentIndexes
from broker_core.protocol.batch_header import HEADER_BYTES, BatchHeader
from broker_core.protocol.stored_batches import find_batch, scan_batches, whole_batches

logger = logging.getLogger(__name__)

LOG_SUFFIX: Final = ".log"
RELATIVE_OFFSET_MAX: Final = 2**31 - 1  # an index entry holds 32 bits

_SLICE_BYTES_MIN: Final = 32 * 1024  # smaller ranges are faster to read than to send from the file
_MAX_TIMESTAMP_AT: Final = 35  # position of that field in a batch header, 8 bytes
_SEARCH_BYTES: Final = 8192  # with an index entry every 4096 bytes, one read usually suffices


def segment_path(directory: Path, base_offset: int, suffix: str = LOG_SUFFIX) -> Path:
    """Return the path of one of a segment's files."""
    return directory / f"{base_offset:020d}{suffix}"


class Handle(NamedTuple):
    """An open file and its index; its holder can use it even after the segment is deleted."""

    file: File
    offset_index: OffsetIndex


class Segment:
    """A run of batches in one file.

    Invariants: base_offset <= every offset in it < next_offset. The first `size` bytes of the file
    are whole batches; bytes behind `size` are never read.
    """

    __slots__ = (
        "_disk",
        "_handle",
        "_opening",
        "base_offset",
        "created_ms",
        "indexes",
        "is_retired",
        "next_offset",
        "path",
        "size",
    )

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        base_offset: int,
        *,
        size: int,
        next_offset: int,
        created_ms: int,
        index_interval_bytes: int,
    ) -> None:
        self._disk = disk
        #: The `.log` file.
        self.path: Final = segment_path(directory, base_offset)
        self.base_offset = base_offset
        self.size = size
        self.next_offset = next_offset
        self.is_retired = False  # has left the log; a reader may still be using it
        self.created_ms = created_ms  # of the first append, as well as it is known
        self.indexes: Final = SegmentIndexes(
            disk, self.path, base_offset, interval_bytes=index_interval_bytes
        )
        self._opening = threading.Lock()  # held while files are opened or closed
        self._handle: Handle | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether the segment holds a file open."""
        return self._handle is not None

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp in the segment (ms), -1 if it has none."""
        return self.indexes.max_timestamp

    def find_age(self) -> None:
        """Take the creation time from the first batch, as Kafka does: a restart keeps the age."""
        if self.size < HEADER_BYTES:
            return
        stored = self._disk.open(self.path).pread(8, _MAX_TIMESTAMP_AT)
        first_ms = int.from_bytes(stored, "big", signed=True)
        if first_ms >= 0:
            self.created_ms = min(self.created_ms, first_ms)

    # --- writing: the active segment ---

    def begin(self, path: Path | None = None) -> None:
        """Open or create the file, with empty indexes, ready for `append` or `note`.

        `path` is used until the batches get the segment's own name. Raises OSError.
        """
        file = self._disk.open(path or self.path, create=True)
        self._handle = Handle(file, self.indexes.begin())

    def resume(self) -> bool:
        """Continue a segment that was closed cleanly; return False if its indexes are not valid."""
        index = self.indexes.resume(self.size)
        if index is None or self._disk.size(self.path) != self.size:
            return False
        self._handle = Handle(self._disk.open(self.path, writable=True), index)
        return True

    def append(self, data: Buffer, headers: list[BatchHeader], now_ms: int) -> None:
        """Write batches, whose offsets are assigned, with one system call.

        Raises KafkaStorageError, and then the segment is unchanged: what a failed write left behind
        `size` is cut off, or at least never read.
        """
        file = (self._handle or self.handle()).file
        position = self.size
        length = len(data)
        try:
            written = file.pwrite(data, position)
        except OSError as error:
            self._cut(position)
            raise KafkaStorageError(f"{self.path}: {error.strerror}") from error
        if written != length:
            self._cut(position)
            raise KafkaStorageError(f"{self.path}: {written} of {length} bytes written")
        if position == 0:
            self.created_ms = now_ms
        indexes = self.indexes
        for header in headers:
            indexes.note(header, position + header.position)
            self.next_offset = header.last_offset + 1
        # Set last: a reader in another thread then sees whole batches only.
        self.size = position + length

    def _cut(self, position: int) -> None:
        assert self._handle is not None
        try:
            self._handle.file.truncate(position)
        except OSError as error:
            logger.warning("%s: cannot be cut to %d: %s", self.path, position, error)

    def note(self, header: BatchHeader, position: int) -> None:
        """Add a batch at a position to the indexes."""
        self.indexes.note(header, position)
        self.next_offset = header.last_offset + 1

    def extend(self, data: Buffer) -> None:
        """Write batches that `note` has indexed already, in compaction; raises OSError."""
        assert self._handle is not None
        if self._handle.file.pwrite(data, self.size) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self.size += len(data)

    def truncate(self, size: int) -> None:
        """Cut the file, in recovery, durably; raises OSError."""
        assert self._handle is not None
        self._handle.file.truncate(size)
        # Else a power cut may bring back what was cut when the next segment has begun already.
        self._handle.file.fdatasync()
        self.size = size

    def cut(self, offset: int) -> None:
        """Remove every batch that reaches an offset, durably; the segment can then be written.

        Raises OSError, KafkaStorageError.
        """
        found = self.locate(offset)
        position = self.size if found is None else found[0]
        next_offset = min(self.next_offset, offset)
        if found is not None:
            next_offset = min(next_offset, self._base_offset_at(position))
        file = self._disk.open(self.path, writable=True)
        file.truncate(position)
        file.fdatasync()
        self.size = position
        index = self.indexes.cut(next_offset)
        self._handle = Handle(file, index)
        for header, at, _ in Scan(file, position, check_crc=False, start=index.last_position):
            self.note(header, at)
        self.next_offset = next_offset

    def _base_offset_at(self, position: int) -> int:
        return int.from_bytes(self.handle().file.pread(8, position), "big")

    def index_files(self) -> list[tuple[Path, bytes]]:
        """Return paths and contents of the index files; adds the newest timestamp as last entry."""
        if self.size:
            self.indexes.complete(self.next_offset)
        return self.indexes.files()

    def write_indexes(self, *, durably: bool = False) -> None:
        """Write the index files; `durably` if no later recovery would rebuild them.

        Raises OSError.
        """
        if self.size:
            self.indexes.complete(self.next_offset)
        self.indexes.write(durably=durably)

    def sync(self) -> None:
        """Make the batches durable; raises OSError."""
        self.handle().file.fdatasync()

    def park(self) -> None:
        """Close the active segment's file; the next append or read opens it again.

        Its indexes have not been written to files yet: they stay in memory.
        """
        with self._opening:
            self._handle = None

    def release(self) -> None:
        """Close files and drop indexes; the next read opens them again."""
        with self._opening:
            # The name of a retired segment may belong to another file by now.
            if not self.is_retired:
                self._handle = None
                self.indexes.release()

    def hold(self) -> None:
        """Open all that a reader may need before another segment takes over this one's file name.

        Readers of this segment continue with the files as they are now. The segment must be
        retired, so that nothing closes them. Raises KafkaStorageError.
        """
        with self._opening:
            self._open()
            self.indexes.hold_times()

    def remove(self) -> None:
        """Delete the files; holders of a handle can still read. Raises OSError."""
        self._handle = None
        # Delete the data first: the next start removes indexes without data, but it would rebuild
        # the indexes of data without them.
        self._disk.remove(self.path)
        self.indexes.remove()

    # --- reading ---

    def handle(self) -> Handle:
        """Return the open file and its index, opening them if needed; raises KafkaStorageError."""
        handle = self._handle
        if handle is not None:
            return handle
        with self._opening:
            return self._open()

    def _open(self) -> Handle:
        if self._handle is not None:
            return self._handle
        try:
            file = self._disk.open(self.path, writable=self.indexes.are_written)
            index = self.indexes.offset_index(self.size)
        except OSError as error:
            raise KafkaStorageError(f"{self.path}: {error.strerror}") from error
        if index is None:
            logger.warning("%s: the offset index is missing or damaged", self.path)
            index = OffsetIndex()
        handle = self._handle = Handle(file, index)
        return handle

    def locate(self, offset: int, timestamp_ms: int = -(2**63)) -> tuple[int, int] | None:
        """Return (position, size) of the first batch that reaches an offset and a timestamp."""
        file, index = self.handle()
        position = index.lookup(max(0, offset - self.base_offset))
        end = self.size
        while position < end:
            data = file.pread(min(_SEARCH_BYTES, end - position), position)
            try:
                found, size = find_batch(data, offset, timestamp_ms)
            except CorruptMessage:
                raise self._corrupt(data, position) from None
            if size:
                self._check_header(data[found:], position + found, end)
                return position + found, size
            if not 0 < found <= end - position:
                raise self._corrupt(data, position)
            position += found
        return None

    def _check_header(self, data: bytes, position: int, end: int) -> None:
        """Raise CorruptMessage unless a batch of this segment can begin here."""
        base_offset = int.from_bytes(data[:8], "big", signed=True)
        size = int.from_bytes(data[8:12], "big", signed=True) + 12
        if not (self.base_offset <= base_offset < self.next_offset and size <= end - position):
            raise self._corrupt(data, position)

    def _corrupt(self, data: bytes, position: int) -> CorruptMessage:
        """Return the error about the first batch of the data that cannot be one."""
        _, valid, problem = scan_batches(data, check_crc=False)
        at = position + min(valid, len(data))
        return CorruptMessage(f"{self.path}, byte {at}: {problem or 'no batch begins there'}")

    def locate_sound(self, offset: int) -> tuple[int, int] | None:
        """Return (base offset, position) of the first sound batch from an offset on, or None.

        Damage before it is passed over. Raises KafkaStorageError.
        """
        file, index = self.handle()
        offsets = range(offset, self.next_offset)
        return find_sound(file, self.size, index, self.base_offset, offsets)

    def read_at(
        self, position: int, max_bytes: int, up_to_offset: int, min_one_message: bool
    ) -> tuple[bytes, int]:
        """Read whole batches from a position on; return them and the next offset (-1 if none)."""
        file = self.handle().file
        end = self.size
        data = file.pread(min(max(max_bytes, HEADER_BYTES), end - position), position)
        try:
            taken, next_offset = whole_batches(data, up_to_offset)
        except CorruptMessage:
            # What comes before the damage can be read.
            _, sound, _ = scan_batches(data, check_crc=False)
            if not sound:
                raise self._corrupt(data, position) from None
            data = data[:sound]
            taken, next_offset = whole_batches(data, up_to_offset)
        if taken == 0 and len(data) >= HEADER_BYTES:
            self._check_header(data, position, end)
            _, size = find_batch(data, 0)
            if min_one_message and len(data) < size:
                data = file.pread(size, position)
                taken, next_offset = whole_batches(data, up_to_offset)
        elif taken > max_bytes and not min_one_message:
            return b"", -1
        return (data if taken == len(data) else data[:taken]), next_offset

    def slice_at(
        self, position: int, max_bytes: int, up_to_offset: int
    ) -> tuple[FileSlice, int] | None:
        """Return a slice of the file for `read_at`'s range, cut at batches the index knows.

        None if the slice would be too small or the file cannot be sent from.
        """
        size, next_offset = self.size, self.next_offset
        if min(max_bytes, size - position) < _SLICE_BYTES_MIN:
            return None
        file, index = self.handle()
        if not isinstance(file, SystemFile):
            return None
        if size - position <= max_bytes and next_offset <= up_to_offset:
            end, end_offset = size, next_offset
        else:
            relative_offset, end = index.last_boundary(
                position + max_bytes, up_to_offset - self.base_offset
            )
            end_offset = self.base_offset + relative_offset
        if end - position < _SLICE_BYTES_MIN:
            return None
        return FileSlice(file, position, end - position), end_offset
