"""One piece of a log: a `.log` file of record batches with its two indexes.

The files are named by the segment's first possible offset, 20 digits, as in Kafka. Only the last
segment of a log is written; the others are read through a file and an index that are opened when
they are needed and let go of afterwards.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path
from typing import Final, NamedTuple

from broker_core.environment import Buffer, Disk, File, FileSlice, SystemFile
from broker_core.errors import KafkaStorageError
from broker_core.log import aborted_transactions
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.offset_index import ENTRY_BYTES as INDEX_ENTRY_BYTES
from broker_core.log.offset_index import OffsetIndex
from broker_core.log.scanning import Scan
from broker_core.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from broker_core.log.time_index import TimeIndex, last_timestamp_of
from broker_core.protocol.records import (
    HEADER_BYTES,
    BatchHeader,
    find_batch,
    read_records,
    scan_batches,
    whole_batches,
)

logger = logging.getLogger(__name__)

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"  # only beside segments that have aborts
DERIVED_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
RELATIVE_OFFSET_MAX: Final = 2**31 - 1  # an index entry holds 32 bits

_SLICE_BYTES_MIN: Final = 32 * 1024  # less is read sooner than sent from the file
_MAX_TIMESTAMP_AT: Final = 35  # where a batch's header has it, 8 bytes
_SEARCH_BYTES: Final = 8192  # an index entry every 4096 bytes: one read mostly finds the batch


def segment_path(directory: Path, base_offset: int, suffix: str = LOG_SUFFIX) -> Path:
    """The name of one of a segment's files."""
    return directory / f"{base_offset:020d}{suffix}"


class Handle(NamedTuple):
    """What reading needs: it stays usable for who holds it, also after the segment is deleted."""

    file: File
    offset_index: OffsetIndex


class Segment:
    """A run of batches; see the module.

    Invariants: base_offset <= every offset in it < next_offset; `size` bytes of the file are whole
    batches, and bytes behind `size` are never read.
    """

    __slots__ = (
        "_aborted",
        "_handle",
        "_index_interval_bytes",
        "_indexed_position",
        "_max_timestamp",
        "_opening",
        "_parked_index",
        "_time_index",
        "base_offset",
        "created_ms",
        "directory",
        "disk",
        "is_retired",
        "next_offset",
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
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.next_offset = next_offset
        self.is_retired = False  # has left the log; a reader may still be on its way through it
        self.created_ms = created_ms  # of the first append as far as it is known
        self._opening = threading.Lock()  # one at a time opens files or lets go of them
        self._index_interval_bytes = index_interval_bytes
        self._indexed_position = 0  # where the newest index entry points
        self._handle: Handle | None = None
        # The offset index of the active segment while its file is closed.
        self._parked_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: list[AbortedTransaction] | None = None  # None: not read from its file yet
        self._max_timestamp: int | None = None  # None: not read from the time index yet

    @property
    def path(self) -> Path:
        """The `.log` file."""
        return segment_path(self.directory, self.base_offset)

    @property
    def is_open(self) -> bool:
        """Tell whether it holds a file open."""
        return self._handle is not None

    @property
    def index_entries(self) -> int:
        """Entries of the offset index while the segment is the active one."""
        index = self._handle.offset_index if self._handle else self._parked_index
        return 0 if index is None else len(index)

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp in it (ms), -1 if it has none."""
        if self._max_timestamp is None:
            self._max_timestamp = self._stored_max_timestamp()
        return self._max_timestamp

    def _stored_max_timestamp(self) -> int:
        path = segment_path(self.directory, self.base_offset, TIME_INDEX_SUFFIX)
        size = self.disk.size(path)
        if not size or size < TIME_ENTRY_BYTES:
            return -1
        tail = self.disk.open(path).pread(TIME_ENTRY_BYTES, size - TIME_ENTRY_BYTES)
        return last_timestamp_of(tail)

    def find_age(self) -> None:
        """Take the age from the first batch, as Kafka does: a restart makes no segment younger."""
        if self.size < HEADER_BYTES:
            return
        stored = self.disk.open(self.path).pread(8, _MAX_TIMESTAMP_AT)
        first_ms = int.from_bytes(stored, "big", signed=True)
        if first_ms >= 0:
            self.created_ms = min(self.created_ms, first_ms)

    # --- writing: the active segment ---

    def begin(self, path: Path | None = None) -> None:
        """Start with an empty or new file and empty indexes, ready for `append` or `note`.

        `path` is where the batches are until they get the segment's own name. Raises OSError.
        """
        file = self.disk.open(path or self.path, create=True)
        self._handle = Handle(file, OffsetIndex())
        self._time_index = TimeIndex()
        self._aborted = []
        self._indexed_position = 0
        self._max_timestamp = -1

    def resume(self) -> bool:
        """Go on writing a segment that was closed cleanly; False if its indexes are not sound."""
        index = self._load_index()
        time_index = self._load_time_index()
        if index is None or time_index is None or self.disk.size(self.path) != self.size:
            return False
        self._max_timestamp = time_index.last_timestamp
        self._handle = Handle(self.disk.open(self.path, writable=True), index)
        self._time_index = time_index
        self._indexed_position = index.last_position
        return True

    def append(self, data: Buffer, headers: list[BatchHeader], now_ms: int) -> None:
        """Write numbered batches with one system call.

        Raises KafkaStorageError, and then the segment is as before: what a failed write may have
        left behind `size` is cut off, or at least never read.
        """
        file = self.handle().file
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
        for header in headers:
            self.note(header, position + header.position)
        # Published last: a reader in another thread sees whole batches only.
        self.size = position + length

    def _cut(self, position: int) -> None:
        assert self._handle is not None
        try:
            self._handle.file.truncate(position)
        except OSError as error:
            logger.warning("%s: cannot be cut to %d: %s", self.path, position, error)

    def note(self, header: BatchHeader, position: int) -> None:
        """Take a batch at a position into the indexes."""
        assert self._handle is not None and self._time_index is not None
        if self._max_timestamp is None or header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
        last_offset = header.last_offset
        self.next_offset = last_offset + 1
        if position - self._indexed_position > self._index_interval_bytes:
            self._handle.offset_index.append(header.base_offset - self.base_offset, position)
            self._time_index.append(self._max_timestamp, last_offset - self.base_offset)
            self._indexed_position = position

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Take an aborted transaction, whose marker is in this segment, into its index."""
        # A new list: readers in other threads go on with the old one.
        self._aborted = [*self.aborted_transactions(), aborted]

    def extend(self, data: Buffer) -> None:
        """Write batches that are noted already, during compaction; raises OSError."""
        assert self._handle is not None
        if self._handle.file.pwrite(data, self.size) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self.size += len(data)

    def truncate(self, size: int) -> None:
        """Cut the file, during recovery; raises OSError."""
        assert self._handle is not None
        self._handle.file.truncate(size)
        self.size = size

    def cut(self, offset: int) -> None:
        """Cut every batch off that reaches an offset; the segment can be written then.

        Durable when it returns. Raises OSError, KafkaStorageError.
        """
        found = self.locate(offset)
        position = self.size if found is None else found[0]
        next_offset = min(self.next_offset, offset)
        if found is not None:
            next_offset = min(next_offset, self._base_offset_at(position))
        index, time_index = self.handle().offset_index, self._time_index
        aborted = [each for each in self.aborted_transactions() if each.last_offset < next_offset]
        file = self.disk.open(self.path, writable=True)
        file.truncate(position)
        file.fdatasync()
        # Built again should the log be closed or recovered; until then they would be wrong.
        for suffix in DERIVED_SUFFIXES:
            self.disk.remove(segment_path(self.directory, self.base_offset, suffix))
        self.size = position
        if time_index is None:
            index, time_index = OffsetIndex(), TimeIndex()
        else:
            index.truncate(max(next_offset - self.base_offset, 0))
            time_index.truncate(max(next_offset - self.base_offset, 0))
        self._handle = Handle(file, index)
        self._parked_index = None
        self._time_index = time_index
        self._aborted = aborted
        self._indexed_position = index.last_position
        self._max_timestamp = time_index.last_timestamp
        for header, at, _ in Scan(file, position, check_crc=False, start=index.last_position):
            self.note(header, at)
        self.next_offset = next_offset

    def _base_offset_at(self, position: int) -> int:
        return int.from_bytes(self.handle().file.pread(8, position), "big")

    def index_files(self) -> list[tuple[Path, bytes]]:
        """The index files; the last time entry is the newest timestamp."""
        assert self._time_index is not None
        if self.size:
            self._time_index.append(self.max_timestamp, self.next_offset - 1 - self.base_offset)
        files = [
            (
                segment_path(self.directory, self.base_offset, INDEX_SUFFIX),
                self.handle().offset_index.to_bytes(),
            ),
            (
                segment_path(self.directory, self.base_offset, TIME_INDEX_SUFFIX),
                self._time_index.to_bytes(),
            ),
        ]
        if self._aborted:
            path = segment_path(self.directory, self.base_offset, TRANSACTION_INDEX_SUFFIX)
            files.append((path, aborted_transactions.to_bytes(self._aborted)))
        return files

    def write_indexes(self, *, durably: bool = False) -> None:
        """Write the index files, `durably` where no later recovery would build them again.

        Raises OSError.
        """
        for path, content in self.index_files():
            if durably:
                self.disk.replace(path, content)
            else:
                self.disk.write(path, (content,))

    def sync_indexes(self) -> None:
        """Make the index files durable; raises OSError."""
        suffixes = DERIVED_SUFFIXES if self._aborted else (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        for suffix in suffixes:
            self.disk.open(
                segment_path(self.directory, self.base_offset, suffix), writable=True
            ).fdatasync()

    def sync(self) -> None:
        """Make the batches durable; raises OSError."""
        self.handle().file.fdatasync()

    def park(self) -> None:
        """Close the active segment's file; the next append or read opens it again.

        Its indexes are in no file yet: they stay in memory.
        """
        with self._opening:
            if self._handle is not None:
                self._parked_index = self._handle.offset_index
                self._handle = None

    def release(self) -> None:
        """Let go of files and indexes; the next read opens them again."""
        with self._opening:
            # Of a retired segment, the name can be another file's by now.
            if not self.is_retired:
                self._handle = None
                self._parked_index = None
                self._time_index = None
                self._aborted = None

    def hold(self) -> None:
        """Open all that a reader may want, before another segment gets the name of this one.

        Who is on the way through it goes on with the files as they are now; it must be retired,
        so that nothing lets go of them. Raises KafkaStorageError.
        """
        with self._opening:
            self._open()
            if self._time_index is None:
                self._time_index = self._load_time_index()

    def remove(self) -> None:
        """Delete the files; who holds a handle can still read. Raises OSError."""
        self._handle = None
        self._parked_index = None
        self._time_index = None
        # The data first: indexes without data are rubbish that the next start removes, data
        # without indexes would be a reason to build them again.
        for suffix in (LOG_SUFFIX, *DERIVED_SUFFIXES):
            self.disk.remove(segment_path(self.directory, self.base_offset, suffix))

    # --- reading ---

    def has_indexes(self) -> bool:
        """Tell by their size whether a closed segment has index files that can be whole."""
        index_size, time_index_size = (
            self.disk.size(segment_path(self.directory, self.base_offset, suffix))
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )
        return (
            index_size is not None
            and index_size % INDEX_ENTRY_BYTES == 0
            and time_index_size is not None
            and time_index_size % TIME_ENTRY_BYTES == 0
            and (time_index_size > 0 or self.size == 0)
        )

    def _load_index(self) -> OffsetIndex | None:
        path = segment_path(self.directory, self.base_offset, INDEX_SUFFIX)
        if self.disk.size(path) is None:
            return None
        return OffsetIndex.from_bytes(self.disk.read(path), self.size)

    def _load_time_index(self) -> TimeIndex | None:
        path = segment_path(self.directory, self.base_offset, TIME_INDEX_SUFFIX)
        if self.disk.size(path) is None:
            return None
        return TimeIndex.from_bytes(self.disk.read(path))

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """The aborted transactions whose markers are here, oldest first.

        Raises KafkaStorageError.
        """
        aborted = self._aborted
        if aborted is None:
            path = segment_path(self.directory, self.base_offset, TRANSACTION_INDEX_SUFFIX)
            try:
                stored = b"" if self.disk.size(path) is None else self.disk.read(path)
            except FileNotFoundError:  # retention was faster
                stored = b""
            except OSError as error:
                raise KafkaStorageError(f"{path}: {error.strerror}") from error
            aborted = self._aborted = aborted_transactions.from_bytes(stored)
        return aborted

    def handle(self) -> Handle:
        """The open file and index; raises KafkaStorageError."""
        handle = self._handle
        if handle is not None:
            return handle
        with self._opening:
            return self._open()

    def _open(self) -> Handle:
        if self._handle is not None:
            return self._handle
        parked = self._parked_index
        try:
            file = self.disk.open(self.path, writable=parked is not None)
            index = self._load_index() if parked is None else parked
        except OSError as error:
            raise KafkaStorageError(f"{self.path}: {error.strerror}") from error
        if index is None:
            logger.warning("%s: the offset index is missing or damaged", self.path)
            index = OffsetIndex()
        handle = self._handle = Handle(file, index)
        self._parked_index = None
        return handle

    def locate(self, offset: int, timestamp_ms: int = -(2**63)) -> tuple[int, int] | None:
        """(position, size) of the first batch that reaches an offset and a timestamp."""
        file, index = self.handle()
        position = index.lookup(max(0, offset - self.base_offset))
        end = self.size
        while position < end:
            data = file.pread(min(_SEARCH_BYTES, end - position), position)
            if len(data) < HEADER_BYTES:
                raise KafkaStorageError(f"{self.path}: nothing to read at {position}")
            found, size = find_batch(data, offset, timestamp_ms)
            position += found
            if size:
                return position, size
        return None

    def read_at(
        self, position: int, max_bytes: int, up_to_offset: int, min_one_message: bool
    ) -> tuple[bytes, int]:
        """Whole batches from a position on, and the offset after them (-1 if there is none)."""
        file = self.handle().file
        end = self.size
        data = file.pread(min(max(max_bytes, HEADER_BYTES), end - position), position)
        taken, next_offset = whole_batches(data, up_to_offset)
        if taken == 0 and min_one_message and len(data) >= HEADER_BYTES:
            _, size = find_batch(data, 0)
            if len(data) < size <= end - position:
                data = file.pread(size, position)
                taken, next_offset = whole_batches(data, up_to_offset)
        elif taken > max_bytes and not min_one_message:
            return b"", -1
        return (data if taken == len(data) else data[:taken]), next_offset

    def slice_at(
        self, position: int, max_bytes: int, up_to_offset: int
    ) -> tuple[FileSlice, int] | None:
        """As `read_at`, of the batches that the index knows to be whole, without reading them.

        None where that is not worth it.
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

    def first_at_timestamp(
        self, timestamp_ms: int, from_offset: int, up_to_offset: int
    ) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at a time or later, within offsets."""
        time_index = self._time_index or self._load_time_index()
        if time_index is not None:
            from_offset = max(from_offset, self.base_offset + time_index.lookup(timestamp_ms))
        found = self.locate(from_offset, timestamp_ms)
        while found is not None:
            position, size = found
            data = self.handle().file.pread(size, position)
            headers, _, problem = scan_batches(data)
            if problem is not None:
                raise KafkaStorageError(f"{self.path}, byte {position}: {problem}")
            header = headers[0]
            if header.base_offset >= up_to_offset:
                return None
            record = _first_record(data, header, timestamp_ms, from_offset)
            if record is not None:
                return record if record[1] < up_to_offset else None
            from_offset = header.next_offset
            found = self.locate(from_offset, timestamp_ms)
        return None


def _first_record(
    data: bytes, header: BatchHeader, timestamp_ms: int, from_offset: int
) -> tuple[int, int] | None:
    from broker_core.errors import BrokerError

    if header.is_log_append_time:
        return header.max_timestamp, max(header.base_offset, from_offset)
    try:
        for offset, timestamp, *_ in read_records(data, header):
            if timestamp >= timestamp_ms and offset >= from_offset:
                return timestamp, offset
    except BrokerError as error:
        # Compressed batches are stored unopened; what cannot be opened still has its header.
        logger.warning("batch at offset %d cannot be opened: %s", header.base_offset, error)
        return header.max_timestamp, header.base_offset
    return None
