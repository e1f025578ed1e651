"""The places of one bucket of devices: the tables of the last run, updated with the new fixes.

All results of a device are computed from its stays. New fixes only add stays, except late fixes:
for these the device is recomputed from shortly before them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark.fixes.fix_table import Part, Source, by_device, part_of, read_shard, read_source, split
from spark.fixes.fixes import Fixes, distances_m
from spark.fixes.schema import DAY_MS, date_text
from spark.places.finding import DevicePlaces, find_places
from spark.places.names import PlaceNames
from spark.places.rows import place_rows, trip_rows, visit_rows
from spark.places.schema import (
    PLACES_SCHEMA,
    STATES_SCHEMA,
    STAYS_SCHEMA,
    TRIPS_SCHEMA,
    VISITS_SCHEMA,
)
from spark.places.stay_points import STAY_TYPE, StayFinder
from spark.places.stays import Stays
from waylog.history.history_reader import HistoryReader
from waylog.history.place_edits import PlaceEdit, apply_edits
from waylog.history.storage import Storage

#: Metres by which a place's centre may have moved since the last computation for it to keep its id.
SAME_PLACE_M: Final = 100.0

# Milliseconds: a stay that ended this long before a late fix is not affected by it.
_LATE_MARGIN_MS: Final = 6 * 3_600_000
# Milliseconds of silence after a stay from which its end is estimated, not measured.
_SILENCE_MS: Final = 900_000

_COMPRESSION: Final = {"compression": "zstd", "compression_level": 3}


class BucketTask(NamedTuple):
    """The input of one task."""

    history: str
    out: str
    bucket: int
    buckets: int
    older: str | None  # prefix of the tables of the last run, None if there are none
    newer: str  # prefix of the tables to write
    #: New fixes, by period ascending, each in the order of the history: shards of this bucket with
    #: the periods of their parts, or files with fixes of all buckets, and their periods.
    shards: list[tuple[str, tuple[str, ...]]]
    sources: list[tuple[str, Source]]
    #: Edits by device, and the devices with new edits, whose places are recomputed.
    edits: dict[str, list[PlaceEdit]]
    renamed: list[str]
    #: Devices whose data is removed completely.
    erased: list[str]


class BucketResult(NamedTuple):
    """The result of one task."""

    bucket: int
    devices: int
    places: int
    rows: int  # number of new fixes
    changed: list[str]


def run_bucket(task: BucketTask) -> BucketResult:
    """Update the tables of a bucket; runs in a task."""
    return _Bucket(task).run()


class _Bucket:
    def __init__(self, task: BucketTask) -> None:
        self._task = task
        self._history = Storage(task.history)
        self._out = Storage(task.out)
        self._states: dict[str, bytes] = {}
        self._stays: dict[str, list[NDArray[Any]]] = defaultdict(list)
        self._late: dict[str, int] = {}
        self._changed: set[str] = set(task.renamed)
        self._rows = 0

    def run(self) -> BucketResult:
        older_places = self._load()
        finder = StayFinder()
        for parts in self._periods():
            for device, fixes in by_device(parts):
                self._feed(finder, device, fixes)
        if self._late:
            self._open_again(finder)
        return self._write(finder, older_places)

    def _load(self) -> dict[str, pa.Table]:
        tables = {}
        for name, schema in (
            ("places", PLACES_SCHEMA),
            ("visits", VISITS_SCHEMA),
            ("trips", TRIPS_SCHEMA),
            ("stays", STAYS_SCHEMA),
            ("states", STATES_SCHEMA),
        ):
            path = f"{self._task.older}-{name}.parquet"
            found = self._task.older is not None and self._out.exists(path)
            tables[name] = self._out.read_parquet(path) if found else schema.empty_table()
        self._states = dict(
            zip(*(tables["states"][name].to_pylist() for name in ("device", "state")), strict=True)
        )
        stays = tables.pop("stays")
        for device, start, stop in _runs(stays["device"].combine_chunks()):
            rows = np.empty(stop - start, STAY_TYPE)
            for name in STAY_TYPE.names or ():
                rows[name] = stays[name].slice(start, stop - start).to_numpy()
            self._stays[device].append(rows)
        for device in self._task.erased:
            self._states.pop(device, None)
            self._stays.pop(device, None)
        gone = pa.array(self._task.erased, pa.string())
        return {
            name: table.filter(pc.invert(pc.is_in(table["device"], gone)))
            for name, table in tables.items()
        }

    def _periods(self) -> Iterator[list[Part]]:
        """Yield the new fixes of each period."""
        for _, parts in groupby(self._parts(), key=lambda dated: dated[0]):
            together = [part for _, part in parts]
            self._rows += sum(len(part.time) for part in together)
            yield together

    def _parts(self) -> Iterator[tuple[str, Part]]:
        for name, periods in self._task.shards:
            yield from zip(periods, read_shard(self._out, name), strict=True)
        for period, source in self._task.sources:
            for part in read_source(self._history, source):
                for bucket, own in split(part, self._task.buckets):
                    if bucket == self._task.bucket:
                        yield period, own

    def _feed(self, finder: StayFinder, device: str, fixes: Fixes) -> None:
        state = self._states.get(device)
        if state is None:
            finder.reset()
        else:
            finder.restore(state)
            newest = finder.newest
            if newest is not None and fixes.time[0] < newest:
                late = self._late.get(device, int(fixes.time[0]))
                self._late[device] = min(late, int(fixes.time[0]))
        self._changed.add(device)
        if device in self._late:
            # Its new fixes are read again later, together with the old ones.
            return
        finder.feed(*fixes)
        self._keep(finder, device)

    def _keep(self, finder: StayFinder, device: str) -> None:
        stays = finder.take()
        if len(stays):
            self._stays[device].append(stays)
        self._states[device] = finder.state_bytes()

    def _open_again(self, finder: StayFinder) -> None:
        """Recompute devices with late fixes, from the last stay that these cannot have changed."""
        starts: dict[str, int] = {}
        known: dict[str, int] = {}  # the time of the fix before these
        for device, late in self._late.items():
            stays = _joined(self._stays.get(device, []))
            # What is late may lie in the silence after a stay.
            sure = (stays["after"] < late - _LATE_MARGIN_MS) & (
                stays["after"] - stays["seen"] <= _SILENCE_MS
            )
            last = np.flatnonzero(sure)
            kept = stays[: int(last[-1]) + 1] if len(last) else stays[:0]
            self._stays[device] = [kept]
            starts[device] = int(kept["end"][-1]) if len(kept) else -(1 << 62)
            if len(kept):
                known[device] = int(kept["seen"][-1])
            self._states.pop(device, None)
        reader = HistoryReader(self._task.history)
        first = min(starts.values() if len(known) < len(starts) else known.values())
        begin_date = None if first <= -(1 << 61) else date_text(first // DAY_MS)
        wanted = pa.array(list(starts), pa.string())
        for period in reader.periods(begin_date):
            parts = []
            for batch in reader.scan(period, devices=list(starts)):
                rows = batch.filter(pc.is_in(batch["device"], wanted))
                if rows.num_rows:
                    parts.append(part_of(rows))
            for device, fixes in by_device(parts):
                begin = int(np.searchsorted(fixes.time, starts[device]))
                state = self._states.get(device)
                if state is not None:
                    finder.restore(state)
                else:
                    _start(finder, fixes, known.get(device))
                    if finder.newest is not None:
                        self._states[device] = finder.state_bytes()
                if begin == len(fixes.time):
                    continue
                finder.feed(*fixes.take(slice(begin, None)))
                self._keep(finder, device)

    def _write(self, finder: StayFinder, older: dict[str, pa.Table]) -> BucketResult:
        names = PlaceNames()
        changed = sorted(self._changed & self._states.keys())
        known = _rows_of(older["places"], changed)
        places: list[dict[str, Any]] = []
        visits: list[dict[str, Any]] = []
        trips: list[dict[str, Any]] = []
        for device in changed:
            finder.restore(self._states[device])
            stays = _joined([*self._stays.get(device, []), finder.take_open()])
            found = find_places(device, Stays.of(stays), names.local_offsets)
            ids = keep_ids(found, known.get(device, []))
            rows = place_rows(device, found, names, ids, known.get(device, []))
            parts = apply_edits(rows, self._task.edits.get(device, []))
            places += rows
            ids = {each: parts.get(known_id, known_id) for each, known_id in ids.items()}
            visits += visit_rows(device, found, ids)
            trips += trip_rows(device, found, ids)
        gone = pa.array(changed, pa.string())
        tables = {
            "places": _merged(older["places"], gone, places, PLACES_SCHEMA),
            "visits": _merged(older["visits"], gone, visits, VISITS_SCHEMA),
            "trips": _merged(older["trips"], gone, trips, TRIPS_SCHEMA),
            "stays": self._stays_table(),
            "states": pa.table(
                [
                    pa.array(sorted(self._states), pa.string()),
                    pa.array([self._states[device] for device in sorted(self._states)]),
                ],
                schema=STATES_SCHEMA,
            ),
        }
        for name, table in tables.items():
            self._out.write_parquet(f"{self._task.newer}-{name}.parquet", table, **_COMPRESSION)
        return BucketResult(
            self._task.bucket,
            len(self._states),
            tables["places"].num_rows,
            self._rows,
            changed,
        )

    def _stays_table(self) -> pa.Table:
        devices = sorted(device for device, stays in self._stays.items() if stays)
        each = [_joined(self._stays[device]) for device in devices]
        rows = np.concatenate(each) if each else np.empty(0, STAY_TYPE)
        counts = [len(stays) for stays in each]
        device = pa.array(devices, pa.string()).take(
            pa.array(np.repeat(np.arange(len(devices)), counts))
        )
        return pa.table(
            [device, *(pa.array(rows[name].copy()) for name in STAYS_SCHEMA.names[1:])],
            schema=STAYS_SCHEMA,
        )


def _start(finder: StayFinder, fixes: Fixes, known: int | None) -> None:
    """Start a device anew, after the fix of time `known` if it is among these."""
    finder.reset()
    if known is None:
        return
    row = int(np.searchsorted(fixes.time, known))
    if row < len(fixes.time) and fixes.time[row] == known:
        finder.resume(known, int(fixes.lat[row]), int(fixes.lon[row]))


def _joined(pieces: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(pieces) if pieces else np.empty(0, STAY_TYPE)


def _runs(column: pa.Array) -> Iterator[tuple[str, int, int]]:
    start = 0
    if len(column):
        runs = pc.run_end_encode(column)
        for value, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield value, start, end
            start = end


def _rows_of(table: pa.Table, devices: list[str]) -> dict[str, list[dict[str, Any]]]:
    own = table.filter(pc.is_in(table["device"], pa.array(devices, pa.string())))
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in own.drop_columns(["profile", "roles"]).to_pylist():
        rows[row["device"]].append(row)
    return rows


def _merged(
    older: pa.Table, gone: pa.Array, rows: list[dict[str, Any]], schema: pa.Schema
) -> pa.Table:
    kept = older.filter(pc.invert(pc.is_in(older["device"], gone)))
    table = pa.concat_tables([kept, pa.Table.from_pylist(rows, schema=schema)])
    by = {"places": "rank", "visits": "arrival", "trips": "start"}
    second = next(name for name in by.values() if name in schema.names)
    return table.sort_by([("device", "ascending"), (second, "ascending")])


def keep_ids(found: DevicePlaces, older: list[dict[str, Any]]) -> dict[str, str]:
    """Return the id of each place: that of the nearest older place if it is near enough.

    If two places are near the same older place, the one with more dwell time keeps the id.
    """
    ids: dict[str, str] = {}
    given: set[str] = set()
    own = {place.place_id for place in found.places}
    free = [row for row in older if row["place_id"] not in own]
    for place in found.places:
        if any(row["place_id"] == place.place_id for row in older):
            ids[place.place_id] = place.place_id
            continue
        ids[place.place_id] = place.place_id
        candidates = [row for row in free if row["place_id"] not in given]
        if candidates:
            distances = distances_m(
                place.lat,
                place.lon,
                np.array([row["lat"] for row in candidates]),
                np.array([row["lon"] for row in candidates]),
            )
            nearest = int(np.argmin(distances))
            if distances[nearest] <= SAME_PLACE_M:
                ids[place.place_id] = candidates[nearest]["place_id"]
                given.add(candidates[nearest]["place_id"])
    return ids
