"""Reads a history: lists the files that count now, and reads the rows of a device or a period.

A history is a folder, local or remote, with two kinds of Parquet files (waylog.history.file_names):
`location` files have fixes in the order they arrived, packed ones whole days or months, ordered for
reading. Both have the same columns (waylog.history.row_layout).

A *period* is a date, or a month if that month is packed: a month's name is a prefix of its dates.

`_manifest.json` lists the compacted files that count and the ranges of offsets they hold. A
`location` file that lies within such a range does not count any more, and is deleted a while later.
Without a manifest, all files count. The manifest is replaced atomically, so a reader that follows
it sees every fix once at any moment.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from waylog.history.file_names import MONTH_LENGTH, HistoryFile, OffsetSpan, parse_name
from waylog.history.row_groups import read_row_groups
from waylog.malformed import MALFORMED

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from waylog.history.storage import Storage

T = TypeVar("T")

MANIFEST: Final = "_manifest.json"

#: The list of erased devices: the history takes in nothing that was received before the erasure.
ERASED: Final = "_erased.json"

#: The footer key under which a compacted file lists its devices, in the order of its rows.
RUNS_KEY: Final = b"waylog.devices"

_ATTEMPTS: Final = 3


class HistoryUnreadable(Exception):
    """The history exists and cannot be read now; the message says why."""


class TrackTooLong(Exception):
    """A track has more rows than the caller allowed."""


class CompactedFile(msgspec.Struct, frozen=True):
    """A compacted file that the manifest lists."""

    path: str
    rows: int
    bytes: int


class CompactedDate(msgspec.Struct, frozen=True, omit_defaults=True):
    """The compacted files of one period, which hold all its rows within these spans."""

    files: list[CompactedFile]
    spans: list[OffsetSpan]
    #: For a month, the spans of each of its dates: a span of one date covers no rows of another.
    days: dict[str, list[OffsetSpan]] = {}

    def spans_by_date(self, period: str) -> dict[str, list[OffsetSpan]]:
        """Return the spans of each date of the period, given the period's name."""
        return self.days or {period: self.spans}


class Manifest(msgspec.Struct, frozen=True):
    """The file `_manifest.json`: the compacted files by period."""

    version: int = 0
    dates: dict[str, CompactedDate] = {}

    def period_of(self, date: str) -> str:
        """Return the period of a date."""
        month = date[:MONTH_LENGTH]
        return month if month in self.dates else date

    def covers(self, date: str, span: OffsetSpan) -> bool:
        """Return whether compacted files hold all rows of a date within a span."""
        period = self.period_of(date)
        compacted = self.dates.get(period)
        return compacted is not None and any(
            own.partition == span.partition and own.first <= span.first and span.last <= own.last
            for own in compacted.spans_by_date(period).get(date, ())
        )


class ErasedDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device whose fixes were erased."""

    device: str
    before: int  # ms; fixes that were sent or received up to this time are erased
    rewritten: bool = True  # the files have been searched and rewritten


class DeviceRun(NamedTuple):
    """The rows `start` to `stop` - 1 of a compacted file: those of one device, by time."""

    device: str
    start: int
    stop: int


class TrackRow(NamedTuple):
    """One point of a track; unknown values are None."""

    time: int  # ms
    lat: float
    lon: float
    altitude: float | None
    accuracy: float | None
    speed: float | None
    course: float | None


def merge_spans(spans: Sequence[OffsetSpan]) -> list[OffsetSpan]:
    """Return the same offsets in as few spans as possible, sorted."""
    merged: list[OffsetSpan] = []
    for span in sorted(spans):
        last = merged[-1] if merged else None
        if last and last.partition == span.partition and span.first <= last.last + 1:
            merged[-1] = OffsetSpan(last.partition, last.first, max(last.last, span.last))
        else:
            merged.append(span)
    return merged


def encode_runs(runs: Sequence[tuple[str, int]]) -> bytes:
    """Encode the devices of a file and their numbers of rows for its footer."""
    packed = msgspec.msgpack.encode(([name for name, _ in runs], [count for _, count in runs]))
    return base64.b64encode(zlib.compress(packed, 6))


def _unpack_runs(value: bytes) -> tuple[list[str], list[int]]:
    return msgspec.msgpack.decode(
        zlib.decompress(base64.b64decode(value)), type=tuple[list[str], list[int]]
    )


def decode_runs(value: bytes) -> list[DeviceRun]:
    """Decode what `encode_runs` has encoded."""
    names, counts = _unpack_runs(value)
    stops = accumulate(counts)
    return [
        DeviceRun(name, stop - count, stop)
        for name, count, stop in zip(names, counts, stops, strict=True)
    ]


def read_manifest(storage: Storage) -> Manifest:
    """Read the manifest, empty if there is none; raises HistoryUnreadable if it is broken."""
    content = storage.read_bytes(MANIFEST)
    if content is None:
        return Manifest()
    try:
        return msgspec.json.decode(content, type=Manifest)
    except MALFORMED as error:
        raise HistoryUnreadable(f"{storage.url}/{MANIFEST}: {error}") from error


def read_erased(storage: Storage) -> list[ErasedDevice]:
    """Return the devices that were erased from a history."""
    content = storage.read_bytes(ERASED)
    return [] if content is None else msgspec.json.decode(content, type=list[ErasedDevice])


def erased_before(storage: Storage) -> dict[str, int]:
    """Return the time (ms) up to which the fixes of each erased device were erased."""
    return {each.device: each.before for each in read_erased(storage)}


class HistoryReader:
    """The files of a history at one moment, and their rows."""

    def __init__(self, url: str) -> None:
        """Raises ConfigError for a URL that cannot be opened."""
        from waylog.history.storage import Storage

        self.storage = Storage(url)
        self.manifest = Manifest()
        self._files: dict[str, list[HistoryFile]] = {}
        self.refresh()

    def refresh(self) -> None:
        """List the files again, and read the manifest."""
        # Listed before the manifest is read: files that are compacted meanwhile are in the
        # manifest, and their sources are not deleted yet.
        listed = self.storage.list_sizes()
        self.manifest = read_manifest(self.storage)
        found: dict[str, list[HistoryFile]] = {
            date: [HistoryFile(file.path, date, None, file.bytes) for file in compacted.files]
            for date, compacted in self.manifest.dates.items()
        }
        for path, size in listed.items():
            file = parse_name(path, size)
            if file is None:
                continue
            assert file.span is not None
            if not self.manifest.covers(file.date, file.span):
                found.setdefault(self.manifest.period_of(file.date), []).append(file)
        for files in found.values():
            files.sort(key=lambda file: (file.span is not None, file.span, file.path))
        self._files = dict(sorted(found.items()))

    def periods(self, first: str | None = None, last: str | None = None) -> list[str]:
        """Return the periods, ascending; with `first` or `last`, only those within these dates."""
        return [
            period
            for period in self._files
            if (first is None or period >= first[: len(period)])
            and (last is None or period <= last[: len(period)])
        ]

    def dates(self) -> list[str]:
        """Return the dates that have fixes, ascending."""
        found = {
            date
            for period in self._files
            for date in (
                *self.compacted_spans(period),
                *(file.date for file in self.files(period) if file.span is not None),
            )
        }
        return sorted(found)

    def files(self, period: str | None = None) -> list[HistoryFile]:
        """Return the files that count: all, or those of a period or of a date's period."""
        if period is not None:
            return list(self._files.get(self.manifest.period_of(period), ()))
        return [file for files in self._files.values() for file in files]

    def spans_of(self, file: HistoryFile) -> list[OffsetSpan]:
        """Return the offsets in a file; for a compacted one, those in all files of its period."""
        return [file.span] if file.span is not None else self.manifest.dates[file.date].spans

    def compacted_spans(self, period: str) -> dict[str, list[OffsetSpan]]:
        """Return by date the spans that the period's compacted files cover."""
        compacted = self.manifest.dates.get(period)
        return {} if compacted is None else compacted.spans_by_date(period)

    def spans(self) -> Iterator[OffsetSpan]:
        """Yield the offset spans of all files."""
        for compacted in self.manifest.dates.values():
            yield from compacted.spans
        for file in self.files():
            if file.span is not None:
                yield file.span

    def retried(self, read: Callable[[], T], attempts: int = _ATTEMPTS) -> T:
        """Return what `read` returns, which is called again if a compaction has replaced files.

        Raises FileNotFoundError if files that were listed are gone at each attempt.
        """
        for _ in range(attempts - 1):
            try:
                return read()
            except FileNotFoundError:
                self.refresh()
        return read()

    def scan(
        self,
        period: str,
        devices: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one period, in the form of waylog.history.row_layout.

        With `devices`, skips files and row groups that have none of them; the batches still contain
        rows of other devices.
        """
        for file in self.files(period):
            yield from self.scan_file(file, devices, columns)

    def scan_file(
        self,
        file: HistoryFile,
        devices: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file, as `scan` does."""
        import pyarrow.parquet as pq

        from waylog.history.row_layout import stored_names, to_rows

        with self.storage.open_input(file.path) as stream:
            parquet = pq.ParquetFile(stream)
            groups = list(range(parquet.num_row_groups))
            if devices is not None:
                groups = _groups_of(parquet, devices)
            if not groups:
                return
            there = parquet.schema_arrow.names
            names = None if columns is None else stored_names(there, columns)
            for batch in read_row_groups(parquet, names, groups=groups):
                yield to_rows(batch)

    def track(
        self, device: str, from_ms: int, to_ms: int, *, rows_max: int | None = None
    ) -> list[TrackRow]:
        """Return points of a device with from_ms <= time <= to_ms, by time, without duplicates.

        Raises HistoryUnreadable if a file cannot be read, TrackTooLong for more than `rows_max`.
        """
        table = self.track_table(device, from_ms, to_ms, rows_max=rows_max)
        columns = (column.to_pylist() for column in table.columns)
        return [TrackRow(*values) for values in zip(*columns, strict=True)]

    def track_table(
        self, device: str, from_ms: int, to_ms: int, *, rows_max: int | None = None
    ) -> pa.Table:
        """Return the points as `track` does, as a table with the members of TrackRow."""
        import pyarrow as pa

        found: list[pa.RecordBatch] = []
        for period in self.periods():
            start, stop = period_bounds_ms(period)
            if start <= to_ms and stop > from_ms:
                found += self._track_of(period, device, from_ms, to_ms)
            if rows_max is not None and sum(batch.num_rows for batch in found) > rows_max:
                found = _each_once(pa.Table.from_batches(found)).to_batches()
                if sum(batch.num_rows for batch in found) > rows_max:
                    raise TrackTooLong(f"{device}: more than {rows_max} points")
        schema = pa.schema(
            [(name, pa.int64() if name == "time" else pa.float64()) for name in TrackRow._fields]
        )
        return _each_once(pa.Table.from_batches([batch.cast(schema) for batch in found], schema))

    def times(self, period: str, device: str, from_ms: int, to_ms: int) -> NDArray[np.int64]:
        """Return the times of a device's fixes in a period, ascending, each once.

        Costs a tenth of what the track costs. Raises HistoryUnreadable.
        """
        import numpy as np

        found = self._track_of(period, device, from_ms, to_ms, ("time",))
        empty = np.empty(0, np.int64)
        return np.unique(np.concatenate([empty, *(rows["time"].to_numpy() for rows in found)]))

    def measured(
        self, device: str, from_ms: int, to_ms: int, name: str
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the times of a device's fixes that have a value, and the values.

        `name` is a column of numbers. Times ascend, each is there once. Raises HistoryUnreadable.
        """
        import numpy as np

        times, values = [np.empty(0, np.int64)], [np.empty(0, np.float64)]
        for period in self.periods():
            start, stop = period_bounds_ms(period)
            if start <= to_ms and stop > from_ms:
                for rows in self._track_of(period, device, from_ms, to_ms, ("time", name)):
                    times.append(rows["time"].to_numpy())
                    values.append(rows[name].to_numpy(zero_copy_only=False).astype(np.float64))
        found = np.concatenate(values)
        known = ~np.isnan(found)
        each_once, first = np.unique(np.concatenate(times)[known], return_index=True)
        return each_once, found[known][first]

    def _track_of(
        self,
        period: str,
        device: str,
        from_ms: int,
        to_ms: int,
        columns: Sequence[str] = TrackRow._fields,
    ) -> list[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        def read() -> list[pa.RecordBatch]:
            found: list[pa.RecordBatch] = []
            for file in self.files(period):
                for rows in self._own_rows(file, device, columns):
                    within = pc.and_(
                        pc.greater_equal(rows["time"], from_ms),
                        pc.less_equal(rows["time"], to_ms),
                    )
                    found.append(rows.filter(within))
            return found

        try:
            return self.retried(read)
        except FileNotFoundError as error:
            raise HistoryUnreadable(f"the history of {period} changes: {error}") from error
        except (OSError, pa.ArrowException) as error:
            raise HistoryUnreadable(f"the history of {period} cannot be read: {error}") from error

    def _own_rows(
        self, file: HistoryFile, device: str, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a device in a file, with some members of TrackRow."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        from waylog.history.row_layout import stored_names, to_rows

        if file.span is not None:
            for batch in self.scan_file(file, [device], ["device", *columns]):
                yield batch.filter(pc.equal(batch["device"], device)).select(list(columns))
            return
        with self.storage.open_input(file.path) as stream:
            parquet = pq.ParquetFile(stream)
            # The footer tells which rows are the device's: names are neither read nor compared.
            own = _run_of(parquet.metadata, device)
            if own is None:
                return
            names = stored_names(parquet.schema_arrow.names, columns)
            start = 0
            for group in range(parquet.num_row_groups):
                stop = start + parquet.metadata.row_group(group).num_rows
                first, last = max(own.start, start), min(own.stop, stop)
                if first < last:
                    table = parquet.read_row_group(group, names, use_threads=False)
                    rows = table.slice(first - start, last - first).combine_chunks()
                    for batch in rows.to_batches():
                        yield to_rows(batch.select(names)).select(list(columns))
                start = stop


def _each_once(table: pa.Table) -> pa.Table:
    """Sort rows by time; of rows with the same time and place keep the one that came last."""
    import numpy as np
    import pyarrow as pa

    keys = [table[name].to_numpy() for name in ("time", "lat", "lon")]
    if (keys[0][1:] > keys[0][:-1]).all():
        return table  # already sorted, as in compacted files
    order = np.lexsort(keys[::-1])
    same = np.ones(max(0, len(order) - 1), np.bool_)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    # The sort is stable: of equal rows, the last one is the one that came last.
    return table.take(pa.array(order[np.append(~same, True)[: len(order)]]))


def _run_of(metadata: Any, device: str) -> DeviceRun | None:
    names, counts = _unpack_runs(metadata.metadata[RUNS_KEY])
    if device not in names:
        return None
    index = names.index(device)
    start = sum(counts[:index])
    return DeviceRun(device, start, start + counts[index])


def device_runs(parquet: Any) -> list[DeviceRun] | None:
    """Return the devices of a compacted file in the order of its rows; None for any other file."""
    metadata = parquet.metadata.metadata or {}
    value = metadata.get(RUNS_KEY)
    return None if value is None else decode_runs(value)


def _groups_of(parquet: Any, devices: Sequence[str]) -> list[int]:
    """Return the row groups that may have rows of some devices."""
    metadata = parquet.metadata
    value = (metadata.metadata or {}).get(RUNS_KEY)
    if value is not None:
        names, counts = _unpack_runs(value)
        group_stops = list(
            accumulate(
                metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)
            )
        )
        wanted = set(devices)
        found: set[int] = set()
        start = 0
        for name, count in zip(names, counts, strict=True):
            stop = start + count
            if name in wanted:
                first = bisect_right(group_stops, start)
                found.update(range(first, bisect_left(group_stops, stop) + 1))
            start = stop
        return sorted(found)
    column = parquet.schema_arrow.get_field_index("device")
    ordered = sorted(devices)
    groups = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            next_one = bisect_left(ordered, statistics.min)
            if next_one == len(ordered) or ordered[next_one] > statistics.max:
                continue
        groups.append(group)
    return groups


def period_bounds_ms(period: str) -> tuple[int, int]:
    """Return the start of a period and of the next one, in ms since 1970 UTC."""
    from datetime import UTC, datetime, timedelta

    if len(period) > MONTH_LENGTH:
        start = datetime.fromisoformat(period).replace(tzinfo=UTC)
        stop = start + timedelta(days=1)
    else:
        start = datetime.fromisoformat(f"{period}-01").replace(tzinfo=UTC)
        stop = (start + timedelta(days=31)).replace(day=1)
    return round(start.timestamp() * 1000), round(stop.timestamp() * 1000)
