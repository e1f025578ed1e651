"""Analyses over all devices of a history, one day at a time: heat map, gaps, data quality."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark.fixes.fix_table import Part, Source, by_device, read_source
from spark.fixes.fixes import Fixes
from spark.fixes.schema import DAY_MS
from waylog.history.history_reader import HistoryReader, period_bounds_ms

#: H3 resolution of the heat map; the edges of such a cell are some 200 m long.
RESOLUTION: Final = 9

# Positions are grouped on a grid of some 11 m before their cells are looked up.
_GRID_UNITS: Final = 1000
_DAY_S: Final = 86_400

#: Delay in seconds from which a fix counts as late.
LATE_S: Final = 3600
#: Accuracy in metres above which a fix is of no use for finding places.
INACCURATE_M: Final = 100.0


class Cell(NamedTuple):
    """A cell of the heat map."""

    cell: str  # H3 index
    fixes: int
    devices: int


class DeviceDay(NamedTuple):
    """The fixes stored for a device and day, and the number expected from its interval."""

    device: str
    date: str
    fixes: int
    expected: int
    longest_gap_s: int  # between two fixes of the day
    interval_s: float  # median

    @property
    def missing(self) -> int:
        """The number of expected fixes that are missing."""
        return max(0, self.expected - self.fixes)


class DayQuality(NamedTuple):
    """The data quality of one day."""

    date: str
    fixes: int
    devices: int
    repeated: int  # with a time that the device has already
    inaccurate: int
    late: int
    without_accuracy: int
    nowhere: int  # at 0, 0: from a receiver without a position


def dates_between(reader: HistoryReader, first: str | None, last: str | None) -> list[str]:
    """Return the dates of a history from one date to another, both included."""
    return [
        date
        for date in reader.dates()
        if (first is None or date >= first) and (last is None or date <= last)
    ]


def heat_map(
    reader: HistoryReader, dates: Sequence[str], resolution: int = RESOLUTION
) -> list[Cell]:
    """Count fixes and devices by H3 cell; return the cells with the most fixes first."""
    import h3

    fixes: dict[str, int] = defaultdict(int)
    devices: dict[str, set[str]] = defaultdict(set)
    for _, parts in _days(reader, dates):
        for part in parts:
            rows = np.column_stack(
                [part.codes, part.lat // _GRID_UNITS, part.lon // _GRID_UNITS]
            ).astype(np.int64)
            spots, counts = np.unique(rows, axis=0, return_counts=True)
            for (code, north, east), count in zip(spots.tolist(), counts.tolist(), strict=True):
                lat = (north + 0.5) * _GRID_UNITS / 1e7
                cell = h3.latlng_to_cell(lat, (east + 0.5) * _GRID_UNITS / 1e7, resolution)
                fixes[cell] += count
                devices[cell].add(part.devices[code])
    cells = [Cell(cell, count, len(devices[cell])) for cell, count in fixes.items()]
    return sorted(cells, key=lambda each: (-each.fixes, each.cell))


def heat_map_geojson(cells: Sequence[Cell], devices_min: int = 1) -> dict[str, object]:
    """Return the cells with at least `devices_min` devices as GeoJSON (RFC 7946)."""
    import h3

    features = []
    for cell in cells:
        if cell.devices < devices_min:
            continue
        ring = [[lon, lat] for lat, lon in h3.cell_to_boundary(cell.cell)]
        features.append(
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]},
                "properties": cell._asdict(),
            }
        )
    return {"type": "FeatureCollection", "features": features}


def gap_audit(reader: HistoryReader, dates: Sequence[str]) -> Iterator[DeviceDay]:
    """Yield each device and day from the device's first day to its last, also days without fixes.

    The expected interval of a day is the median of its intervals; a day without fixes uses that of
    the day before.
    """
    last_seen: dict[str, DeviceDay] = {}
    for date, parts in _days(reader, dates):
        for device, fixes in by_device(parts):
            before = last_seen.get(device)
            if before is not None:
                yield from _empty_days(before, date)
            day = _device_day(device, date, fixes)
            last_seen[device] = day
            yield day


def _empty_days(before: DeviceDay, until: str) -> Iterator[DeviceDay]:
    day = datetime.date.fromisoformat(before.date) + datetime.timedelta(days=1)
    expected = round(_DAY_S / before.interval_s) if before.interval_s else 1
    while day.isoformat() < until:
        yield DeviceDay(before.device, day.isoformat(), 0, expected, _DAY_S, before.interval_s)
        day += datetime.timedelta(days=1)


def _device_day(device: str, date: str, fixes: Fixes) -> DeviceDay:
    times = np.unique(fixes.time)
    intervals: NDArray[np.int64] = np.diff(times)
    if not len(intervals):
        return DeviceDay(device, date, len(times), len(times), 0, 0.0)
    interval = float(np.median(intervals))
    expected = 1 + round(float(times[-1] - times[0]) / interval)
    longest = int(intervals.max()) // 1000
    return DeviceDay(device, date, len(times), expected, longest, round(interval / 1000, 1))


def quality(reader: HistoryReader, dates: Sequence[str]) -> Iterator[DayQuality]:
    """Yield the data quality of each day."""
    for period, own in groupby(dates, key=reader.manifest.period_of):
        yield from _quality_of(reader, period, list(own))


def _quality_of(reader: HistoryReader, period: str, dates: Sequence[str]) -> Iterator[DayQuality]:
    columns = ["device", "time", "received", "accuracy", "lat", "lon"]
    start, stop = period_bounds_ms(period)
    counts = np.zeros((5, (stop - start) // DAY_MS), np.int64)
    times: list[pa.Table] = []
    for batch in reader.scan(period, columns=columns):
        time = batch["time"].to_numpy()
        day = (time - start) // DAY_MS
        accuracy = batch["accuracy"].to_numpy(zero_copy_only=False)
        nowhere = (batch["lat"].to_numpy() == 0.0) & (batch["lon"].to_numpy() == 0.0)
        marks = (
            np.ones(len(day), np.bool_),
            accuracy > INACCURATE_M,
            batch["received"].to_numpy() - time > LATE_S * 1000,
            np.isnan(accuracy),
            nowhere,
        )
        for row, mark in enumerate(marks):
            counts[row] += np.bincount(day[mark], minlength=counts.shape[1])
        times.append(pa.table({"device": batch["device"], "time": batch["time"], "day": day}))
    if not times:
        return
    each = pa.concat_tables(times).group_by(["device", "time", "day"]).aggregate([])
    different = np.bincount(each["day"].to_numpy(), minlength=counts.shape[1])
    seen = each.group_by(["device", "day"]).aggregate([])
    devices = np.bincount(seen["day"].to_numpy(), minlength=counts.shape[1])
    for date in dates:
        number = (period_bounds_ms(date)[0] - start) // DAY_MS
        rows, inaccurate, late, without, nowhere_rows = counts[:, number].tolist()
        if rows:
            yield DayQuality(
                date,
                rows,
                int(devices[number]),
                rows - int(different[number]),
                inaccurate,
                late,
                without,
                nowhere_rows,
            )


def _days(reader: HistoryReader, dates: Sequence[str]) -> Iterator[tuple[str, list[Part]]]:
    """Yield the fixes of each date."""
    for period, own in groupby(dates, key=reader.manifest.period_of):
        parts = [
            part
            for file in reader.files(period)
            for part in read_source(reader.storage, Source(file.path, None))
        ]
        for date in own:
            yield date, parts if date == period else _within(parts, *period_bounds_ms(date))


def _within(parts: Sequence[Part], start: int, stop: int) -> list[Part]:
    found = []
    for part in parts:
        rows = (part.time >= start) & (part.time < stop)
        if rows.any():
            found.append(part.take(rows))
    return found
