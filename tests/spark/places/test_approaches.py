"""Stays that a phone was seen on the way to, and those at places next to each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from spark.fixes.fixes import METRES_PER_DEGREE
from spark.places.approaches import without_approaches
from spark.places.clusters import cluster
from spark.places.labels import HOUR_MS
from spark.places.stays import Stays

OFFICE_M = 4000.0


def days_at(spots: Sequence[float], *, straight: bool = False) -> Stays:
    """Return days with nine hours at an office and then twelve at a spot (m to the north).

    All is known from one fix each. With `straight` there is an hour at the next spot after that.
    """
    rows: list[tuple[float, float, float]] = []
    for day, spot in enumerate(spots):
        rows += [(24.0 * day, OFFICE_M, 9.0), (24.0 * day + 10, spot, 12.0)]
        if straight:
            rows.append((24.0 * day + 22.2, spots[(day + 1) % len(spots)], 1.0))
    first, north, hours = np.array(rows).T
    start = (first * HOUR_MS).astype(np.int64)
    count = len(rows)
    # Between the stays the phone is seen on the way, but for a way from door to door.
    after = np.append(start[1:], start[-1] + 24 * HOUR_MS) - HOUR_MS // 10
    if straight:
        after[1::3] = start[2::3]
    lat = 48 + north / METRES_PER_DEGREE
    lon = np.full(count, 11.0)
    return Stays(
        start=start,
        end=start + (hours * HOUR_MS).astype(np.int64),
        lat=lat,
        lon=lon,
        silent=(hours * HOUR_MS).astype(np.int64),
        fixes=np.ones(count, np.int64),
        first=start,
        seen=start,
        quiet=np.zeros(count, np.int64),
        longest=np.zeros(count, np.int64),
        before=start - HOUR_MS // 10,
        before_lat=lat + 0.005,
        before_lon=lon,
        after=after,
        after_lat=lat + 0.005,
        after_lon=lon,
    )


def places_of(stays: Stays) -> tuple[int, int]:
    """Return the number of places before and after."""
    before = cluster(stays)
    number, exact = without_approaches(stays, before)
    assert sorted(set(number.tolist())) == list(range(int(number.max()) + 1))
    assert set(number[exact].tolist()) == set(number.tolist())
    return int(before.max()) + 1, int(number.max()) + 1


# At the door on most days, else somewhere on the ways to it.
SCATTERED = [0.0, 5.0, 240.0, -3.0, -130.0, 4.0, 0.0, -280.0, 2.0, 130.0, 6.0, -205.0]


def test_spots_around_a_door_are_one_place_whose_middle_is_the_door() -> None:
    stays = days_at(SCATTERED)
    before, after = places_of(stays)
    assert before > after == 2
    number, exact = without_approaches(stays, cluster(stays))
    home = exact[number[exact] == number[1]]
    assert np.abs((stays.lat[home] - 48) * METRES_PER_DEGREE).max() <= 6


@pytest.mark.parametrize("straight", [True, False])
def test_who_goes_straight_from_one_spot_to_another_is_at_two_places(straight: bool) -> None:
    stays = days_at([*[0.0, 200.0] * 6, -280.0, -130.0, 320.0, 480.0], straight=straight)
    number, _ = without_approaches(stays, cluster(stays))
    north = np.rint((stays.lat - 48) * METRES_PER_DEGREE)
    (one,), (other,) = set(number[north == 0].tolist()), set(number[north == 200].tolist())
    assert (one != other) == straight


@pytest.mark.parametrize("apart_m", [150.0, 200.0, 300.0])
def test_a_phone_that_reports_at_the_door_has_two_places_next_to_each_other(apart_m: float) -> None:
    dice = np.random.default_rng(5)
    spots = np.array([0.0, apart_m, 0.0, 0.0, apart_m] * 4) + dice.normal(0, 10, 20)
    assert places_of(days_at(spots.tolist())) == (3, 3)


def test_a_phone_that_tells_more_is_believed() -> None:
    stays = days_at(SCATTERED)
    stays = Stays(**{**vars(stays), "fixes": np.full(len(stays.start), 20)})
    before, after = places_of(stays)
    assert after == before
