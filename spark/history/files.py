"""The files of a history, to which each batch is added exactly once.

Tasks write a batch's rows to staged files; `commit` then gives these files their final names. If
the process is killed at any point, the batch is repeated. The files in the folder determine what
the repetition still has to do, so that the result is right even if Spark's checkpoint is lost:

- A file `location-P-F-L` of a date holds all rows of that date among the offsets F..L. Rows that
  such a file covers are not written again.
- An id that is among the newest ids before a row, in its partition, is a duplicate and left out.
  A device always has the same partition, so looking at one partition is enough.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark.fixes.recent_ids import RecentIds
from spark.fixes.schema import fix_hashes
from spark.fixes.staging import FOLDER, PARQUET_OPTIONS, StagedFile, rewrite_landed
from waylog.history.history_reader import HistoryReader, erased_before
from waylog.history.row_layout import HISTORY_SCHEMA
from waylog.history.storage import Storage

logger = logging.getLogger(__name__)

#: Recent ids that are kept per partition: 8 bytes each in the job's memory.
RECENT_IDS: Final = 500_000

# Limit of the files that are read for ids: many tiny files would make the start slow.
_FILES_READ_MAX: Final = 5_000


class _Covered(NamedTuple):
    """A range of offsets of one date and partition that the history has, and the files with it."""

    paths: list[str]
    date: str
    partition: int
    first: int
    last: int


@dataclass
class Committed:
    """The counts of a batch."""

    rows: int = 0
    files: int = 0
    duplicates: int = 0  # fixes that were sent again and were in the history already
    repeated: int = 0  # rows that an interrupted attempt of the batch had written


class HistoryFiles:
    """The writer of a history, of which only one may run at a time."""

    def __init__(self, storage: Storage, recent_ids: int = RECENT_IDS) -> None:
        self._storage = storage
        self._recent_ids = recent_ids
        self._windows: dict[int, RecentIds] = {}
        # Files of earlier runs by partition. After a partition's first batch, only those remain
        # that cover offsets at or after its start.
        self._found: dict[int, list[_Covered]] = defaultdict(list)
        self._erased: dict[str, int] = {}

    def open(self) -> None:
        """Read the list of files, and clean up after a run that was killed."""
        self._storage.open_folder()
        self._storage.create_folder(FOLDER)
        self._storage.delete_folder(FOLDER)
        self._erased = erased_before(self._storage)
        self._windows.clear()
        self._look()

    def _look(self) -> None:
        reader = HistoryReader(self._storage.url)
        self._found.clear()
        for period in reader.periods():
            compacted = [file.path for file in reader.files(period) if file.span is None]
            for file in reader.files(period):
                if file.span is not None:
                    self._found[file.span.partition].append(
                        _Covered([file.path], file.date, *msgspec.structs.astuple(file.span))
                    )
            for date, spans in reader.compacted_spans(period).items():
                for span in spans:
                    self._found[span.partition].append(
                        _Covered(compacted, date, *msgspec.structs.astuple(span))
                    )

    def next_offsets(self) -> dict[int, int]:
        """Return one past the newest offset of each partition's files, as found by `open`."""
        return {
            partition: max(file.last for file in files) + 1
            for partition, files in self._found.items()
            if files
        }

    def commit(self, landed: Sequence[StagedFile]) -> Committed:
        """Add the files of one batch to the history."""
        committed = Committed()
        folders: set[str] = set()

        def partition_of(file: StagedFile) -> int:
            return file.partition

        for partition, files in groupby(sorted(landed, key=partition_of), key=partition_of):
            self._commit_partition(partition, list(files), committed, folders)
        for folder in folders:
            self._storage.flush_folder(folder)
        if folders:
            self._storage.flush_folder("")
        self._erase_again(landed)
        return committed

    def _erase_again(self, landed: Sequence[StagedFile]) -> None:
        """Remove rows of devices that were erased after the rows were read.

        The erasure may have searched the history before these files had their final names.
        """
        erased = erased_before(self._storage)
        if erased == self._erased:
            return
        for file in landed:
            if self._storage.exists(file.final_path):
                rewrite_landed(self._storage, file.final_path, erased)
        self._erased = erased

    def _commit_partition(
        self, partition: int, files: list[StagedFile], committed: Committed, folders: set[str]
    ) -> None:
        start = min(file.first for file in files)
        window = self._windows.get(partition)
        if window is None:
            try:
                window = self._rebuild(partition, start)
            except FileNotFoundError:
                # A compaction has replaced files since they were listed.
                self._look()
                window = self._rebuild(partition, start)
            self._windows[partition] = window
        older = self._found[partition] = [
            file for file in self._found[partition] if file.last >= start
        ]
        offsets = [np.frombuffer(file.offsets, np.int64) for file in files]
        hashes = np.concatenate([np.frombuffer(file.hashes, np.uint64) for file in files])
        # A range with several dates has several files, whose offsets interleave.
        order = np.argsort(np.concatenate(offsets), kind="stable")
        duplicate = np.empty(len(hashes), np.bool_)
        duplicate[order] = window.repeated(hashes[order])
        window.extend(hashes[order][~duplicate[order]])

        position = 0
        for file, own in zip(files, offsets, strict=True):
            doubled = duplicate[position : position + len(own)]
            position += len(own)
            covered = _covered(own, file.date, older)
            keep = ~(doubled | covered)
            committed.duplicates += int((doubled & ~covered).sum())
            committed.repeated += int(covered.sum())
            kept = int(keep.sum())
            if kept:
                if kept < len(own):
                    table = self._storage.read_parquet(file.path)
                    self._storage.write_parquet(
                        file.path, table.filter(pa.array(keep)), **PARQUET_OPTIONS
                    )
                folder = file.final_path.rpartition("/")[0]
                if folder not in folders:
                    self._storage.create_folder(folder)
                    folders.add(folder)
                self._storage.rename(file.path, file.final_path)
                committed.rows += kept
                committed.files += 1
            else:
                self._storage.delete(file.path)

    def _read_ids(self, file: _Covered) -> pa.Table:
        """Return the ids, devices and offsets of the rows in a range."""
        tables = [
            self._storage.read_parquet(path, ["id", "device", "kafka_partition", "kafka_offset"])
            for path in file.paths
        ]
        table = pa.concat_tables(tables) if tables else HISTORY_SCHEMA.empty_table()
        own = pc.equal(table["kafka_partition"], file.partition)
        own = pc.and_(own, pc.greater_equal(table["kafka_offset"], file.first))
        return table.filter(pc.and_(own, pc.less_equal(table["kafka_offset"], file.last)))

    def _rebuild(self, partition: int, before: int) -> RecentIds:
        """Rebuild the window of recent ids of a partition as it was before an offset."""
        offsets: list[NDArray[np.int64]] = []
        hashes: list[NDArray[np.uint64]] = []
        count = 0
        limit = self._recent_ids
        newest_first = sorted(
            (file for file in self._found[partition] if file.first < before),
            key=lambda file: file.last,
            reverse=True,
        )
        for file in newest_first[: _FILES_READ_MAX if limit else 0]:
            # Files of several dates share a range, so enough rows need not be the newest rows.
            if count >= limit and np.sort(np.concatenate(offsets))[-limit] > file.last:
                break
            table = self._read_ids(file)
            own = table["kafka_offset"].to_numpy()
            earlier = own < before
            offsets.append(own[earlier])
            hashes.append(fix_hashes(table)[earlier])
            count += len(offsets[-1])
        if not count:
            return RecentIds(limit, np.empty(0, np.uint64))
        order = np.argsort(np.concatenate(offsets), kind="stable")
        return RecentIds(limit, np.concatenate(hashes)[order])


def _covered(offsets: NDArray[np.int64], date: str, older: Sequence[_Covered]) -> NDArray[np.bool_]:
    covered = np.zeros(len(offsets), np.bool_)
    for file in older:
        if file.date == date and file.first <= offsets[-1] and file.last >= offsets[0]:
            covered |= (offsets >= file.first) & (offsets <= file.last)
    return covered
