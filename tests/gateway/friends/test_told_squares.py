"""Which square is told when: neither an edge nor the moment when it is crossed can be found."""

from __future__ import annotations

from math import cos, radians

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.friends.friend_filter import FriendFilter
from gateway.friends.home_blur import Grid, Square
from gateway.friends.told_squares import DAY_MS, ToldSquares
from gateway.shares.share import Terms, terms_with
from gateway.tracks.track_points import Points, as_told, unpacked
from gateway.views.track_store import TrackStore, pack_point
from tests.gateway.friends.test_friend_filter import AWAY, BEGIN, LAT, LON, Homes, address, fix

COARSE = [terms_with("metres", 50), terms_with("metres", 500), terms_with("town", None)]
DAY = BEGIN - BEGIN % DAY_MS
DEGREE_M = 111_195.0

Way = list[tuple[int, float, float]]


def edge(terms: Terms) -> tuple[float, float]:
    """Return a position on the northern edge of a square near AWAY."""
    grid = FriendFilter(Homes(), b"secret").grid_for("ada", terms)
    assert grid is not None
    square = grid.square(*AWAY)
    return square.lat + square.side_m / 2 / DEGREE_M, square.lon


def points_of(way: Way) -> Points:
    none = (None,) * 4
    return unpacked(b"".join(pack_point(time, lat, lon, *none) for time, lat, lon in way))


def told_live(way: Way, terms: Terms, tell: FriendFilter | None = None) -> list[tuple[float, ...]]:
    tell = tell or FriendFilter(Homes(), b"secret")
    told = [tell.fix(fix(lat, lon, time), terms) for time, lat, lon in way]
    return [(each.lat, each.lon) for each in told if each is not None]


def told_past(way: Way, terms: Terms, from_ms: int) -> list[tuple[float, ...]]:
    tell = FriendFilter(Homes(), b"secret")
    grid = tell.grid_for("ada", terms)
    told = as_told(points_of(way), tell.circles("ada"), grid, from_ms)
    return list(zip(told["lat"] / 1e7, told["lon"] / 1e7, strict=True))


def changes(squares: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    return [each for each, before in zip(squares, [None, *squares], strict=False) if each != before]


@pytest.mark.parametrize("terms", COARSE)
def test_errors_of_measurement_on_an_edge_tell_one_square(terms: Terms) -> None:
    lat, lon = edge(terms)
    noise = np.random.default_rng(7).normal(0, 8 / DEGREE_M, 2000)
    way = [(DAY + number * 10_000, lat + each, lon) for number, each in enumerate(noise)]
    assert {lat < each[1] for each in way} == {True, False}
    assert len(set(told_live(way, terms))) == 1
    assert set(told_past(way, terms, 0)) == set(told_live(way, terms))


@pytest.mark.parametrize("terms", COARSE)
def test_an_edge_is_crossed_with_a_step_of_time(terms: Terms) -> None:
    lat, lon = edge(terms)
    assert terms.cell_m is not None
    away = terms.cell_m / 3 + 30
    begin, middle = DAY, DAY + terms.step_ms + 60_000
    way = [(begin, lat - away / DEGREE_M, lon)]
    # Far beyond the edge, but within a step that has begun on the other side.
    way += [(middle - 60_000, lat - away / DEGREE_M, lon), (middle, lat + away / DEGREE_M, lon)]
    way += [(DAY + 2 * terms.step_ms, lat + away / DEGREE_M, lon)]
    told = told_live(way, terms)
    assert told[0] == told[1] == told[2] != told[3]
    assert told_past(way, terms, 0) == [told[0], told[3]]


@pytest.mark.parametrize("terms", COARSE)
def test_the_square_of_a_time_is_the_same_whatever_part_is_asked_for(terms: Terms) -> None:
    lat, lon = edge(terms)
    noise = np.random.default_rng(5).normal(0, 20 / DEGREE_M, 500)
    way = [(DAY + number * 60_000, lat + each, lon) for number, each in enumerate(noise)]
    whole = told_live(way, terms)
    for number in range(0, 500, 7):
        assert told_past(way, terms, way[number][0]) == changes(whole[number:])


steps_of_a_walk = st.lists(
    st.tuples(st.integers(1, 900_000), st.floats(-300, 300), st.floats(-300, 300)),
    min_size=1,
    max_size=60,
)


@given(steps_of_a_walk, st.sampled_from(COARSE), st.integers(0, 59))
def test_live_and_past_squares_are_the_same_and_never_far(
    walk: list[tuple[int, float, float]], terms: Terms, asked: int
) -> None:
    time, lat, lon = BEGIN, LAT + 0.01, LON  # into the circle around the home, and out of it
    way: Way = []
    for later, north, east in walk:
        time, lat = time + later, lat + north / DEGREE_M
        lon += east / DEGREE_M / cos(radians(lat))
        # Degrees that a packed point keeps, and to a metre.
        way.append((time, round(lat, 5), round(lon, 5)))
    told = told_live(way, terms)
    asked = min(asked, len(way) - 1)
    day = way[asked][0] - way[asked][0] % DAY_MS
    of_the_day = [each for each in way if each[0] >= day]
    assert told_past(of_the_day, terms, way[asked][0]) == changes(told[asked:])
    # A process that has started since then tells the same, by the positions in memory.
    store = TrackStore()
    for each in way[: asked + 1]:
        store.append("ada/phone", *each)
    anew = FriendFilter(Homes(), b"secret", store)
    assert told_live(way[asked : asked + 1], terms, anew) == told[asked : asked + 1]


def test_an_address_has_the_square_of_its_fix() -> None:
    terms = COARSE[1]
    tell = FriendFilter(Homes(), b"secret")
    lat, lon = edge(terms)
    near = 20 / DEGREE_M
    first = tell.fix(fix(lat - near, lon, BEGIN), terms)
    named = tell.address(address(lat + near, lon), terms)
    assert first is not None and named is not None
    assert (named.lat, named.lon) == (first.lat, first.lon)


def test_each_day_begins_anew() -> None:
    terms = COARSE[1]
    lat, lon = edge(terms)
    near = 20 / DEGREE_M
    way = [(DAY, lat - near, lon), (DAY + DAY_MS - 1, lat + near, lon)]
    way += [(DAY + DAY_MS, lat + near, lon)]
    told = told_live(way, terms)
    assert told[0] == told[1] != told[2]


def test_a_late_fix_has_the_square_of_its_time_and_a_clock_ahead_holds_up_none() -> None:
    terms = COARSE[1]
    tell = FriendFilter(Homes(), b"secret")
    far = 2_000 / DEGREE_M
    step_ms = terms.step_ms
    way = [(BEGIN, *AWAY), (BEGIN + step_ms, AWAY[0] + far, AWAY[1]), (BEGIN + 1, *AWAY)]
    told = told_live(way, terms, tell)
    assert told[2] == told[0] != told[1]
    ahead = fix(*AWAY, BEGIN + 10 * DAY_MS)
    ahead.received = BEGIN + 2 * step_ms
    assert tell.fix(ahead, terms) is not None
    [later] = told_live([(BEGIN + 3 * step_ms, AWAY[0] + far, AWAY[1])], terms, tell)
    assert later == told[1]


@pytest.mark.parametrize("lon", [-180.0, 179.99999, 0.0])
@pytest.mark.parametrize("lat", [-89.9, 0.0, 60.0, 89.9])
def test_squares_hold_at_the_antimeridian_and_near_the_poles(lat: float, lon: float) -> None:
    squares = ToldSquares(Grid(500.0, 0.3, 0.7, 300_000))
    first = squares.square(0, lat, lon)
    assert first.is_near(lat, lon, 1.0)
    east = 5 / DEGREE_M / cos(radians(lat))
    for number in range(1, 20):
        moved = (lon + east * (-1) ** number + 180) % 360 - 180
        assert squares.square(number * 300_000, lat, moved) == first


def test_squares_are_remembered_for_a_day_and_no_longer_than_that_many_changes() -> None:
    grid = Grid(50.0, 0.0, 0.0, 300_000)
    squares = ToldSquares(grid)
    told: list[Square] = []
    for number in range(2_000):
        told.append(squares.square(number * 300_000, number * 0.001, 9.0))
    assert len(set(told)) == 2_000
    # What has been forgotten is told as the square that it is in.
    for number in (0, 1, 1_800, 1_999):
        assert squares.square(number * 300_000, number * 0.001, 9.0) == told[number]
    assert squares.square(1_999 * 300_000 + 1, 1.0, 9.0) == told[-1]
    assert squares.square(1, 1.0, 9.0) == grid.square(1.0, 9.0)


def test_the_first_points_of_steps_come_from_the_newest_chunks() -> None:
    store = TrackStore()
    for number in range(1_000):
        store.append("ada/phone", BEGIN + number * 1_000, 47.0 + number * 1e-4, 9.0)
    store.append("ada/phone", BEGIN + 60_500, 46.0, 9.0)  # late
    found = store.firsts("ada/phone", BEGIN + 60_000, BEGIN + 899_999, 60_000)
    assert [time for time, _, _ in found] == [BEGIN + 60_000 * each for each in range(1, 15)]
    assert found[0] == (BEGIN + 60_000, 47.006, 9.0)
    late = store.firsts("ada/phone", BEGIN + 60_001, BEGIN + 60_600, 60_000)
    assert late == [(BEGIN + 60_500, 46.0, 9.0)]
    assert store.firsts("nobody/phone", 0, BEGIN, 60_000) == []
