"""Points of a track are left out only where nobody would miss them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tracks.simplification import simplified, simplified_to
from waylog.great_circle import distance_m

E7 = 10_000_000


def arrays(
    rows: list[tuple[int, float, float]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times, latitudes and longitudes."""
    times = np.array([time for time, _, _ in rows], np.int64)
    lat = np.array([round(lat * E7) for _, lat, _ in rows], np.int32)
    lon = np.array([round(lon * E7) for _, _, lon in rows], np.int32)
    return times, lat, lon


def test_a_steady_straight_way_is_its_two_ends() -> None:
    rows = [(second * 1000, 47 + second * 1e-5, 9.0) for second in range(100)]
    assert np.flatnonzero(simplified(*arrays(rows), 4.0)).tolist() == [0, 99]


def test_a_halt_on_a_straight_way_stays() -> None:
    rows = [(s * 1000, 47 + min(s, 50) * 1e-5 + max(0, s - 350) * 1e-5, 9.0) for s in range(400)]
    kept = np.flatnonzero(simplified(*arrays(rows), 4.0)).tolist()
    assert [rows[index][0] for index in kept] == pytest.approx(
        [0, 50_000, 350_000, 399_000], abs=1e-9
    )


def test_a_way_over_the_antimeridian_is_not_a_way_around_the_world() -> None:
    rows = [(s * 1000, 10.0, ((179.999 + s * 1e-5 + 180) % 360) - 180) for s in range(200)]
    assert np.flatnonzero(simplified(*arrays(rows), 4.0)).tolist() == [0, 199]


def test_nothing_and_one_point_are_themselves() -> None:
    assert simplified(*arrays([]), 4.0).tolist() == []
    assert simplified(*arrays([(0, 1.0, 2.0)]), 4.0).tolist() == [True]


walks = st.lists(
    st.tuples(st.integers(1, 60_000), st.floats(-60, 60), st.floats(-60, 60)),
    min_size=2,
    max_size=200,
)


@given(walks, st.floats(1, 50))
def test_no_point_is_farther_from_the_replay_than_the_tolerance(
    walk: list[tuple[int, float, float]], tolerance: float
) -> None:
    time, north, east = 0, 0.0, 0.0
    rows = []
    for step, dy, dx in walk:
        time, north, east = time + step, north + dy, east + dx
        rows.append((time, 47 + north / 111_195, 9 + east / (111_195 * math.cos(math.radians(47)))))
    times, lat, lon = arrays(rows)
    kept = simplified(times, lat, lon, tolerance)
    replayed_lat = np.interp(times, times[kept], lat[kept] / E7)
    replayed_lon = np.interp(times, times[kept], lon[kept] / E7)
    for (_, own_lat, own_lon), there_lat, there_lon in zip(
        rows, replayed_lat, replayed_lon, strict=True
    ):
        assert distance_m(own_lat, own_lon, there_lat, there_lon) <= tolerance * 1.02 + 0.1


@given(walks, st.integers(2, 20))
def test_there_are_no_more_points_than_wanted(
    walk: list[tuple[int, float, float]], most: int
) -> None:
    rows = [
        (sum(s for s, _, _ in walk[: i + 1]), 47 + dy / 1000, 9 + dx / 1000)
        for i, (_, dy, dx) in enumerate(walk)
    ]
    kept = simplified_to(*arrays(rows), tolerance_m=1.0, points_max=most)
    assert 2 <= kept.sum() <= max(2, most)
    assert kept[0] and kept[-1]
