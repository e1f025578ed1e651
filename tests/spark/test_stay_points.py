"""The stay-point kernel against trackintel's answers and against a plain reference."""

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

from spark.stay_points import EARTH_RADIUS_M, find_stays, haversine_m

TRACKS = Path(__file__).resolve().parents[2] / "../shared/data/tracks"

Track = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


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
            own["lat"].to_numpy(),
            own["lon"].to_numpy(),
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
        stays = find_stays(time, lat, lon, gap_ms=gap_min * 60_000)
        found = [(int(time[first]), int(time[finish])) for first, finish, _ in stays]
        assert found == expected[uid], uid


def reference_stays(
    time: list[int],
    lat: list[float],
    lon: list[float],
    distance_m: float,
    duration_ms: int,
    gap_ms: int,
    include_last: bool,
) -> list[tuple[int, int, int]]:
    """The algorithm word for word, without any short cut."""

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
                stays.append((start, current, current))
            start = current
    if include_last and time and time[-1] - time[start] >= duration_ms:
        stays.append((start, len(time) - 1, len(time)))
    return stays


@settings(max_examples=400, deadline=None)
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
    include_last=st.booleans(),
)
def test_stays_are_those_of_the_plain_algorithm_everywhere_on_earth(
    origin: tuple[float, float],
    steps: list[tuple[int, float, float]],
    distance_m: float,
    include_last: bool,
) -> None:
    time, lat, lon = [0], [origin[0]], [origin[1]]
    for wait, north, east in steps:
        time.append(time[-1] + wait)
        lat.append(max(-90.0, min(90.0, origin[0] + north / 111_195)))
        width = 111_195 * max(math.cos(math.radians(lat[-1])), 1e-6)
        lon.append((origin[1] + east / width + 180) % 360 - 180)
    expected = reference_stays(time, lat, lon, distance_m, 300_000, 350_000, include_last)
    found = find_stays(
        np.array(time, np.int64),
        np.array(lat),
        np.array(lon),
        distance_m=distance_m,
        gap_ms=350_000,
        include_last=include_last,
    )
    assert [tuple(row) for row in found.tolist()] == expected


def test_no_fixes_have_no_stays() -> None:
    assert find_stays(np.empty(0, np.int64), np.empty(0), np.empty(0)).shape == (0, 3)


def test_arrays_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in number"):
        find_stays(np.zeros(2, np.int64), np.zeros(2), np.zeros(1))


def test_a_quarter_of_the_equator_is_ten_thousand_kilometres() -> None:
    assert haversine_m(0, 0, 0, 90) == pytest.approx(math.pi / 2 * EARTH_RADIUS_M)
