"""What Python workers find in batches that come ordered by device and time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark.api import finding
from spark.api.columns import CANDIDATES, STAY_POINTS
from spark.fixes.fixes import Fixes, to_degrees
from spark.places.finding import find_places
from spark.places.names import PlaceNames
from spark.places.stay_points import StayFinder
from spark.places.stays import Stays, stays_of
from tests.spark.synthetic import Person, make_person

PEOPLE = {f"u{seed}/phone": make_person(seed, 10) for seed in range(3)}
SCHEMA = pa.schema(
    [
        ("device", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("lat", pa.float64()),
        ("lon", pa.float64()),
        ("accuracy", pa.float64()),
    ]
)


def batch_of(device: str, fixes: Fixes) -> pa.RecordBatch:
    accuracy = fixes.accuracy.astype(np.float64)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([device] * len(fixes.time)),
            pa.array(fixes.time * 1000).cast(SCHEMA.field("time").type),
            pa.array(to_degrees(fixes.lat)),
            pa.array(to_degrees(fixes.lon)),
            pa.array(accuracy, mask=np.isnan(accuracy)),
        ],
        schema=SCHEMA,
    )


def batches_of(people: dict[str, Person], rows: int) -> list[pa.RecordBatch]:
    table = pa.Table.from_batches([batch_of(each, people[each].fixes) for each in people])
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(rows)
    return batches


def read(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def ms(time: Any) -> int:
    result: int = round(time.timestamp() * 1000)
    return result


@pytest.mark.parametrize("rows", [7, 1000, 1_000_000])
def test_batches_of_any_size_give_the_places_of_each_device(rows: int) -> None:
    batches = batches_of(PEOPLE, rows)
    visits = read(finding.visits(batches, {}))
    trips = read(finding.trips(batches, {}))
    places = read(finding.places(batches, {}, None))
    clock = PlaceNames().local_offsets
    for device, person in PEOPLE.items():
        found = find_places(device, stays_of(person.fixes), clock)
        assert len(found.visits) > 10
        own = [row for row in visits if row["device"] == device]
        assert [(ms(row["arrival"]), ms(row["departure"]), row["place_id"]) for row in own] == [
            (visit.start, visit.end, visit.place_id) for visit in found.visits
        ]
        own = [row for row in trips if row["device"] == device]
        assert [(ms(row["start"]), ms(row["end"]), row["origin"]) for row in own] == [
            (trip.start, trip.end, trip.origin) for trip in found.trips
        ]
        own = [row for row in places if row["device"] == device]
        assert [(row["place_id"], row["label"], ms(row["last"])) for row in own] == [
            (place.place_id, place.label, place.last) for place in found.places
        ]
        assert [[ms(role["since"]) for role in row["roles"]] for row in own] == [
            [role.since for role in place.roles] for place in found.places
        ]
        assert own[0]["address"].endswith("Berlin, Germany")
        assert [row["rank"] for row in own] == list(range(1, len(own) + 1))


def test_candidates_are_as_good_as_fixes() -> None:
    batches = batches_of(PEOPLE, 1000)
    candidates = list(finding.candidates(batches, {}))
    assert {batch.schema for batch in candidates} == {CANDIDATES}
    small = pa.Table.from_batches(candidates).to_batches(3)
    assert read(finding.visits(small, None)) == read(finding.visits(batches, {}))
    assert read(finding.trips(small, None)) == read(finding.trips(batches, {}))
    assert read(finding.places(small, None, None)) == read(finding.places(batches, {}, None))
    believed = read(finding.stay_points(batches, {}, False, 300_000))
    assert read(finding.stay_points(small, None, False, 300_000)) == believed


def test_many_devices_come_in_several_batches_and_each_once() -> None:
    person = PEOPLE["u0/phone"]
    [one] = finding.candidates([batch_of("a", person.fixes)], {})
    names = [f"{number:04d}" for number in range(400)]
    many = [one.set_column(0, one.schema.field(0), pa.array([each] * len(one))) for each in names]
    expected = len(read(finding.visits([one], None)))
    found = list(finding.visits(many, None))
    assert len(found) > 1
    assert [row["device"] for row in read(iter(found))] == [
        each for each in names for _ in range(expected)
    ]
    stays = list(finding.stay_points(many, None, True, 0))
    assert len(stays) > 1
    assert [row["device"] for row in read(iter(stays))] == [
        each for each in names for _ in range(len(one))
    ]


def test_raw_stays_are_those_of_the_kernel() -> None:
    batches = batches_of(PEOPLE, 1000)
    settings = {"clean": False, "gap_ms": 900_000, "distance_m": 50.0}
    found = list(finding.stay_points(batches, settings, True, 0))
    assert {batch.schema for batch in found} == {STAY_POINTS}
    for device, person in PEOPLE.items():
        finder = StayFinder(clean=False, gap_ms=900_000, distance_m=50.0)
        finder.feed(*person.fixes)
        stays = Stays.of(finder.take_open())
        own = [row for row in read(iter(found)) if row["device"] == device]
        assert [ms(row["start"]) for row in own] == stays.start.tolist()
        assert [ms(row["end"]) for row in own] == stays.end.tolist()
        assert [(row["lat"], row["lon"]) for row in own] == list(
            zip(stays.lat.tolist(), stays.lon.tolist(), strict=True)
        )
        assert [row["fixes"] for row in own] == stays.fixes.tolist()
        assert [row["dwell_s"] for row in own] == ((stays.end - stays.start) // 1000).tolist()


def test_stays_that_are_too_short_are_left_out() -> None:
    batches = batches_of(PEOPLE, 1000)
    every = read(finding.stay_points(batches, {}, False, 300_000))
    long = read(finding.stay_points(batches, {}, False, 3_600_000))
    assert long == [row for row in every if row["dwell_s"] >= 3600]
    assert 0 < len(long) < len(every)


def test_inaccurate_fixes_are_left_out_and_unknown_accuracy_is_not() -> None:
    fixes = PEOPLE["u0/phone"].fixes
    bad = fixes._replace(accuracy=np.full(len(fixes.time), 500.0, np.float32))
    unknown = fixes._replace(accuracy=np.full(len(fixes.time), np.nan, np.float32))
    assert not read(finding.visits([batch_of("a", bad)], {}))
    assert read(finding.visits([batch_of("a", bad)], {"accuracy_max": 501.0}))
    assert read(finding.visits([batch_of("a", unknown)], {}))


def test_nothing_gives_nothing() -> None:
    empty = [batch_of("a", PEOPLE["u0/phone"].fixes).slice(0, 0)]
    assert read(finding.candidates(empty, {})) == read(finding.places([], None, None)) == []


def test_a_device_takes_no_more_memory_than_its_stays() -> None:
    """It never stops moving, so that it has none."""
    rows = 100_000

    def moving(batches: int) -> Iterator[pa.RecordBatch]:
        for number in range(batches):
            time = np.arange(number * rows, (number + 1) * rows) * 10_000
            # 333 m in ten seconds.
            north = np.arange(rows) * 0.003 % 120
            lat = np.abs(north - 60) - 30
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(["a"]).take(pa.array(np.zeros(rows, np.int32))),
                    pa.array(time * 1000).cast(SCHEMA.field("time").type),
                    pa.array(lat),
                    pa.array(np.full(rows, 9.5)),
                    pa.nulls(rows, pa.float64()),
                ],
                schema=SCHEMA,
            )

    def peak(batches: int) -> int:
        tracemalloc.reset_peak()
        before = pa.total_allocated_bytes()
        read(finding.candidates(moving(batches), {}))
        assert pa.total_allocated_bytes() <= before + 1_000_000
        return tracemalloc.get_traced_memory()[1]

    tracemalloc.start()
    try:
        peak(2)
        assert peak(30) < peak(3) * 1.5
    finally:
        tracemalloc.stop()
