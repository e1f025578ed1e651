"""Places of people whose places are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark.cleaning import Fixes, clean, find_spikes
from spark.place_labels import DAY_MS, HOUR_MS, night_ms, workday_ms
from spark.places import Place, Stays, centre, cluster, find_places, sun_clock
from spark.stay_points import haversine_m, link_places
from tests.spark.synthetic import START_MS, Person, degrees, make_person

PEOPLE = 40


def distance_m(place: Place, point: NDArray[np.float64]) -> float:
    return haversine_m(place.lat, place.lon, *degrees(point))


@pytest.fixture(scope="module")
def people() -> list[tuple[Person, list[Place]]]:
    result = []
    for seed in range(PEOPLE):
        person = make_person(seed)
        result.append((person, find_places(f"u{seed}/phone", person.fixes, person.accuracy)))
    return result


def labelled(places: list[Place], label: str) -> Place | None:
    found = [place for place in places if place.label == label]
    assert len(found) <= 1
    return found[0] if found else None


def test_home_is_where_people_live(people: list[tuple[Person, list[Place]]]) -> None:
    homes = [(person, labelled(places, "home")) for person, places in people]
    right = [home for person, home in homes if home and distance_m(home, person.home) < 100]
    assert len(right) >= 0.99 * len(people)


def test_work_is_where_people_work_and_nobody_gets_a_work_place_for_nothing(
    people: list[tuple[Person, list[Place]]],
) -> None:
    workers = [(person, places) for person, places in people if person.work is not None]
    idle = [places for person, places in people if person.work is None]
    assert workers
    assert idle
    right = 0
    for person, places in workers:
        work = labelled(places, "work")
        assert person.work is not None
        right += work is not None and distance_m(work, person.work) < 100
    assert right >= 0.97 * len(workers)
    invented = sum(labelled(places, "work") is not None for places in idle)
    assert invented <= 0.2 * len(idle)


def test_favourites_are_found_and_none_is_invented(
    people: list[tuple[Person, list[Place]]],
) -> None:
    wanted = found = reported = true = 0
    for person, places in people:
        for favourite, visits in zip(person.favourites, person.visited, strict=True):
            if visits >= 2:
                wanted += 1
                found += any(distance_m(place, favourite) < 50 for place in places)
        known = [person.home, *person.favourites]
        if person.work is not None:
            known.append(person.work)
        for place in places:
            reported += 1
            true += any(distance_m(place, point) < 50 for point in known)
    assert found >= 0.97 * wanted
    assert true >= 0.98 * reported


def test_somebody_who_works_at_night_lives_where_the_days_are_spent() -> None:
    right = 0
    for seed in range(10):
        person = make_person(seed, night=True)
        places = find_places("u/phone", person.fixes, person.accuracy)
        home, work = labelled(places, "home"), labelled(places, "work")
        assert person.work is not None
        right += (
            home is not None
            and work is not None
            and distance_m(home, person.home) < 100
            and distance_m(work, person.work) < 100
        )
    assert right >= 9


def test_the_same_fixes_in_any_order_give_the_same_places() -> None:
    person = make_person(3, days=7)
    shuffled = np.random.default_rng(1).permutation(len(person.fixes.time))
    time, lat, lon = person.fixes
    again = Fixes(time[shuffled], lat[shuffled], lon[shuffled])
    unique = np.unique(time, return_index=True)[1]
    once = Fixes(time[unique], lat[unique], lon[unique])
    expected = find_places("u/phone", once, person.accuracy[unique])
    assert expected
    # Repeated fixes of one time are equal here, so it does not matter which is kept.
    assert find_places("u/phone", again, person.accuracy[shuffled]) == expected


def test_across_the_date_line_a_place_is_one_place() -> None:
    dice = np.random.default_rng(2)
    count = 4000
    time = START_MS + np.arange(count, dtype=np.int64) * 60_000
    lon = 179.9999 + dice.normal(0, 0.0001, count)
    lon = (lon + 180) % 360 - 180
    fixes = Fixes(time, -16.5 + dice.normal(0, 0.00005, count), lon)
    places = find_places("u/phone", fixes, np.full(count, np.nan))
    assert len(places) == 1
    assert haversine_m(places[0].lat, places[0].lon, -16.5, 179.9999) < 20


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_fixes_are_no_place(count: int) -> None:
    column = np.zeros(count)
    assert find_places("u/p", Fixes(np.arange(count), column, column), column) == []


def test_inaccurate_doubled_and_impossible_fixes_are_dropped() -> None:
    time = np.array([0, 60, 60, 120, 180, 240], np.int64) * 1000
    lat = np.array([50.0, 50.0, 50.5, 50.02, 50.0, 50.0])
    lon = np.full(6, 10.0)
    accuracy = np.array([np.nan, 10, 10, 10, 101, 100])
    kept = clean(Fixes(time, lat, lon), accuracy)
    assert kept.time.tolist() == [0, 60_000, 240_000]
    assert find_spikes(Fixes(time[:2], lat[:2], lon[:2])).tolist() == [False, False]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-0.004, 0.004), st.floats(-0.004, 0.004)), min_size=1, max_size=30
    ),
    st.sampled_from([0.0, 60.0, -179.999]),
)
def test_linked_points_are_those_that_can_be_reached_in_steps(
    points: list[tuple[float, float]], lon: float
) -> None:
    lats = np.array([47 + point[0] for point in points])
    lons = np.array([(lon + point[1] + 180) % 360 - 180 for point in points])
    group = list(range(len(points)))
    for i in range(len(points)):
        for j in range(i):
            if haversine_m(lats[i], lons[i], lats[j], lons[j]) <= 100:
                old, new = group[i], group[j]
                group = [new if each == old else each for each in group]
    expected = {frozenset(k for k, each in enumerate(group) if each == name) for name in group}
    numbers = link_places(lats, lons, 100.0)
    found = {frozenset(np.flatnonzero(numbers == number).tolist()) for number in set(numbers)}
    assert found == expected
    assert sorted(set(numbers.tolist())) == list(range(len(expected)))


def test_a_chain_of_stays_along_a_street_is_cut() -> None:
    count = 30
    lat = 48 + np.arange(count) * 80 / 111_195
    start = np.arange(count, dtype=np.int64) * HOUR_MS
    stays = Stays(start, start + HOUR_MS // 2, lat, np.full(count, 11.0))
    numbers = cluster(stays)
    for number in set(numbers.tolist()):
        own = lat[numbers == number]
        assert np.ptp(own) * 111_195 <= 300
    assert centre(stays, numbers == 0)[1] == 11.0


@given(st.integers(-(10**13), 10**13), st.integers(0, 30 * DAY_MS))
def test_hours_of_the_night_and_of_work_add_up(start: int, length: int) -> None:
    minute = 60_000
    start -= start % minute
    length = length % (2 * DAY_MS) - length % minute
    clock = np.arange(start, start + length, minute, dtype=np.int64)
    hour = clock // HOUR_MS % 24
    weekday = (clock // DAY_MS + 3) % 7
    ends = np.array([start, start + length], np.int64)
    assert np.diff(night_ms(ends))[0] == ((hour >= 22) | (hour < 6)).sum() * minute
    worked = (weekday < 5) & (hour >= 9) & (hour < 17)
    assert np.diff(workday_ms(ends))[0] == worked.sum() * minute


@pytest.mark.parametrize(("lon", "hours"), [(13.4, 1), (-74.0, -5), (116.4, 8), (180.0, 12)])
def test_without_a_time_zone_the_clock_follows_the_sun(lon: float, hours: int) -> None:
    assert sun_clock(0.0, lon, np.zeros(2, np.int64)).tolist() == [hours * HOUR_MS] * 2
