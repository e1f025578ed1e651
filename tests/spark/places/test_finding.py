"""Places of synthetic people, compared with their known places."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.fixes.fixes import METRES_PER_DEGREE, Fixes
from spark.places.clusters import centres_of, cluster
from spark.places.finding import DevicePlaces, find_places, sun_clock
from spark.places.labels import DAY_MS, HOUR_MS, night_ms, weekly_profile
from spark.places.stay_points import haversine_m, link_places
from spark.places.stays import Stays, join_stays, stays_of
from tests.spark.scores import Scores, distance_m, labelled
from tests.spark.synthetic import BASE, HARD, START_MS, Person, Profile, make_person
from waylog.history.row_layout import to_units

# Seeds that were not used for tuning.
SEEDS = range(7000, 7040)


def places_of(person: Person) -> DevicePlaces:
    return find_places("u/phone", stays_of(person.fixes))


def scores_of(profile: Profile) -> dict[str, float]:
    scores = Scores()
    for seed in SEEDS:
        person = make_person(seed, profile=profile)
        scores.add(person, places_of(person))
    return scores.shares


def test_people_are_found_where_they_are() -> None:
    shares = scores_of(BASE)
    assert shares["recall"] >= 0.98, shares
    assert shares["precision"] >= 0.985, shares
    assert shares["split"] <= 0.01, shares
    assert shares["favourites"] >= 0.985, shares
    assert shares["seen favourites"] >= 0.99, shares
    assert shares["favourites precision"] >= 0.99, shares
    assert shares["home"] >= 0.99, shares
    assert shares["work"] >= 0.97, shares
    assert shares["invented work"] <= 0.2, shares


def test_people_are_found_where_phones_measure_badly_and_places_are_close() -> None:
    shares = scores_of(HARD)
    assert shares["recall"] >= 0.975, shares
    assert shares["precision"] >= 0.985, shares
    assert shares["split"] <= 0.01, shares
    assert shares["home"] >= 0.99, shares
    assert shares["work"] >= 0.97, shares
    assert shares["invented work"] <= 0.2, shares
    # Two visits measured with an error of 50 m do not always locate a place to within 50 m.
    assert shares["favourites"] >= 0.975, shares
    assert shares["seen favourites"] >= 0.985, shares
    assert shares["favourites precision"] >= 0.98, shares


def test_somebody_who_works_at_night_lives_where_the_days_are_spent() -> None:
    right = 0
    for seed in range(10):
        person = make_person(seed, night=True)
        places = places_of(person).places
        home, work = labelled(places, "home"), labelled(places, "work")
        assert person.work is not None
        right += (
            home is not None
            and work is not None
            and distance_m(home, person.home) < 100
            and distance_m(work, person.work) < 100
        )
    assert right >= 9


def test_visits_and_trips_follow_each_other() -> None:
    person = make_person(3, days=7)
    found = places_of(person)
    known = {place.place_id for place in found.places}
    assert len(found.trips) > 10
    for before, after in pairwise(found.visits):
        assert before.start < before.end <= after.start
    for trip in found.trips:
        assert trip.start <= trip.end
        assert {trip.origin, trip.destination} - {None} <= known
    for place in found.places:
        own = [visit for visit in found.visits if visit.place_id == place.place_id]
        assert len(own) == place.visits
        assert sum(visit.end - visit.start for visit in own) == place.dwell_ms
        assert len(place.profile) == 168
        assert sum(place.profile) == pytest.approx(place.dwell_ms / 60_000, abs=84)
    home = labelled(found.places, "home")
    assert home is not None
    # At Monday 3:00 everybody is at home, and nobody works.
    assert home.profile[3] == 60
    assert home.confidence is not None
    assert 0 < home.confidence <= 1


def test_across_the_date_line_a_place_is_one_place() -> None:
    dice = np.random.default_rng(2)
    count = 4000
    time = START_MS + np.arange(count, dtype=np.int64) * 60_000
    lon = 179.9999 + dice.normal(0, 0.0001, count)
    lon = (lon + 180) % 360 - 180
    lat = -16.5 + dice.normal(0, 0.00005, count)
    fixes = Fixes(time, to_units(lat), to_units(lon), np.full(count, np.nan, np.float32))
    places = find_places("u/phone", stays_of(fixes)).places
    assert len(places) == 1
    assert haversine_m(places[0].lat, places[0].lon, -16.5, 179.9999) < 20


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_fixes_are_no_place(count: int) -> None:
    column = np.zeros(count, np.int32)
    fixes = Fixes(np.arange(count), column, column, column.astype(np.float32))
    assert find_places("u/p", stays_of(fixes)) == DevicePlaces([], [], [])


@settings(max_examples=100)
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


def stays_at(north_m: list[float], fixes: list[int], apart_ms: int = 2 * HOUR_MS) -> Stays:
    """Return stays of half an hour, one after the other, along a meridian."""
    start = np.arange(len(north_m), dtype=np.int64) * apart_ms
    return Stays(
        start,
        start + HOUR_MS // 2,
        48 + np.array(north_m) / METRES_PER_DEGREE,
        np.full(len(north_m), 11.0),
        np.zeros(len(north_m), np.int64),
        np.array(fixes, np.int64),
    )


def test_a_chain_of_stays_along_a_street_is_cut() -> None:
    stays = stays_at([80.0 * number for number in range(30)], [10] * 30)
    numbers = cluster(stays)
    for number in set(numbers.tolist()):
        assert np.ptp(stays.lat[numbers == number]) * METRES_PER_DEGREE <= 300


def test_two_places_that_bad_stays_join_are_two() -> None:
    stays = stays_at([0, 160, 70, 5, 155, -5, 165, 90], [100, 100, 2, 100, 100, 100, 100, 2])
    numbers = cluster(stays)
    assert len(set(numbers.tolist())) == 2
    assert numbers[[0, 3, 5]].tolist() == [0, 0, 0]
    assert numbers[[1, 4, 6]].tolist() == [1, 1, 1]
    lat, _ = centres_of(stays, numbers, 2)
    assert (lat - 48) * METRES_PER_DEGREE == pytest.approx([0, 160], abs=20)


@pytest.mark.parametrize(("error_m", "places"), [(50.0, 1), (5.0, 2)])
def test_how_far_apart_two_places_are_depends_on_how_well_the_device_measures(
    error_m: float, places: int
) -> None:
    # Home, which reveals the error, and two spots with few fixes, 110 m apart.
    dice = np.random.default_rng(3)
    home = (1000 + dice.normal(0, error_m, 40)).tolist()
    stays = stays_at([*home, 0.0, 110.0, 0.0, 110.0], [10] * 40 + [4] * 4)
    assert len(set(cluster(stays)[40:].tolist())) == places


def test_stays_that_a_bad_fix_cut_are_joined() -> None:
    joined = join_stays(stays_at([0, 120, 20, 400], [10, 1, 10, 10], apart_ms=HOUR_MS // 2))
    assert joined.start.tolist() == [0, 3 * HOUR_MS // 2]
    assert joined.fixes.tolist() == [21, 10]


@given(st.integers(0, 10**12), st.integers(0, 400 * HOUR_MS))
def test_a_weekly_profile_has_every_minute_once(start: int, length: int) -> None:
    profile = weekly_profile(np.array([start]), np.array([start + length]))
    assert sum(profile) == pytest.approx(length / 60_000, abs=84)
    if length >= HOUR_MS:
        # Thursday 1970-01-01 0:00 is hour 72 of the week.
        assert profile[((start + length // 2) // HOUR_MS + 72) % 168] > 0


@given(st.integers(-(10**13), 10**13), st.integers(0, 30 * DAY_MS))
def test_hours_of_the_night_add_up(start: int, length: int) -> None:
    minute = 60_000
    start -= start % minute
    length = length % (2 * DAY_MS) - length % minute
    clock = np.arange(start, start + length, minute, dtype=np.int64)
    hour = clock // HOUR_MS % 24
    ends = np.array([start, start + length], np.int64)
    assert np.diff(night_ms(ends))[0] == ((hour >= 22) | (hour < 6)).sum() * minute


@pytest.mark.parametrize(("lon", "hours"), [(13.4, 1), (-74.0, -5), (116.4, 8), (180.0, 12)])
def test_without_a_time_zone_the_clock_follows_the_sun(lon: float, hours: int) -> None:
    assert sun_clock(0.0, lon, np.zeros(2, np.int64)).tolist() == [hours * HOUR_MS] * 2
