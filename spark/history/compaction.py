"""Compaction: merging the files of a day into a few files that are quick to read.

When a month is over, its small days are merged once more, into one file. Rows are sorted by the
mean position of their device (along a Z-order curve), then by device, then by time. So a day or
month of a device is contiguous, which suits tracks, the places job and delta encoding. Devices near
each other are stored near each other, so that the statistics of a row group tell its area.

Files become current when the manifest names them (waylog.history.history_reader).
"""

from __future__ import annotations

import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spark.fixes.schema import DICTIONARY
from spark.fixes.staging import without_erased
from waylog.history.file_names import (
    MONTH_LENGTH,
    HistoryFile,
    OffsetSpan,
    compacted_path,
    folder_of,
)
from waylog.history.history_reader import (
    RUNS_KEY,
    CompactedDate,
    CompactedFile,
    HistoryReader,
    encode_runs,
    merge_spans,
)
from waylog.history.row_groups import read_row_groups
from waylog.history.row_layout import HISTORY_SCHEMA, STORED_SCHEMA, to_stored, to_units
from waylog.history.storage import Storage
from waylog.process.file_limit import raise_file_limit

# Rows while they are sorted: HISTORY_SCHEMA with positions as whole numbers of 1e-7 degrees, which
# take half the memory, and whose sums are exact.
_SORTED_SCHEMA: Final = pa.schema(
    [
        pa.field(f"{field.name}_e7", pa.int32(), nullable=False)
        if field.name in {"lat", "lon"}
        else field
        for field in HISTORY_SCHEMA
    ]
)

# A query for one device reads whole row groups. Small ones are cheap to read, but each adds entries
# to the footer. So a day has some sixty, within these bounds.
_GROUPS: Final = 64
_GROUP_ROWS_MIN: Final = 2_048
_GROUP_ROWS_MAX: Final = 65_536

#: Size in bytes at which a file is closed.
FILE_BYTES: Final = 256 << 20

#: Rows that are sorted in memory at a time.
SORT_ROWS: Final = 500_000

# Encodings that every reader knows: BYTE_STREAM_SPLIT of whole numbers would save 3 %, and Trino
# and many a Spark do not read it. Which encoding of texts is smaller depends on how a fleet names
# its fixes, so the first rows of each file decide.
_ID_ENCODINGS: Final = ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
_ENCODINGS: Final = {
    "lat": "PLAIN",
    "lon": "PLAIN",
    "time": "DELTA_BINARY_PACKED",
    "received": "DELTA_BINARY_PACKED",
    "kafka_offset": "DELTA_BINARY_PACKED",
}
_LEVEL: Final = 9
# Ids have no repetitions, so searching for them only costs time. Of positions, the next levels gain
# half a percent and take half as long again.
_LEVELS: Final = {"id": 1, "lat": 6, "lon": 6}
_DICTIONARY: Final = (
    *DICTIONARY,
    *("accuracy", "altitude", "vertical_accuracy", "speed", "course", "battery"),
)
_FOLDER: Final = "_compacting"


class CompactionTask(NamedTuple):
    """The compaction of one period of a history."""

    history: str
    period: str
    files: list[HistoryFile]
    days: dict[str, list[OffsetSpan]]  # offsets of all rows of each date in these files
    sort_rows: int = SORT_ROWS
    file_bytes: int = FILE_BYTES


class CompactionResult(NamedTuple):
    """The new files of a period, to be put into the manifest."""

    period: str
    sources: list[HistoryFile]
    compacted: CompactedDate
    rows_before: int
    bytes_before: int


def plan_period(reader: HistoryReader, period: str) -> CompactionTask:
    """Make one task of all current files of a period; a month includes the files of its dates."""
    days: dict[str, list[OffsetSpan]] = defaultdict(list)
    files: list[HistoryFile] = []
    for own in (each for each in reader.periods() if each.startswith(period)):
        files += reader.files(own)
        for date, spans in reader.compacted_spans(own).items():
            days[date] += spans
        for file in reader.files(own):
            if file.span is not None:
                days[file.date].append(file.span)
    merged = {date: merge_spans(spans) for date, spans in sorted(days.items())}
    return CompactionTask(reader.storage.url, period, files, merged)


def compact_period(task: CompactionTask) -> CompactionResult:
    """Write the compacted files of a period aside; runs in a task.

    They get their names, and are current, when the manifest names them
    (`ManifestWriter.commit`).
    """
    storage = Storage(task.history)
    raise_file_limit()  # each chunk has an open file while rows are distributed
    parts = _Chunks(storage, task)
    parts.measure()
    writer = _Writer(storage, task, parts.rows)
    try:
        for chunk in parts.chunks():
            writer.write(chunk)
            del chunk  # free it before the next one is read
    finally:
        writer.close()
    if parts.rows - parts.doubled != writer.rows:
        # Never replace files by others with fewer rows.
        raise RuntimeError(
            f"{task.period}: {parts.rows} rows were read and {writer.rows} written: nothing changed"
        )
    month = len(task.period) == MONTH_LENGTH
    spans = merge_spans([span for own in task.days.values() for span in own])
    return CompactionResult(
        task.period,
        task.files,
        CompactedDate(writer.files, spans, task.days if month else {}),
        parts.rows,
        sum(file.bytes for file in task.files),
    )


class _Chunks:
    """The sorted rows of a period, in chunks that fit in memory."""

    def __init__(self, storage: Storage, task: CompactionTask) -> None:
        self._storage = storage
        self._task = task
        self._counts = _DeviceCounts()
        self.rows = 0
        self.doubled = 0

    def chunks(self) -> Iterator[pa.Table]:
        devices, ranks = self._counts.order()
        # Devices share a chunk while their rows fit; a device is never split.
        chunk_of = np.zeros(len(devices), np.int64)
        filled = number = 0
        for index, rows in enumerate(self._counts.rows[ranks].tolist()):
            if filled and filled + rows > self._task.sort_rows:
                number, filled = number + 1, 0
            chunk_of[index] = number
            filled += rows
        order = {device: index for index, device in enumerate(devices)}
        if number == 0:
            yield self._sorted(pa.Table.from_batches(self._read(), _SORTED_SCHEMA), order)
            return
        with ExitStack() as stack:
            files = [stack.enter_context(self._scratch_file()) for _ in range(number + 1)]
            self._spread(order, chunk_of, files)
            for file in files:
                yield self._sorted(_read_stream(file), order)
                file.close()

    def _scratch_file(self) -> IO[bytes]:
        """Return a file without a name: of a killed compaction nothing stays on the disk."""
        folder = None
        if self._storage.local:
            # Positions lie on no other disk than that of the history.
            self._storage.create_folder(_FOLDER)
            folder = Path(self._storage.path) / _FOLDER
        return tempfile.TemporaryFile(dir=folder)

    def measure(self) -> None:
        """Count the rows of each device and sum up their positions."""
        for batch in self._read(["device", "lat_e7", "lon_e7"]):
            self._counts.add(batch)
            self.rows += batch.num_rows

    def _read(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield rows of all files in the order of the history, with columns of _SORTED_SCHEMA."""
        names = list(_SORTED_SCHEMA.names if columns is None else columns)
        schema = pa.schema([_SORTED_SCHEMA.field(name) for name in names])
        for file in self._task.files:
            with self._storage.open_input(file.path) as stream:
                parquet = pq.ParquetFile(stream)
                there = set(parquet.schema_arrow.names)
                wanted = [
                    name if name in there else name.removesuffix("_e7")
                    for name in names
                    if name in there or name.removesuffix("_e7") in there
                ]
                for batch in read_row_groups(parquet, wanted):
                    yield _compacted(batch, schema)

    def _spread(
        self, order: dict[str, int], chunk_of: NDArray[np.int64], files: Sequence[IO[bytes]]
    ) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        writers = [pa.ipc.new_stream(file, _SORTED_SCHEMA, options=options) for file in files]
        try:
            for batch in self._read():
                position = _positions(batch["device"], order)
                owner = np.where(position < 0, -1, chunk_of[np.maximum(position, 0)])
                for chunk in np.unique(owner[owner >= 0]).tolist():
                    writers[chunk].write_batch(batch.filter(pa.array(owner == chunk)))
        finally:
            for writer in writers:
                writer.close()

    def _sorted(self, table: pa.Table, order: dict[str, int]) -> pa.Table:
        if not table.num_rows:
            return table
        position = _positions(table["device"].combine_chunks(), order)
        time = table["time"].to_numpy()
        rows = np.lexsort((table["kafka_offset"].to_numpy(), time, position))
        rows = rows[np.searchsorted(position[rows], 0) :]
        places = pa.array(rows)
        # Copy and release one column at a time: two copies of the table would take most of the
        # memory.
        columns = []
        while table.num_columns:
            columns.append(table.column(0).combine_chunks().take(places))
            table = table.remove_column(0)
        table = pa.Table.from_arrays(columns, schema=_SORTED_SCHEMA)
        # A fix that was sent again long after the first time: the first one in the log is kept.
        ids = table["id"].combine_chunks()
        again = np.zeros(len(rows), np.bool_)
        again[1:] = (
            (position[rows][1:] == position[rows][:-1])
            & (time[rows][1:] == time[rows][:-1])
            & pc.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
        )
        if again.any():
            self.doubled += int(again.sum())
            table = table.filter(pa.array(~again))
        return table


class _DeviceCounts:
    """The number of rows and the mean position of each device."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self.rows = np.zeros(0, np.int64)
        self._lat = np.zeros(0, np.int64)
        self._lon = np.zeros(0, np.int64)

    def add(self, batch: pa.RecordBatch) -> None:
        device = pc.dictionary_encode(batch["device"])
        names = device.dictionary.to_pylist()
        for name in names:
            self._index.setdefault(name, len(self._index))
        missing = len(self._index) - len(self.rows)
        if missing:
            self.rows, self._lat, self._lon = (
                np.concatenate([column, np.zeros(missing, np.int64)])
                for column in (self.rows, self._lat, self._lon)
            )
        own = np.array([self._index[name] for name in names])
        codes = device.indices.to_numpy()
        count = len(names)
        self.rows[own] += np.bincount(codes, minlength=count)
        for total, name in ((self._lat, "lat_e7"), (self._lon, "lon_e7")):
            # Sums below 2**53 are exact in a double, and a mean for sorting needs no more.
            total[own] += np.bincount(codes, batch[name].to_numpy(), count).astype(np.int64)

    def order(self) -> tuple[list[str], NDArray[np.int64]]:
        """Return the devices in the order of the file, and their indexes here."""
        names = list(self._index)
        curve = z_order(self._lat // self.rows, self._lon // self.rows)
        by_name = np.argsort(np.array(names, object), kind="stable")
        order = by_name[np.argsort(curve[by_name], kind="stable")]
        return [names[index] for index in order.tolist()], order


def z_order(lat: NDArray[np.int64], lon: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the Z-order of positions in 1e-7 degrees, in cells of 2048 units (some 23 m)."""
    # Both coordinates fit into 21 bits.
    north = ((lat + 900_000_000) >> 11).astype(np.uint64)
    east = ((lon + 1_800_000_000) >> 11).astype(np.uint64)
    return _spaced(north) << np.uint64(1) | _spaced(east)


def _spaced(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers below 2**32 with a zero between every two bits."""
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        values = (values | values << np.uint64(shift)) & np.uint64(mask)
    return values


def _read_stream(file: IO[bytes]) -> pa.Table:
    file.seek(0)
    with pa.ipc.open_stream(file) as reader:
        return reader.read_all()


def _positions(device: pa.Array, order: dict[str, int]) -> NDArray[np.int64]:
    """Return the position of each row's device in the file's order; -1 for one that is left out."""
    encoded = pc.dictionary_encode(device)
    places = np.array([order.get(name, -1) for name in encoded.dictionary.to_pylist()], np.int64)
    result: NDArray[np.int64] = places[encoded.indices.to_numpy()]
    return result


def _compacted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if batch.schema.get_field_index(field.name) >= 0:
            columns.append(batch[field.name].cast(field.type))
        elif field.name.endswith("_e7"):
            columns.append(pa.array(to_units(batch[field.name.removesuffix("_e7")].to_numpy())))
        else:
            # A member that did not exist when this file was written.
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def choose_id_encoding(ids: pa.Table) -> str:
    """Choose the encoding of a file's ids, the only column, by the size of a sample."""
    sizes = {}
    for encoding in _ID_ENCODINGS:
        stream = pa.BufferOutputStream()
        pq.write_table(
            ids,
            stream,
            compression="zstd",
            compression_level=_LEVELS["id"],
            use_dictionary=False,
            column_encoding=encoding,
        )
        sizes[encoding] = stream.tell()
    return min(_ID_ENCODINGS, key=sizes.__getitem__)


class _Writer:
    """A writer of chunks into files of FILE_BYTES."""

    def __init__(self, storage: Storage, task: CompactionTask, rows: int) -> None:
        self._storage = storage
        self._task = task
        self._group_rows = min(_GROUP_ROWS_MAX, max(_GROUP_ROWS_MIN, rows // _GROUPS))
        self._run = uuid.uuid4().hex[:12]
        self._stream: Any = None
        self._parquet: Any = None
        self._path = ""
        self._runs: list[tuple[str, int]] = []
        self._file_rows = 0
        self.files: list[CompactedFile] = []
        self.rows = 0
        storage.create_folder(_FOLDER)
        storage.create_folder(folder_of(task.period))

    def write(self, table: pa.Table) -> None:
        """Append sorted rows."""
        start = 0
        while start < table.num_rows:
            if self._parquet is None:
                self._open(table.slice(start, self._group_rows))
            piece = table.slice(start, self._group_rows)
            stored = to_stored(piece)
            self._parquet.write_table(stored, row_group_size=self._group_rows)
            runs = pc.run_end_encode(piece["device"].combine_chunks())
            ends = runs.run_ends.to_numpy()
            for name, count in zip(
                runs.values.to_pylist(), np.diff(ends, prepend=0).tolist(), strict=True
            ):
                begun = self._runs and self._runs[-1][0] == name
                self._runs.append((name, count + (self._runs.pop()[1] if begun else 0)))
            start += piece.num_rows
            self._file_rows += piece.num_rows
            self.rows += piece.num_rows
            if self._stream.tell() >= self._task.file_bytes:
                self.close()

    def write_empty(self) -> None:
        """Write a file without rows."""
        self._open(_SORTED_SCHEMA.empty_table())
        self._parquet.write_table(STORED_SCHEMA.empty_table())

    def _open(self, sample: pa.Table) -> None:
        self._path = compacted_path(self._task.period, self._run, len(self.files))
        self._stream = self._storage.open_output(_aside(self._path))
        self._parquet = pq.ParquetWriter(
            self._stream,
            STORED_SCHEMA,
            compression="zstd",
            compression_level=dict.fromkeys(STORED_SCHEMA.names, _LEVEL) | _LEVELS,
            use_dictionary=list(_DICTIONARY),
            column_encoding=_ENCODINGS | {"id": choose_id_encoding(sample.select(["id"]))},
            # For readers that do not use our list of devices in the footer.
            bloom_filter_options={
                "device": {"ndv": max(64, len(sample["device"].unique())), "fpp": 0.01}
            },
        )

    def close(self) -> None:
        """Finish the open file."""
        if self._parquet is None:
            return
        self._parquet.add_key_value_metadata({RUNS_KEY: encode_runs(self._runs)})
        self._parquet.close()
        size = self._stream.tell()
        self._stream.close()
        self._storage.flush(_aside(self._path))
        self.files.append(CompactedFile(self._path, self._file_rows, size))
        self._parquet = None
        self._runs, self._file_rows = [], 0


def name_files(storage: Storage, files: Sequence[CompactedFile]) -> None:
    """Give files that a compaction has written their names.

    From then on until older files are deleted, programs that list folders see rows twice. So it is
    done for all files at once, as late as possible.
    """
    for file in files:
        storage.rename(_aside(file.path), file.path)
    for folder in {file.path.rpartition("/")[0] for file in files}:
        storage.flush_folder(folder)


def _aside(path: str) -> str:
    return f"{_FOLDER}/{path.rpartition('/')[2]}.tmp"


def remove_scratch(storage: Storage) -> None:
    """Delete the files of an interrupted compaction."""
    storage.create_folder(_FOLDER)
    storage.delete_folder(_FOLDER)


def rewrite_without(
    storage: Storage, file: HistoryFile, erased: Mapping[str, int]
) -> tuple[CompactedFile, int]:
    """Rewrite a compacted file without erased rows, in the same order.

    Returns the new file, which is written aside, and the number of rows removed. It gets its name
    by `ManifestWriter.exchange`.
    """
    # One file is enough, because it only gets smaller.
    task = CompactionTask(storage.url, file.date, [file], {}, file_bytes=1 << 62)
    before = 0
    with storage.open_input(file.path) as stream:
        parquet = pq.ParquetFile(stream)
        writer = _Writer(storage, task, parquet.metadata.num_rows)
        for batch in read_row_groups(parquet, rows=_GROUP_ROWS_MAX):
            before += batch.num_rows
            kept = without_erased(_compacted(batch, _SORTED_SCHEMA), erased)
            writer.write(pa.Table.from_batches([kept], _SORTED_SCHEMA))
    if not writer.rows:
        # A file without rows is simpler for all readers than no file.
        writer.write_empty()
    writer.close()
    [written] = writer.files
    return written, before - writer.rows
