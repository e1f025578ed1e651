"""Circles that hide homes."""

from __future__ import annotations

import math
import random
from statistics import fmean

from hypothesis import given
from hypothesis import strategies as st

from gateway.friends.home_blur import RADIUS_M, Circle, circles_around

KEY = b"secret of the installation"
METRES_PER_DEGREE = 111_195


def metres(lat_1: float, lon_1: float, lat_2: float, lon_2: float) -> float:
    east = ((lon_2 - lon_1 + 180) % 360 - 180) * math.cos(math.radians(lat_1))
    return math.hypot(lat_2 - lat_1, east) * METRES_PER_DEGREE


def circle(user: str, lat: float, lon: float, key: bytes = KEY) -> Circle:
    [found] = circles_around(user, [(lat, lon)], key)
    return found


@given(st.text(min_size=1), st.floats(-80, 80), st.floats(-180, 180))
def test_a_home_is_well_within_its_circle_which_is_always_the_same(
    user: str, lat: float, lon: float
) -> None:
    found = circle(user, lat, lon)
    assert found == circle(user, lat, lon)
    assert metres(lat, lon, *found) < 365 < RADIUS_M
    assert found.has(lat, lon)


def test_the_middles_of_many_homes_lie_all_around_them() -> None:
    ways = []
    for number in range(2_000):
        found = circle(f"u{number}", 47.0, 9.0)
        north = (found.lat - 47) * METRES_PER_DEGREE
        east = (found.lon - 9) * METRES_PER_DEGREE * math.cos(math.radians(47))
        ways.append((north, east))
    assert math.hypot(fmean(n for n, _ in ways), fmean(e for _, e in ways)) < 20
    away = sorted(math.hypot(*way) for way in ways)
    # Distances from the centre are those of points of a disc, not of a ring.
    assert 130 < away[1_000] < 220


def test_the_middle_tells_nothing_without_the_secret() -> None:
    assert metres(*circle("ada", 47, 9), *circle("ada", 47, 9, b"another secret")) > 1
    assert metres(*circle("ada", 47, 9), *circle("bob", 47, 9)) > 1


def test_where_one_circle_becomes_another_tells_nothing_without_the_secret() -> None:
    def edge(key: bytes) -> int:
        """Return how many metres north of a home the circle becomes another one."""
        first = circle("ada", 47, 9, key)
        steps = (each for each in range(1, 200) if north(each, key) != first)
        return next(steps)

    def north(way_m: int, key: bytes) -> Circle:
        return circle("ada", 47 + way_m / METRES_PER_DEGREE, 9, key)

    edges = {edge(b"secret %d" % number) for number in range(20)}
    assert len(edges) > 10


def test_homes_that_many_runs_find_a_little_elsewhere_have_one_circle_or_two() -> None:
    # Rarely a home is on an edge of the secret grid; then its circle moves by one cell.
    chance = random.Random(5)
    counts = []
    for user in range(200):
        found = set()
        for _ in range(50):
            north, east = chance.gauss(0, 4), chance.gauss(0, 4)
            lat = 47 + north / METRES_PER_DEGREE
            found.add(circle(f"u{user}", lat, 9 + east / METRES_PER_DEGREE))
        counts.append(len(found))
    assert counts.count(1) > 120
    assert max(counts) <= 4
