"""The part of the functions for DataFrames that runs in Python workers: batches in, batches out.

Rows come ordered by device and time. At any moment a batch of fixes and the stays of one device are
in memory, however many fixes a device has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark.api.columns import (
    CANDIDATES,
    PLACES,
    STAY_POINTS,
    TRIPS,
    VISITS,
    with_timestamps,
)
from spark.api.geocoders import open_geocoder
from spark.fixes.fixes import to_degrees
from spark.places.finding import DevicePlaces, find_places
from spark.places.journeys import without_impossible
from spark.places.names import PlaceNames
from spark.places.reporting import believed
from spark.places.rows import place_rows, trip_rows, visit_rows
from spark.places.stay_points import STAY_TYPE, StayFinder
from spark.places.stays import Stays
from waylog.history.row_layout import UNITS_PER_DEGREE, to_units

# Rows that are collected before they are given to Spark.
_BATCH_ROWS: Final = 8192
_US_PER_MS: Final = 1000
_MS: Final = pa.timestamp("ms", tz="UTC")
_FIXES: Final = "fixes"

#: Each device, with its candidates as STAY_TYPE.
_Devices = Iterator[tuple[str, NDArray[Any]]]


def candidates(batches: Iterable[pa.RecordBatch], finder: dict[str, Any]) -> _Batches:
    """Yield candidates of stays as CANDIDATES; `finder` are the arguments of StayFinder."""
    return _written(CANDIDATES, _candidate_columns, _of_fixes(batches, finder))


def stay_points(
    batches: Iterable[pa.RecordBatch], finder: dict[str, Any] | None, raw: bool, least_ms: int
) -> _Batches:
    """Yield stays as STAY_POINTS; the batches are candidates unless there is a `finder`.

    `raw` stays are told as they were found, others if they are believed.
    """
    return _written(
        STAY_POINTS, partial(_stay_columns, raw=raw, least_ms=least_ms), _of(batches, finder)
    )


def visits(batches: Iterable[pa.RecordBatch], finder: dict[str, Any] | None) -> _Batches:
    """Yield visits as VISITS."""
    return _rows(VISITS, visit_rows, _of(batches, finder), PlaceNames(open_geocoder(None)))


def trips(batches: Iterable[pa.RecordBatch], finder: dict[str, Any] | None) -> _Batches:
    """Yield trips as TRIPS."""
    return _rows(TRIPS, trip_rows, _of(batches, finder), PlaceNames(open_geocoder(None)))


def places(
    batches: Iterable[pa.RecordBatch], finder: dict[str, Any] | None, index: str | None
) -> _Batches:
    """Yield places as PLACES, with names out of the index."""
    names = PlaceNames(open_geocoder(index))
    return _rows(PLACES, partial(place_rows, names=names), _of(batches, finder), names)


_Batches = Iterator[pa.RecordBatch]


def _of(batches: Iterable[pa.RecordBatch], finder: dict[str, Any] | None) -> _Devices:
    return _of_candidates(batches) if finder is None else _of_fixes(batches, finder)


def _runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield what follows each other of one device."""
    for batch in batches:
        start = 0
        devices = pc.run_end_encode(batch["device"])
        for device, end in zip(
            devices.values.to_pylist(), devices.run_ends.to_pylist(), strict=True
        ):
            yield device, batch.slice(start, end - start)
            start = end


def _of_fixes(batches: Iterable[pa.RecordBatch], settings: dict[str, Any]) -> _Devices:
    finder = StayFinder(**settings)
    current: str | None = None
    found: list[NDArray[Any]] = []
    for device, fixes in _runs(batches):
        if device != current:
            if current is not None:
                yield current, np.concatenate([*found, finder.take_open()])
            finder.reset()
            current, found = device, []
        finder.feed(
            fixes["time"].cast(pa.int64()).to_numpy() // _US_PER_MS,
            to_units(fixes["lat"].to_numpy()),
            to_units(fixes["lon"].to_numpy()),
            _accuracy(fixes["accuracy"]),
        )
        found.append(finder.take())
    if current is not None:
        yield current, np.concatenate([*found, finder.take_open()])


def _accuracy(column: pa.Array) -> NDArray[np.float32]:
    result: NDArray[np.float32] = pc.fill_null(column, np.nan).to_numpy().astype(np.float32)
    return result


def _of_candidates(batches: Iterable[pa.RecordBatch]) -> _Devices:
    current: str | None = None
    found: list[NDArray[Any]] = []
    for device, rows in _runs(batches):
        if device != current:
            if current is not None:
                yield current, np.concatenate(found)
            current, found = device, []
        found.append(_stays_of(rows))
    if current is not None:
        yield current, np.concatenate(found)


def _stays_of(rows: pa.RecordBatch) -> NDArray[Any]:
    stays = np.empty(rows.num_rows, STAY_TYPE)
    for name, field in zip(STAY_TYPE.names or (), list(CANDIDATES)[1:], strict=True):
        values = rows[field.name]
        if pa.types.is_timestamp(field.type):
            stays[name] = values.cast(pa.int64()).to_numpy() // _US_PER_MS
        elif pa.types.is_floating(field.type):
            stays[name] = np.rint(values.to_numpy() * UNITS_PER_DEGREE)
        else:
            stays[name] = values.to_numpy()
    return stays


def _candidate_columns(_: str, found: NDArray[Any]) -> list[NDArray[Any]]:
    columns = []
    for name, field in zip(STAY_TYPE.names or (), list(CANDIDATES)[1:], strict=True):
        values = found[name]
        if pa.types.is_timestamp(field.type):
            values = values * _US_PER_MS
        elif pa.types.is_floating(field.type):
            values = to_degrees(values)
        columns.append(np.ascontiguousarray(values))
    return columns


def _stay_columns(_: str, found: NDArray[Any], *, raw: bool, least_ms: int) -> list[NDArray[Any]]:
    stays = Stays.of(found)
    if not raw:
        stays = believed(without_impossible(stays))
        stays = stays.take(np.flatnonzero(stays.end - stays.start >= least_ms))
    return [
        stays.start * _US_PER_MS,
        stays.end * _US_PER_MS,
        stays.lat,
        stays.lon,
        stays.fixes,
        (stays.end - stays.start) // 1000,
        stays.silent // 1000,
    ]


def _written(
    schema: pa.Schema,
    columns_of: Callable[[str, NDArray[Any]], list[NDArray[Any]]],
    devices: _Devices,
) -> _Batches:
    """Yield batches of the columns of each device, of a size that is worth its fixed cost."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for device, found in devices:
        columns = columns_of(device, found)
        count = len(columns[0])
        names = pa.array([device]).take(pa.array(np.zeros(count, np.int32)))
        arrays = [
            pa.array(values, pa.int64()).cast(field.type)
            if pa.types.is_timestamp(field.type)
            else pa.array(values, field.type)
            for values, field in zip(columns, list(schema)[1:], strict=True)
        ]
        waiting.append(pa.RecordBatch.from_arrays([names, *arrays], schema=schema))
        rows += count
        if rows >= _BATCH_ROWS:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches(_BATCH_ROWS)
            waiting, rows = [], 0
    if rows:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches(_BATCH_ROWS)


def _rows(
    schema: pa.Schema,
    rows_of: Callable[[str, DevicePlaces], Iterable[dict[str, Any]]],
    devices: _Devices,
    names: PlaceNames,
) -> _Batches:
    """Yield batches of the rows of each device."""
    in_ms = with_timestamps(schema, _MS)
    waiting: list[dict[str, Any]] = []
    for device, found in devices:
        waiting += rows_of(device, find_places(device, Stays.of(found), names.local_offsets))
        if len(waiting) >= _BATCH_ROWS:
            yield from pa.Table.from_pylist(waiting, in_ms).cast(schema).to_batches(_BATCH_ROWS)
            waiting = []
    if waiting:
        yield from pa.Table.from_pylist(waiting, in_ms).cast(schema).to_batches(_BATCH_ROWS)
