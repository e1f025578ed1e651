"""Staged files: tasks write rows under temporary names, before the job renames the files."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.fixes.schema import DAY_MS, DICTIONARY, date_text, fix_hashes
from waylog.history.file_names import OffsetSpan, landed_path
from waylog.history.history_reader import erased_before
from waylog.history.row_layout import HISTORY_SCHEMA, to_rows, to_stored
from waylog.history.storage import Storage

FOLDER: Final = "_landing"
ERASING: Final = "_erasing"

RowsT = TypeVar("RowsT", pa.RecordBatch, pa.Table)

#: Offsets that a file covers at most, which bounds the memory of a task.
CHUNK_OFFSETS: Final = 131_072

# Readable by Spark, DuckDB, pyarrow and Trino. Delta encoding suits offsets and times, which grow
# slowly.
PARQUET_OPTIONS: Final = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": list(DICTIONARY),
    "column_encoding": {
        "time": "DELTA_BINARY_PACKED",
        "received": "DELTA_BINARY_PACKED",
        "kafka_offset": "DELTA_BINARY_PACKED",
    },
}

#: The schema with one row for each file that a task has staged.
STAGED_SCHEMA: Final = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.int32()),
        ("date", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("offsets", pa.binary()),
        ("hashes", pa.binary()),
    ]
)


class StagedFile(NamedTuple):
    """A staged file with the rows of one date and one range of offsets."""

    path: str
    partition: int
    date: str  # UTC date of the fix times, YYYY-MM-DD
    first: int  # start of the range that was read; the rows lie within
    last: int  # end of the range, inclusive
    offsets: bytes  # int64 of each row, ascending
    hashes: bytes  # uint64 hash of each row's device and id

    @property
    def final_path(self) -> str:
        """The deterministic final name: the same when a batch is repeated."""
        return landed_path(self.date, OffsetSpan(self.partition, self.first, self.last))


def land(
    batches: Iterable[pa.RecordBatch], storage: Storage, start: int | None, end: int | None
) -> Iterator[pa.RecordBatch]:
    """Stage rows of one partition, ascending by offset; yield rows of STAGED_SCHEMA.

    `start` and `end` are the requested range, or None if it follows from the rows.
    """
    waiting: list[pa.RecordBatch] = []
    first = start
    erased = erased_before(storage)
    for batch in batches:
        rest = without_erased(batch, erased)
        while rest.num_rows:
            offsets = rest["kafka_offset"].to_numpy()
            if first is None:
                first = int(offsets[0])
            # Cut at fixed offsets, so that a repeated batch gives the same files.
            inside = int(np.searchsorted(offsets, first + CHUNK_OFFSETS))
            if inside:
                waiting.append(rest.slice(0, inside))
            rest = rest.slice(inside)
            if rest.num_rows:
                yield from _write(waiting, storage, first, first + CHUNK_OFFSETS - 1)
                waiting = []
                first += CHUNK_OFFSETS
    if waiting:
        assert first is not None
        last = int(waiting[-1]["kafka_offset"][-1].as_py()) if end is None else end - 1
        yield from _write(waiting, storage, first, min(last, first + CHUNK_OFFSETS - 1))


def without_erased(batch: RowsT, erased: Mapping[str, int]) -> RowsT:
    """Drop rows of erased devices.

    These are rows that were received, or whose fix time is, before the erasure of their device.
    """
    if not erased:
        return batch
    own = pc.is_in(batch["device"], pa.array(list(erased), pa.string()))
    if not pc.any(own).as_py():
        return batch
    before = np.array([erased.get(device, -(1 << 62)) for device in batch["device"].to_pylist()])
    oldest = np.minimum(batch["received"].to_numpy(), batch["time"].to_numpy())
    return batch.filter(pa.array(oldest > before))


def rewrite_landed(storage: Storage, path: str, erased: Mapping[str, int]) -> int:
    """Rewrite a file of the history without erased rows; return the number of rows removed.

    The file keeps its name even without rows, because the name tells which offsets were read.
    """
    table = to_rows(storage.read_parquet(path))
    kept = without_erased(table, erased)
    if kept.num_rows < table.num_rows:
        aside = f"{ERASING}/{uuid.uuid4().hex}"
        storage.create_folder(ERASING)
        storage.write_parquet(aside, to_stored(kept), **PARQUET_OPTIONS)
        storage.rename(aside, path)
        storage.flush_folder(path.rpartition("/")[0])
    return int(table.num_rows - kept.num_rows)


def _write(
    batches: list[pa.RecordBatch], storage: Storage, first: int, last: int
) -> Iterator[pa.RecordBatch]:
    if not batches:
        return
    table = pa.Table.from_batches(batches, HISTORY_SCHEMA).combine_chunks()
    days = np.floor_divide(table["time"].to_numpy(), DAY_MS)
    partition = int(table["kafka_partition"][0].as_py())
    landed = []
    for day in np.unique(days):
        rows = table if days.min() == days.max() else table.filter(pc.equal(pa.array(days), day))
        path = f"{FOLDER}/{partition}-{first}-{uuid.uuid4().hex}"
        storage.write_parquet(path, to_stored(rows), **PARQUET_OPTIONS)
        landed.append(
            StagedFile(
                path,
                partition,
                date_text(int(day)),
                first,
                last,
                rows["kafka_offset"].to_numpy().tobytes(),
                fix_hashes(rows).tobytes(),
            )
        )
    yield pa.RecordBatch.from_pylist([file._asdict() for file in landed], schema=STAGED_SCHEMA)
