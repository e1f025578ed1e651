"""Fixes of many devices: reading from the history, splitting by bucket, grouping by device."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from spark.fixes.fixes import Fixes
from waylog.history.history_reader import DeviceRun, device_runs
from waylog.history.row_groups import read_row_groups
from waylog.history.row_layout import stored_names, to_units
from waylog.history.storage import Storage

_WHERE: Final = ("kafka_partition", "kafka_offset")


class Part(NamedTuple):
    """Fixes of several devices, in the order of the history."""

    devices: list[str]
    codes: NDArray[np.int32]  # index into devices
    time: NDArray[np.int64]
    lat: NDArray[np.int32]
    lon: NDArray[np.int32]
    accuracy: NDArray[np.float32]

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Part:
        """Return the selected fixes."""
        return Part(
            self.devices,
            self.codes[rows],
            self.time[rows],
            self.lat[rows],
            self.lon[rows],
            self.accuracy[rows],
        )


class Source(NamedTuple):
    """A file of the history, or its rows from certain offsets on."""

    path: str
    #: Only rows at or after these offsets, by partition; None means all rows.
    offsets: dict[int, int] | None


def join_parts(parts: Sequence[Part]) -> Part:
    """Return the fixes of all parts, concatenated."""
    if len(parts) == 1:
        return parts[0]
    codes: dict[str, int] = {}
    for part in parts:
        for device in part.devices:
            codes.setdefault(device, len(codes))
    own_codes = [
        np.array([codes[device] for device in part.devices], np.int32)[part.codes] for part in parts
    ]
    return Part(
        list(codes),
        np.concatenate(own_codes),
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.lat for part in parts]),
        np.concatenate([part.lon for part in parts]),
        np.concatenate([part.accuracy for part in parts]),
    )


def read_source(storage: Storage, source: Source) -> Iterator[Part]:
    """Yield the fixes of a file, several row groups at a time."""
    with storage.open_input(source.path) as stream:
        file = pq.ParquetFile(stream, read_dictionary=["device"])
        runs = device_runs(file)
        columns = stored_names(file.schema_arrow.names, ["time", "lat", "lon", "accuracy"])
        if runs is None:
            columns.append("device")
        if source.offsets is not None:
            columns += _WHERE
        start = 0
        for batch in read_row_groups(file, columns):
            if not batch.num_rows:
                continue
            part = part_of(batch) if runs is None else _part_of_runs(batch, runs, start)
            start += batch.num_rows
            if source.offsets is not None:
                partition = batch["kafka_partition"].to_numpy()
                offset = batch["kafka_offset"].to_numpy()
                part = part.take(is_new(partition, offset, source.offsets))
            if len(part.time):
                yield part


def _part_of_runs(batch: pa.RecordBatch, runs: list[DeviceRun], start: int) -> Part:
    """Return a batch of a compacted file that starts at row `start`.

    The runs in the file's footer tell the rows of each device.
    """
    stop = start + batch.num_rows
    own = [run for run in runs if run.start < stop and run.stop > start]
    counts = [min(run.stop, stop) - max(run.start, start) for run in own]
    return Part(
        [run.device for run in own],
        np.repeat(np.arange(len(own), dtype=np.int32), counts),
        _time(batch),
        _units(batch, "lat"),
        _units(batch, "lon"),
        _accuracy(batch),
    )


def is_new(
    partition: NDArray[np.int32], offset: NDArray[np.int64], offsets: dict[int, int]
) -> NDArray[np.bool_]:
    """Return a mask of the rows at or after the given offset of their partition."""
    result = np.ones(len(offset), np.bool_)
    for number, start in offsets.items():
        result &= (partition != number) | (offset >= start)
    return result


def part_of(batch: pa.RecordBatch) -> Part:
    """Return the fixes of a batch, of rows or of a file."""
    device = batch["device"]
    if not pa.types.is_dictionary(device.type):
        device = pc.dictionary_encode(device)
    return Part(
        device.dictionary.to_pylist(),
        device.indices.to_numpy().astype(np.int32, copy=False),
        _time(batch),
        _units(batch, "lat"),
        _units(batch, "lon"),
        _accuracy(batch),
    )


def _time(batch: pa.RecordBatch) -> NDArray[np.int64]:
    result: NDArray[np.int64] = batch["time"].cast(pa.int64()).to_numpy()
    return result


def _units(batch: pa.RecordBatch, name: str) -> NDArray[np.int32]:
    """Return a coordinate, whether the column has degrees or, as older files, units."""
    [stored] = stored_names(batch.schema.names, [name])
    values = batch[stored].to_numpy()
    return to_units(values) if stored == name else values


def _accuracy(batch: pa.RecordBatch) -> NDArray[np.float32]:
    column = batch["accuracy"]
    if column.null_count == len(column):
        return np.full(len(column), np.nan, np.float32)
    result: NDArray[np.float32] = pc.fill_null(column.cast(pa.float32()), np.nan).to_numpy()
    return result


def bucket_of(device: str, buckets: int) -> int:
    """Return the bucket of a device, the same in every process and version."""
    return zlib.crc32(device.encode()) % buckets


def split(part: Part, buckets: int) -> Iterator[tuple[int, Part]]:
    """Yield the fixes of each bucket, in their original order."""
    owner = np.array([bucket_of(device, buckets) for device in part.devices], np.uint16)
    if not len(owner) or (owner == owner[0]).all():
        if len(owner):
            yield int(owner[0]), part
        return
    row_owner = owner[part.codes]
    # Numpy sorts 16-bit integers by counting: one pass for any number of buckets.
    order = np.argsort(row_owner, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(row_owner, minlength=buckets))])
    for bucket in np.flatnonzero(np.diff(bounds)).tolist():
        yield bucket, part.take(order[bounds[bucket] : bounds[bucket + 1]])


_SHARD_SCHEMA: Final = pa.schema(
    [
        ("device", pa.dictionary(pa.int32(), pa.string())),
        ("time", pa.int64()),
        ("lat", pa.int32()),
        ("lon", pa.int32()),
        ("accuracy", pa.float32()),
    ]
)


def shard_batch(part: Part) -> pa.RecordBatch:
    """Return a part as an Arrow batch whose dictionary has only the devices that occur."""
    used = np.flatnonzero(np.bincount(part.codes, minlength=len(part.devices)))
    codes = np.zeros(len(part.devices), np.int32)
    codes[used] = np.arange(len(used))
    names = pa.array([part.devices[code] for code in used.tolist()], pa.string())
    device = pa.DictionaryArray.from_arrays(pa.array(codes[part.codes]), names)
    return pa.RecordBatch.from_arrays(
        [
            device,
            pa.array(part.time),
            pa.array(part.lat),
            pa.array(part.lon),
            pa.array(part.accuracy),
        ],
        schema=_SHARD_SCHEMA,
    )


class Shard(NamedTuple):
    """A temporary file of fixes of one bucket."""

    bucket: int
    name: str
    periods: tuple[str, ...]  # period of each of its parts, ascending
    rows: int


class ShardWriter:
    """A writer of fixes of one bucket, for the task that reads them; a context manager."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.rows = 0
        self._stream = storage.open_output(name)
        self._writer = pa.ipc.new_stream(
            self._stream, _SHARD_SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4")
        )

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        self._stream.close()

    def write(self, part: Part) -> None:
        """Append fixes."""
        self._writer.write_batch(shard_batch(part))
        self.rows += len(part.time)


def read_shard(storage: Storage, name: str) -> Iterator[Part]:
    """Yield the parts that a ShardWriter wrote."""
    with (
        storage.open_input(name) as stream,
        pa.ipc.open_stream(stream, options=pa.ipc.IpcReadOptions(use_threads=False)) as reader,
    ):
        for batch in reader:
            device = batch["device"]
            yield Part(
                device.dictionary.to_pylist(),
                device.indices.to_numpy(),
                batch["time"].to_numpy(),
                batch["lat"].to_numpy(),
                batch["lon"].to_numpy(),
                batch["accuracy"].to_numpy(),
            )


def _joined(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """Return a column of all parts, without copying it if there is only one part."""
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def by_device(parts: Sequence[Part]) -> Iterator[tuple[str, Fixes]]:
    """Yield each device once, with its fixes ascending by time; the sort is stable."""
    codes: dict[str, int] = {}
    for part in parts:
        for device in part.devices:
            codes.setdefault(device, len(codes))
    if not codes:
        return
    narrow = np.uint16 if len(codes) <= 1 << 16 else np.uint32
    row_codes = np.concatenate(
        [np.array([codes[device] for device in part.devices], narrow)[part.codes] for part in parts]
    )
    time = _joined([part.time for part in parts])
    lat = _joined([part.lat for part in parts])
    lon = _joined([part.lon for part in parts])
    accuracy = _joined([part.accuracy for part in parts])
    counts = np.bincount(row_codes, minlength=len(codes))
    bounds = np.concatenate([[0], np.cumsum(counts)])
    grouped = bool((row_codes[1:] >= row_codes[:-1]).all())
    if not grouped:
        order = np.argsort(row_codes, kind="stable")
        time, lat, lon, accuracy = time[order], lat[order], lon[order], accuracy[order]
    ascending = np.concatenate([[True], time[1:] >= time[:-1]])
    for device, code in codes.items():
        own = slice(int(bounds[code]), int(bounds[code + 1]))
        if own.start == own.stop:
            continue
        fixes = Fixes(time[own], lat[own], lon[own], accuracy[own])
        if not ascending[own.start + 1 : own.stop].all():
            fixes = fixes.take(np.argsort(fixes.time, kind="stable"))
        yield device, fixes
