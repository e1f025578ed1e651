"""The stay-point kernel compared with trackintel's results and with a simple implementation."""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark.fixes.fixes import EARTH_RADIUS_M, Fixes
from spark.places.stay_points import STAY_TYPE, StayFinder, haversine_m, link_places
from spark.places.stays import Stays
from tests.spark.synthetic import make_person
from waylog.history.row_layout import to_units

TRACKS = Path(__file__).resolve().parents[3] / "../shared/data/tracks"

Track = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.fixture(scope="module")
def tracks() -> dict[str, Track]:
    path = TRACKS / "geolife_dev.csv.gz"
    if not path.exists():
        pytest.skip(f"no tracks with known stays: {path} is absent")
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    with gzip.open(path) as stream:
        table = arrow_csv.read_csv(
            stream,
            convert_options=arrow_csv.ConvertOptions(
                column_types={"uid": pa.string(), "ts": pa.timestamp("ms", "UTC")}
            ),
        )
    result = {}
    for uid in pc.unique(table["uid"]).to_pylist():
        own = table.filter(pc.equal(table["uid"], uid)).sort_by("ts")
        result[uid] = (
            own["ts"].cast(pa.int64()).to_numpy(),
            to_units(own["lat"].to_numpy()),
            to_units(own["lon"].to_numpy()),
        )
    return result


@pytest.mark.parametrize(("name", "gap_min"), [("A_gap15min", 15), ("B_gap24h", 1440)])
def test_stays_start_and_end_exactly_where_trackintel_has_them(
    tracks: dict[str, Track], name: str, gap_min: int
) -> None:
    expected: dict[str, list[tuple[int, int]]] = defaultdict(list)
    with (TRACKS / f"truth_trackintel_{name}_staypoints.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            expected[row["uid"]].append(
                (milliseconds(row["started_at"]), milliseconds(row["finished_at"]))
            )
    assert set(expected) <= set(tracks)
    for uid, (time, lat, lon) in tracks.items():
        finder = StayFinder(gap_ms=gap_min * 60_000, clean=False)
        finder.feed(time, lat, lon)
        stays = finder.take_open()
        found = list(zip(stays["start"].tolist(), stays["end"].tolist(), strict=True))
        assert found == expected[uid], uid


@pytest.mark.parametrize(("name", "gap_min"), [("A_gap15min", 15), ("B_gap24h", 1440)])
def test_stays_are_linked_to_the_places_that_trackintel_has(
    tracks: dict[str, Track], name: str, gap_min: int
) -> None:
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    with (TRACKS / f"truth_trackintel_{name}_staypoints.csv").open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            rows[row["uid"]].append(row)
    for uid, own in rows.items():
        finder = StayFinder(gap_ms=gap_min * 60_000, clean=False)
        finder.feed(*tracks[uid])
        stays = Stays.of(finder.take_open())
        lat = np.array([float(row["lat"]) for row in own])
        lon = np.array([float(row["lon"]) for row in own])
        # trackintel's centre ignores repeated coordinates; ours is the mean of all fixes.
        apart = [haversine_m(*each) for each in zip(lat, lon, stays.lat, stays.lon, strict=True)]
        assert max(apart) < 50
        # With trackintel's own centres, the same stays are one place if latitude and longitude are
        # swapped, as in trackintel 1.4.2: it passes (x, y) to a metric that takes (y, x).
        linked = link_places(lon, lat, 100.0)
        ids = [int(row["location_id"]) for row in own]
        assert len(set(zip(linked.tolist(), ids, strict=True))) == len(set(ids)) == max(linked) + 1


def reference_stays(
    time: list[int],
    lat: list[float],
    lon: list[float],
    distance_m: float,
    duration_ms: int,
    gap_ms: int,
) -> list[tuple[int, int, int]]:
    """Run the algorithm literally, without optimisations: start, end and number of fixes."""

    def distance(i: int, j: int) -> float:
        a, b = math.radians(lat[i]), math.radians(lat[j])
        square = (
            math.sin((b - a) / 2) ** 2
            + math.cos(a) * math.cos(b) * math.sin(math.radians(lon[j] - lon[i]) / 2) ** 2
        )
        return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, square)))

    stays = []
    start = 0
    for current in range(1, len(time)):
        if time[current] - time[current - 1] > gap_ms:
            start = current
        elif distance(start, current) >= distance_m:
            if time[current] - time[start] >= duration_ms:
                stays.append((time[start], time[current], current - start))
            start = current
    if time and time[-1] - time[start] >= duration_ms:
        stays.append((time[start], time[-1], len(time) - start))
    return stays


@settings(max_examples=400)
@given(
    origin=st.tuples(
        st.sampled_from([0.0, 47.1, -33.9, 79.99, 84.0, 89.9995, -90.0]),
        st.sampled_from([0.0, 9.5, 179.9999, -179.9999]),
    ),
    steps=st.lists(
        st.tuples(
            st.integers(0, 400_000),
            st.floats(-150, 150, allow_nan=False),
            st.floats(-150, 150, allow_nan=False),
        ),
        max_size=60,
    ),
    distance_m=st.sampled_from([1.0, 100.0, 3000.0, 20_000.0]),
    cut=st.integers(1, 20),
)
def test_stays_are_those_of_the_plain_algorithm_everywhere_on_earth(
    origin: tuple[float, float],
    steps: list[tuple[int, float, float]],
    distance_m: float,
    cut: int,
) -> None:
    time, lat, lon = [0], [origin[0]], [origin[1]]
    for wait, north, east in steps:
        time.append(time[-1] + wait)
        lat.append(round(max(-90.0, min(90.0, origin[0] + north / 111_195)), 7))
        width = 111_195 * max(math.cos(math.radians(lat[-1])), 1e-6)
        lon.append(round((origin[1] + east / width + 180) % 360 - 180, 7))
    expected = reference_stays(time, lat, lon, distance_m, 300_000, 350_000)
    finder = StayFinder(distance_m=distance_m, gap_ms=350_000, clean=False)
    nowhere = np.full(len(time), np.nan, np.float32)
    fixes = Fixes(
        np.array(time, np.int64), to_units(np.array(lat)), to_units(np.array(lon)), nowhere
    )
    # In chunks, each with a new finder that gets only the state.
    found = []
    for start in range(0, len(time), cut):
        state = finder.state_bytes()
        finder = StayFinder(distance_m=distance_m, gap_ms=350_000, clean=False)
        finder.restore(state)
        finder.feed(*fixes.take(slice(start, start + cut)))
        found.append(finder.take())
    stays = np.concatenate([*found, finder.take_open()])
    assert (
        list(zip(*(stays[name].tolist() for name in ("start", "end", "fixes")), strict=True))
        == expected
    )


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_cleaned_stays_are_the_same_in_pieces(cut: int) -> None:
    fixes = make_person(5, days=3).fixes
    whole = StayFinder()
    whole.feed(*fixes)
    expected = whole.take_open()
    assert len(expected) > 5
    pieces = StayFinder()
    found = []
    for start in range(0, len(fixes.time), cut):
        pieces.feed(*fixes.take(slice(start, start + cut)))
        found.append(pieces.take())
        again = StayFinder()
        again.restore(pieces.state_bytes())
        pieces = again
    assert np.array_equal(np.concatenate([*found, pieces.take_open()]), expected)


def cleaned(*rows: tuple[int, float, float, float]) -> list[tuple[int, int, int]]:
    """Return the stays in fixes (time in s, m to the north, accuracy, m to the east)."""
    time = np.array([row[0] * 1000 for row in rows], np.int64)
    lat = to_units(np.array([50 + row[1] / 111_195 for row in rows]))
    lon = to_units(np.array([10 + row[3] / 71_475 for row in rows]))
    finder = StayFinder()
    finder.feed(time, lat, lon, np.array([row[2] for row in rows], np.float32))
    stays = finder.take_open()
    return list(
        zip(
            *(
                (stays[name] // scale).tolist()
                for name, scale in (("start", 1000), ("end", 1000), ("fixes", 1))
            ),
            strict=True,
        )
    )


def test_spikes_repeats_and_inaccurate_fixes_do_not_end_a_stay() -> None:
    nan = math.nan
    home = [(60 * minute, 0.0, nan, 0.0) for minute in range(20)]
    assert cleaned(*home) == [(0, 1140, 20)]
    spoiled = [*home[:5], (270, 2000.0, nan, 0.0), *home[5:10], (570, 500.0, 101.0, 0.0)]
    spoiled += [home[9], (545, 700.0, nan, 0.0), *home[10:]]
    assert cleaned(*spoiled) == [(0, 1140, 20)]


def test_a_device_that_left_in_a_silence_left_half_way_within_twice_the_time_it_was_seen() -> None:
    nan = math.nan
    home = [(60 * minute, 0.0, nan, 0.0) for minute in range(61)]
    there = [(10_800 + 60 * minute, 3000.0, nan, 0.0) for minute in range(61)]
    # Silent from 3600 to 10800; 3 km take 300 s, which leaves 3450 s for each of the two places.
    assert cleaned(*home, *there) == [(0, 7050, 61), (7350, 14_400, 61)]
    # Observed for ten minutes: assumed to last twenty more.
    assert cleaned(*home[:11], *there)[0] == (0, 1800, 11)
    # The device is found at the same place, so it never left.
    assert cleaned(*home, *[(time, 0.0, nan, 0.0) for time, *_ in there]) == [(0, 14_400, 122)]


def test_no_fixes_have_no_stays() -> None:
    assert StayFinder().take_open().dtype == STAY_TYPE
    assert StayFinder().newest is None


def test_arrays_of_different_length_and_foreign_states_are_refused() -> None:
    finder = StayFinder()
    column = np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="differ in number"):
        finder.feed(np.zeros(2, np.int64), column, column[:1])
    with pytest.raises(ValueError, match="differ in number"):
        finder.feed(np.zeros(2, np.int64), column, column, np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="bytes"):
        finder.restore(b"x")


def test_a_quarter_of_the_equator_is_ten_thousand_kilometres() -> None:
    assert haversine_m(0, 0, 0, 90) == pytest.approx(math.pi / 2 * EARTH_RADIUS_M)
