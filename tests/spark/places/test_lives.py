"""Places of people of all kinds, whose phones report in all manners, compared with the truth.

The people come from `tests/spark/lives`, which was written without a look at what finds the places.
Seeds from `UNSEEN` on were not used for tuning.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.typing import NDArray

from spark.fixes.fixes import Fixes
from spark.places.finding import Clock, DevicePlaces, find_places
from spark.places.reporting import interval_ms, silent_when_still
from spark.places.stays import stays_of
from tests.spark.lives.itinerary import DAY_MS, HOUR_MS
from tests.spark.lives.kinds import KINDS, days_of, make_life
from tests.spark.lives.phones import report
from tests.spark.lives.scoring import Tally, away_m, labelled

UNSEEN = 20_000
FEW, MANY = 2, 40

# Several behaviours at once: each manner and each kind of outlier with each of these.
COMPANY = ("office", "idle", "student")

# Manner: recall and precision of visits, at least.
MANNERS = {
    "continuous": 0.98,
    "periodic": 0.96,
    "significant change": 0.95,
    "on motion": 0.95,
    "changing": 0.95,
}


# These tell less: of many a visit there is no fix. Manner: recall and precision, at least.
SPARSE = {"half-hourly": (0.8, 0.9), "logger": (0.86, 0.86)}


def places_of(fixes: Fixes) -> DevicePlaces:
    return find_places("u/phone", stays_of(fixes))


def tally_of(
    kinds: Iterable[str],
    manners: Iterable[str],
    count: int,
    days: int,
    *,
    outliers: bool = False,
    near_m: float = 100.0,
) -> Tally:
    tally = Tally(near_m)
    for kind in kinds:
        for manner in manners:
            for seed in range(UNSEEN, UNSEEN + count):
                life = make_life(kind, seed, days)
                fixes = report(life, manner, seed, outliers=outliers)
                tally.add(life, fixes, places_of(fixes))
    return tally


def check_visits(tally: Tally, least: float) -> None:
    assert tally["recall"] >= least, str(tally)
    assert tally["precision"] >= least, str(tally)
    assert tally["split"] <= 0.01, str(tally)
    assert tally["favourites, two visits"] >= 0.97, str(tally)
    assert tally["true places"] >= 0.95, str(tally)
    assert tally["home"] >= 0.97, str(tally)
    assert tally["work"] >= 0.93, str(tally)


def check_labels(tally: Tally) -> None:
    assert tally["home"] >= 0.97, str(tally)
    assert tally["true home"] >= 0.97, str(tally)
    if tally.tries["work"]:
        assert tally["work"] >= 0.93, str(tally)
        assert tally["true work"] >= 0.95, str(tally)
    if tally.tries["invented work"]:
        assert tally["invented work"] <= 0.05, str(tally)
    assert tally["sure"] >= 0.9, str(tally)


@pytest.mark.parametrize("manner", MANNERS)
def test_visits_are_found_however_a_phone_reports(manner: str) -> None:
    check_visits(tally_of(COMPANY, [manner], FEW, 28), MANNERS[manner])


@pytest.mark.parametrize("manner", SPARSE)
def test_where_visits_leave_no_fix_few_are_invented(manner: str) -> None:
    tally = tally_of(COMPANY, [manner], 2 * FEW, 28)
    recall, precision = SPARSE[manner]
    assert tally["recall"] >= recall, str(tally)
    assert tally["precision"] >= precision, str(tally)
    assert tally["favourites, two visits"] >= 0.97, str(tally)


@pytest.mark.parametrize("manner", MANNERS)
def test_a_phone_that_is_in_tokyo_each_night_was_never_there(manner: str) -> None:
    check_visits(tally_of(COMPANY, [manner], FEW, 28, outliers=True), 0.95)


# Most of what such a phone tells is 100 to 300 m off. Manner: places that are one, at least.
BEFORE_THE_DOOR = {"before the door": 0.75, "half before the door": 0.9}


@pytest.mark.parametrize("manner", BEFORE_THE_DOOR)
def test_a_phone_that_reports_before_the_door_makes_few_places_two(manner: str) -> None:
    tally = tally_of(COMPANY, [manner], 2 * FEW, 28, near_m=300)
    assert tally["one place"] >= BEFORE_THE_DOOR[manner], str(tally)
    assert tally["recall"] >= 0.95, str(tally)
    assert tally["precision"] >= 0.95, str(tally)
    assert tally["split"] <= 0.02, str(tally)
    assert tally["home"] >= 0.95, str(tally)
    assert tally["true home"] >= 0.95, str(tally)


@pytest.mark.parametrize("kind", KINDS)
def test_homes_and_jobs_of(kind: str) -> None:
    check_labels(tally_of([kind], ["continuous", "significant change"], FEW, days_of(kind)))


@pytest.mark.long
@pytest.mark.parametrize("outliers", [False, True])
@pytest.mark.parametrize("manner", MANNERS)
def test_visits_of_many_are_found_however_a_phone_reports(manner: str, outliers: bool) -> None:
    least = 0.95 if outliers else MANNERS[manner]
    check_visits(tally_of(COMPANY, [manner], MANY, 28, outliers=outliers), least)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_homes_and_jobs_of_many_of(kind: str) -> None:
    check_labels(tally_of([kind], MANNERS, MANY, days_of(kind)))


@pytest.mark.parametrize("manner", ["continuous", "significant change"])
@pytest.mark.parametrize(("kind", "label"), [("mover", "home"), ("job changer", "work")])
def test_two_weeks_after_a_change_the_new_place_counts_and_the_old_one_is_a_former_one(
    kind: str, label: str, manner: str
) -> None:
    for seed in range(UNSEEN, UNSEEN + FEW):
        life = make_life(kind, seed, 60 + 14)
        found = places_of(report(life, manner, seed))
        old, new = (life.spots[role.spot] for role in life.roles if role.label == label)
        (current,) = labelled(found, label)
        assert away_m(current, new) <= 100
        change = life.wall(60, 0)
        (role,) = current.roles
        assert (role.label, role.until) == (label, None)
        assert abs(role.since - change) <= 4 * DAY_MS
        (former,) = [place for place in found.places if away_m(place, old) <= 100]
        assert former.label is None
        (role,) = former.roles
        assert role.label == label
        assert role.since < life.wall(4, 0)
        assert role.until is not None
        assert abs(role.until - change) <= 4 * DAY_MS


def test_a_holiday_is_no_home_while_it_lasts_nor_after() -> None:
    for days in (29, 35, 56):
        life = make_life("traveller", UNSEEN, days)
        found = places_of(report(life, "continuous", UNSEEN))
        (home,) = labelled(found, "home")
        # Ten nights away, back after two weeks, and three weeks later.
        assert away_m(home, life.spots[0]) <= 100, days
        for place in found.places:
            assert place is home or all(role.label != "home" for role in place.roles)


@pytest.mark.parametrize("manner", MANNERS)
def test_what_is_not_known_of_a_visit_is_told(manner: str) -> None:
    tally = Tally()
    for seed in range(UNSEEN, UNSEEN + FEW):
        life = make_life("office", seed, 28)
        found = places_of(report(life, manner, seed))
        for before, after in pairwise(found.visits):
            assert before.end <= after.start
        for visit in found.visits:
            assert visit.arrival_earliest <= visit.start <= visit.arrival_latest
            assert visit.departure_earliest <= visit.end <= visit.departure_latest
            true = [
                each
                for each in life.visits
                if min(each.end, visit.end) - max(each.start, visit.start)
                >= 0.5 * (visit.end - visit.start)
            ]
            for each in true:
                # A minute's grace: the last hundred metres of a way are within a place already.
                tally.count(
                    "arrival",
                    visit.arrival_earliest - 120_000 <= each.start
                    and each.start <= visit.arrival_latest + 120_000,
                )
                tally.count(
                    "departure",
                    visit.departure_earliest - 120_000 <= each.end
                    and each.end <= visit.departure_latest + 120_000,
                )
    assert tally["arrival"] >= 0.9, str(tally)
    assert tally["departure"] >= 0.9, str(tally)


def zone_clock(name: str) -> Clock:
    zone = ZoneInfo(name)

    def clock(lat: float, lon: float, times: NDArray[np.int64]) -> NDArray[np.int64]:
        offsets = (
            datetime.fromtimestamp(time / 1000, zone).utcoffset() or timedelta() for time in times
        )
        return np.array([round(each.total_seconds() * 1000) for each in offsets], np.int64)

    return clock


@pytest.mark.parametrize(
    "around",
    [
        (-16.8, 179.995, "Pacific/Fiji"),  # on both sides of the date line
        (69.65, 18.96, "Europe/Oslo"),  # far in the north
        (-37.8, 144.95, "Australia/Melbourne"),  # the clock goes back
    ],
)
@pytest.mark.parametrize("manner", ["continuous", "significant change"])
def test_people_are_found_all_over_the_world(around: tuple[float, float, str], manner: str) -> None:
    tally = Tally()
    for kind in ("office", "nurse"):
        life = make_life(kind, UNSEEN, 35, around=around, first_date=datetime(2026, 3, 16))
        fixes = report(life, manner, UNSEEN)
        tally.add(life, fixes, find_places("u/phone", stays_of(fixes), zone_clock(around[2])))
    assert tally["recall"] >= 0.95, str(tally)
    assert tally["precision"] >= 0.95, str(tally)
    assert tally["favourites, two visits"] >= 0.97, str(tally)
    check_labels(tally)


def fixes_at(*rows: tuple[float, float, float]) -> Fixes:
    """Return fixes: hours, m to the north of 50 degrees, m to the east of 10 degrees."""
    hours, north, east = np.array(rows).T
    return Fixes(
        (hours * HOUR_MS).astype(np.int64),
        np.rint((50 + north / 111_195) * 1e7).astype(np.int32),
        np.rint((10 + east / 71_475) * 1e7).astype(np.int32),
        np.full(len(rows), np.nan, np.float32),
    )


def stay(
    first: float, last: float, north: float, east: float = 0.0
) -> list[tuple[float, float, float]]:
    return [(hour, north, east) for hour in np.arange(first, last, 1 / 60).tolist()]


def test_a_leap_that_splits_a_life_in_two_drops_neither_half() -> None:
    """A phone was given to somebody in another town, who switched it on at once."""
    fixes = fixes_at(*stay(0, 10, 0), *stay(10, 20, 700_000))
    visits = places_of(fixes).visits
    assert [round((visit.end - visit.start) / HOUR_MS) for visit in visits] == [10, 10]


def test_a_flight_is_a_journey() -> None:
    """Three hours between two airports 1,500 km apart, and back the next day."""
    fixes = fixes_at(*stay(0, 9, 0), *stay(12, 20, 1_500_000), *stay(23, 34, 0))
    visits = places_of(fixes).visits
    assert [round(visit.start / HOUR_MS) for visit in visits] == [0, 12, 23]


def test_a_run_of_wrong_fixes_splits_no_visit() -> None:
    """Twenty minutes at a mast 20 km away, and twenty in Tokyo."""
    fixes = fixes_at(
        *stay(0, 3, 0),
        *stay(3, 3.33, 20_000),
        *stay(3.34, 6, 0),
        *stay(6, 6.33, 0, 9_000_000),
        *stay(6.34, 9, 0),
    )
    (visit,) = places_of(fixes).visits
    assert (visit.start, round(visit.end / HOUR_MS)) == (0, 9)


def test_who_is_there_and_back_at_once_was_never_away() -> None:
    """Every six minutes a fix at home, and three of them 6 km away: not impossible, but absurd."""
    fixes = fixes_at(
        *[(hour / 10, 6000.0 if hour in (50, 51, 52) else 0.0, 0.0) for hour in range(100)]
    )
    (visit,) = places_of(fixes).visits
    assert (visit.start, round(visit.end / HOUR_MS)) == (0, 10)


@pytest.mark.parametrize(("east", "visits"), [(0.0, 2), (3000.0, 3)])
def test_a_single_fix_is_a_stay_only_off_the_way(east: float, visits: int) -> None:
    """Home, every half hour, then 3 km to the north; one fix half way, or off to the side."""
    home = [(hour / 2, 0.0, 0.0) for hour in range(10)]
    away = [(5.5 + hour / 2, 3000.0, 0.0) for hour in range(10)]
    assert len(places_of(fixes_at(*home, (5.0, 1500.0, east), *away)).visits) == visits


def test_a_phone_changes_its_manner() -> None:
    """Silent when still in the first weeks, periodic in the last."""
    life = make_life("office", UNSEEN, 28)
    half = life.wall(14, 0)
    first, second = report(life, "significant change", 1), report(life, "periodic", 1)
    one = first.take(np.flatnonzero(first.time < half))
    other = second.take(np.flatnonzero(second.time >= half))
    assert silent_when_still(stays_of(one)).all()
    assert not silent_when_still(stays_of(other)).any()
    assert 9 < np.median(interval_ms(stays_of(other))) / 60_000 < 11
    both = Fixes(
        np.concatenate([one.time, other.time]),
        np.concatenate([one.lat, other.lat]),
        np.concatenate([one.lon, other.lon]),
        np.concatenate([one.accuracy, other.accuracy]),
    )
    stays_of_both = stays_of(both)
    still = silent_when_still(stays_of_both)
    assert still[stays_of_both.first < life.wall(9, 0)].all()
    assert not still[stays_of_both.first > life.wall(19, 0)].any()


@pytest.mark.parametrize(
    ("hour", "hours", "days", "label"),
    [
        (14.0, 6.0, (5,), None),  # a friend on Saturdays
        (17.5, 5.5, (2,), None),  # and on Wednesdays
        (14.0, 6.0, (1, 4), "work"),
        (8.5, 6.0, (5,), "work"),  # a shop on Saturdays
        (14.0, 8.5, (5,), "work"),
    ],
)
def test_on_one_day_a_week_a_few_hours_are_no_work(
    hour: float, hours: float, days: tuple[int, ...], label: str | None
) -> None:
    rows = []
    for day in range(35):
        # Day 4 of 1970 was a Monday.
        begin = 24.0 * (day + 4) + hour
        there = stay(begin, begin + hours, 3000) if day % 7 in days else []
        rows += [*stay(24.0 * (day + 4), begin - 0.5, 0), *there]
        rows += stay(begin + hours + 0.5 if there else begin - 0.5, 24.0 * (day + 5), 0)
    found = places_of(fixes_at(*rows))
    (place,) = [each for each in found.places if each.lat > 50.02]
    assert place.label == label
    if len(days) == 1 and label:
        # It may be a friend all the same.
        assert place.confidence is not None
        assert place.confidence <= 0.85


def test_a_second_home_next_door_is_the_same_one_measured_badly() -> None:
    rows = []
    for day in range(20):
        north = 170.0 * (day % 2)
        rows += [(24 * day + hour, north, 0.0) for hour in np.arange(0, 14, 0.2)]
        rows += [(24 * day + hour, 5000.0, 0.0) for hour in np.arange(14.5, 17, 0.2)]
    found = places_of(fixes_at(*rows))
    assert len([place for place in found.places if place.lat < 50.01]) == 2
    assert len(labelled(found, "home")) == 1
