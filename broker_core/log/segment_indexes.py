"""The indexes of one segment: in memory while it is written, and in files when it is closed.

The files have the name of the segment's `.log` file, with suffixes of their own. All of them can be
derived from the batches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker_core.environment import Disk
from broker_core.errors import KafkaStorageError
from broker_core.log import aborted_transactions
from broker_core.log.aborted_transactions import AbortedTransaction
from broker_core.log.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from broker_core.log.offset_index import OffsetIndex
from broker_core.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from broker_core.log.time_index import TimeIndex, last_timestamp_of
from broker_core.protocol.batch_header import BatchHeader

INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"  # only for segments with aborted transactions
DERIVED_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)


class SegmentIndexes:
    """The offset index, time index and transaction index of a segment.

    Batches can be noted from `begin`, `resume` or `cut` on, until `release`. What is noted is in
    the files only after `write`.
    """

    __slots__ = (
        "_aborted",
        "_base_offset",
        "_disk",
        "_indexed_position",
        "_interval_bytes",
        "_max_timestamp",
        "_offset_index",
        "_path",
        "_time_index",
    )

    def __init__(self, disk: Disk, path: Path, base_offset: int, *, interval_bytes: int) -> None:
        """`path` is the `.log` file; an entry is made after each `interval_bytes` of it."""
        self._disk = disk
        self._path = path
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._indexed_position = 0  # where the newest entry of the offset index points
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._aborted: list[AbortedTransaction] | None = None  # None: not read from its file yet
        self._max_timestamp: int | None = None  # None: not read from the time index yet

    # --- of a segment that is written ---

    def begin(self) -> OffsetIndex:
        """Begin empty indexes; return the offset index."""
        self._aborted = []
        return self._begin_from(OffsetIndex(), TimeIndex())

    def resume(self, segment_size: int) -> OffsetIndex | None:
        """Continue what a clean shutdown left; return the offset index, None if that is not valid.

        Raises OSError.
        """
        offset_index = self._load_offset_index(segment_size)
        time_index = self._load_time_index()
        if offset_index is None or time_index is None:
            return None
        return self._begin_from(offset_index, time_index)

    def _begin_from(self, offset_index: OffsetIndex, time_index: TimeIndex) -> OffsetIndex:
        self._offset_index, self._time_index = offset_index, time_index
        self._indexed_position = offset_index.last_position
        self._max_timestamp = time_index.last_timestamp
        return offset_index

    @property
    def are_written(self) -> bool:
        """Tell whether batches can be noted."""
        return self._offset_index is not None

    @property
    def offset_entries(self) -> int:
        """The number of entries that the offset index of a segment that is written has."""
        return 0 if self._offset_index is None else len(self._offset_index)

    def note(self, header: BatchHeader, position: int) -> None:
        """Add a batch at a position of the segment."""
        assert self._offset_index is not None and self._time_index is not None
        if self._max_timestamp is None or header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
        if position - self._indexed_position > self._interval_bytes:
            self._offset_index.append(header.base_offset - self._base_offset, position)
            self._time_index.append(self._max_timestamp, header.last_offset - self._base_offset)
            self._indexed_position = position

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an aborted transaction, whose marker is in this segment."""
        # A new list: readers in other threads continue with the old one.
        self._aborted = [*self.aborted_transactions(), aborted]

    def cut(self, next_offset: int) -> OffsetIndex:
        """Forget what lies from an offset on; return the offset index.

        Batches can be noted again. What the offset index has lost of those before the offset, the
        caller has to note, from its last position on. Raises OSError, KafkaStorageError.
        """
        self._aborted = [
            each for each in self.aborted_transactions() if each.last_offset < next_offset
        ]
        # The files would be wrong now; closing the log or recovery writes them again.
        self._remove_files()
        offset_index, time_index = self._offset_index, self._time_index
        if offset_index is None or time_index is None:
            return self._begin_from(OffsetIndex(), TimeIndex())
        relative_offset = max(next_offset - self._base_offset, 0)
        offset_index.truncate(relative_offset)
        time_index.truncate(relative_offset)
        return self._begin_from(offset_index, time_index)

    # --- of any segment ---

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp in the segment (ms), -1 if it has none."""
        if self._max_timestamp is None:
            self._max_timestamp = self._stored_max_timestamp()
        return self._max_timestamp

    def offset_index(self, segment_size: int) -> OffsetIndex | None:
        """Return the offset index, read from its file if the segment is not written.

        None if the file is missing or damaged. Raises OSError.
        """
        index = self._offset_index
        return self._load_offset_index(segment_size) if index is None else index

    def first_offset_at(self, timestamp_ms: int) -> int:
        """Return the first offset whose record can be at a time (ms) or later; raises OSError."""
        time_index = self._time_index or self._load_time_index()
        return self._base_offset + (0 if time_index is None else time_index.lookup(timestamp_ms))

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """Return the aborted transactions whose markers are in this segment, oldest first.

        Raises KafkaStorageError.
        """
        aborted = self._aborted
        if aborted is None:
            path = self._file(TRANSACTION_INDEX_SUFFIX)
            try:
                stored = b"" if self._disk.size(path) is None else self._disk.read(path)
            except FileNotFoundError:  # retention has deleted it in the meantime
                stored = b""
            except OSError as error:
                raise KafkaStorageError(f"{path}: {error.strerror}") from error
            aborted = self._aborted = aborted_transactions.from_bytes(stored)
        return aborted

    def hold_times(self) -> None:
        """Keep the time index in memory: its file is about to be replaced. Raises OSError."""
        if self._time_index is None:
            self._time_index = self._load_time_index()

    def release(self) -> None:
        """Drop what is in memory; the files have it, or are not needed."""
        self._offset_index = None
        self._time_index = None
        self._aborted = None

    # --- files ---

    def complete(self, next_offset: int) -> None:
        """Add the newest timestamp as last entry: the segment ends at this offset, for now."""
        assert self._time_index is not None
        self._time_index.append(self.max_timestamp, next_offset - 1 - self._base_offset)

    def files(self) -> list[tuple[Path, bytes]]:
        """Return the paths and contents of the files."""
        assert self._offset_index is not None and self._time_index is not None
        files = [
            (self._file(INDEX_SUFFIX), self._offset_index.to_bytes()),
            (self._file(TIME_INDEX_SUFFIX), self._time_index.to_bytes()),
        ]
        if self._aborted:
            content = aborted_transactions.to_bytes(self._aborted)
            files.append((self._file(TRANSACTION_INDEX_SUFFIX), content))
        return files

    def write(self, *, durably: bool) -> None:
        """Write the files; raises OSError."""
        for path, content in self.files():
            if durably:
                self._disk.replace(path, content)
            else:
                self._disk.write(path, (content,))

    def sync(self) -> None:
        """Make the files durable; raises OSError."""
        suffixes = DERIVED_SUFFIXES if self._aborted else (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        for suffix in suffixes:
            self._disk.open(self._file(suffix), writable=True).fdatasync()

    def remove(self) -> None:
        """Delete the files, and drop what is in memory of them; raises OSError."""
        self._offset_index = None
        self._time_index = None
        self._remove_files()

    def are_stored(self, segment_size: int) -> bool:
        """Tell by their size whether there are files that may be complete."""
        index_size, time_index_size = (
            self._disk.size(self._file(suffix)) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )
        return (
            index_size is not None
            and index_size % OFFSET_ENTRY_BYTES == 0
            and time_index_size is not None
            and time_index_size % TIME_ENTRY_BYTES == 0
            and (time_index_size > 0 or segment_size == 0)
        )

    def _file(self, suffix: str) -> Path:
        return self._path.with_suffix(suffix)

    def _remove_files(self) -> None:
        for suffix in DERIVED_SUFFIXES:
            self._disk.remove(self._file(suffix))

    def _load_offset_index(self, segment_size: int) -> OffsetIndex | None:
        path = self._file(INDEX_SUFFIX)
        if self._disk.size(path) is None:
            return None
        return OffsetIndex.from_bytes(self._disk.read(path), segment_size)

    def _load_time_index(self) -> TimeIndex | None:
        path = self._file(TIME_INDEX_SUFFIX)
        if self._disk.size(path) is None:
            return None
        return TimeIndex.from_bytes(self._disk.read(path))

    def _stored_max_timestamp(self) -> int:
        path = self._file(TIME_INDEX_SUFFIX)
        size = self._disk.size(path)
        if not size or size < TIME_ENTRY_BYTES:
            return -1
        tail = self._disk.open(path).pread(TIME_ENTRY_BYTES, size - TIME_ENTRY_BYTES)
        return last_timestamp_of(tail)
