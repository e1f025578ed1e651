"""Topology `trips`: trips and totals compared with a search over the whole track."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.properties import Properties
from consumers.streams.trips.messages import Trip, TripDay
from consumers.streams.trips.topology import Trips
from tests.consumers.streams.harness import BEGIN, Driven, make_fix
from tests.consumers.streams.trips.truth import Spot, comparable, trips
from tests.odd_records import MALFORMED_VALUES
from waylog.config import ConfigError
from waylog.messages import Fix

#: Degrees of latitude that are 100 m.
STEP = 100 / 111_195
DAY_MS = 86_400_000
#: BEGIN is at 22:13:20 UTC.
TO_MIDNIGHT_S = 6400


def started(**texts: str) -> Driven:
    driven = Driven(Trips(Properties(texts)))
    driven.now_ms = BEGIN + 4000 * DAY_MS
    return driven


def at(seconds: float, steps: float, **more: Any) -> Fix:
    """Return a fix so many hundreds of metres north."""
    return make_fix(seconds, 47.0 + steps * STEP, 9.0, **more)


def drive(begin: float, steps: float, to: float, every: float = 10.0, by: float = 1.0) -> list[Fix]:
    """Return fixes, one each ten seconds, from some hundreds of metres to others."""
    count = math.floor(abs(to - steps) / by + 0.5)
    sign = 1 if to > steps else -1
    return [at(begin + every * n, steps + sign * by * n) for n in range(count + 1)]


def rest(begin: float, steps: float, seconds: float, jitter: float = 0.05) -> list[Fix]:
    chance = random.Random(begin)
    return [
        at(begin + 10 * n, steps + chance.uniform(-jitter, jitter))
        for n in range(round(seconds / 10) + 1)
    ]


def newest(driven: Driven) -> tuple[dict[str, Trip], dict[str, TripDay]]:
    """Return the newest record of each key of both topics."""
    found: dict[str, Trip] = {}
    days: dict[str, TripDay] = {}
    for each in driven.outputs:
        key = (each.key or b"").decode()
        if each.topic == "trip-day":
            days[key] = msgspec.json.decode(each.value, type=TripDay)
        elif each.topic == "trip":
            found[key] = msgspec.json.decode(each.value, type=Trip)
    return found, days


def told(driven: Driven, device: str = "ann/phone") -> Any:
    """Return what was told, in the form of the truth; totals that wait are told by a late fix."""
    found, days = newest(driven)
    own = sorted(
        (each for each in found.values() if each.device == device), key=lambda each: each.start
    )
    return (
        [(each.start, each.end) for each in own],
        [(each.distance_m, each.moving_s * 1000) for each in own],
        {
            each.date: [each.trips, each.distance_m, each.moving_s * 1000, each.unseen_m]
            for _, each in sorted(days.items())
            if each.device == device
        },
    )


def flush(fixes: list[Fix], device: str = "ann/phone") -> Fix:
    """Return a fix that ends a trip by silence, where the device was before."""
    last = fixes[-1]
    after = (last.time - BEGIN) / 1000 + 20_000
    return make_fix(after, last.lat, last.lon, device=device, accuracy=last.accuracy)


def is_near(one: Any, other: Any) -> bool:
    """Compare what was told with the truth: times exactly, lengths by decimetres a day."""
    if one[0] != other[0] or one[2].keys() != other[2].keys():
        return False
    pairs = [*zip(one[1], other[1], strict=True)]
    pairs += [(one[2][day], other[2][day]) for day in one[2]]
    return all(
        math.isclose(a, b, rel_tol=2e-4, abs_tol=150)
        if place == 2
        else math.isclose(a, b, rel_tol=2e-4, abs_tol=60)
        for each, theirs in pairs
        for place, (a, b) in enumerate(zip(each, theirs, strict=True))
    )


def test_a_trip_has_its_distance_and_moving_time_and_rest_has_none() -> None:
    driven = started()
    driven.send(*rest(0, 0, 600), *drive(610, 0, 30), *rest(920, 30, 600))
    found, days = newest(driven)
    [trip] = found.values()
    assert trip.ended
    assert trip.start - BEGIN == pytest.approx(620_000, abs=11_000)
    assert trip.end == BEGIN + 910_000
    # From the first fix of the stay, which is five metres off at most.
    assert trip.distance_m == pytest.approx(3000, abs=6)
    assert trip.moving_s == pytest.approx(290, abs=11)
    assert trip.fastest == pytest.approx(10, abs=0.1)
    assert trip.origin_lat == pytest.approx(47, abs=1e-4)
    assert trip.lat == 47 + 30 * STEP
    [day] = days.values()
    assert (day.date, day.trips, day.distance_m) == ("2023-11-14", 1, trip.distance_m)
    assert day.time_zone == "UTC"


def test_a_way_about_the_place_of_a_stay_is_in_neither_trip() -> None:
    driven = started()
    about = [at(520 + 30 * n, 10 + 0.6 * (n % 2)) for n in range(9)]
    stay = [*about, *rest(800, 10, 400)]
    driven.send(*rest(0, 0, 400), *drive(410, 0, 10), *stay, *drive(1210, 10, 20),
                *rest(1320, 20, 400))  # fmt: skip
    lengths = [each.distance_m for each in newest(driven)[0].values()]
    assert lengths == [pytest.approx(1000, abs=12)] * 2


def test_a_pause_is_in_the_trip_but_not_in_its_moving_time() -> None:
    driven = started()
    way = [*rest(0, 0, 400), *drive(410, 0, 10), *rest(520, 10, 200), *drive(730, 10, 20)]
    driven.send(*way, *rest(840, 20, 400))
    [trip] = newest(driven)[0].values()
    assert trip.distance_m == pytest.approx(2000, abs=20)
    assert trip.end - trip.start == pytest.approx(420_000, abs=12_000)
    assert trip.moving_s == pytest.approx(210, abs=30)


def test_what_is_never_far_from_its_origin_is_no_trip() -> None:
    driven = started()
    driven.send(*rest(0, 0, 400), *drive(410, 0, 2), *drive(440, 2, 0), *rest(470, 0, 400))
    assert newest(driven) == ({}, {})


def test_a_trip_over_midnight_is_divided_in_the_totals_alone() -> None:
    driven = started()
    start = TO_MIDNIGHT_S - 150
    driven.send(*rest(start - 410, 0, 400), *drive(start, 0, 30), *rest(start + 310, 30, 400))
    found, days = newest(driven)
    [trip] = found.values()
    first, second = (days[f"ann/phone\n2023-11-{day}"] for day in (14, 15))
    assert (first.trips, second.trips) == (1, 0)
    assert first.distance_m + second.distance_m == pytest.approx(trip.distance_m, abs=0.2)
    assert first.distance_m == pytest.approx(1500, abs=6)
    assert first.moving_s + second.moving_s == pytest.approx(trip.moving_s, abs=0.2)


def test_days_are_those_of_the_time_zone_also_when_the_clock_is_changed() -> None:
    driven = started(time_zone="Asia/Kolkata")  # 5:30 ahead: midnight is at 18:30 UTC
    driven.send(*rest(0, 0, 400), *drive(410, 0, 9), *rest(510, 9, 400))
    assert [each.date for each in newest(driven)[1].values()] == ["2023-11-15"]
    # 2023-10-29 has 25 hours in Vaduz.
    driven = started(time_zone="Europe/Vaduz")
    midnight = (1_698_530_400_000 - BEGIN) / 1000
    for hours in (-0.5, 1, 24.2, 25.5):
        begin = midnight + hours * 3600
        driven.send(*rest(begin - 400, 0, 400), *drive(begin + 10, 0, 9),
                    *rest(begin + 110, 9, 400))  # fmt: skip
    trips_of = {each.date: each.trips for each in newest(driven)[1].values()}
    assert trips_of == {"2023-10-28": 1, "2023-10-29": 2, "2023-10-30": 1}


def test_a_silence_ends_a_trip_and_the_way_in_it_is_unseen() -> None:
    driven = started()
    driven.send(*rest(0, 0, 400), *drive(410, 0, 20), at(3000, 60), *rest(3010, 60, 400))
    found, days = newest(driven)
    [trip] = found.values()
    assert (trip.ended, trip.end) == (True, BEGIN + 610_000)
    [day] = days.values()
    assert (day.trips, day.distance_m) == (1, trip.distance_m)
    assert day.unseen_m == pytest.approx(4000, rel=1e-3)


def test_accuracy_decides_and_jumps_are_left_out() -> None:
    driven = started()
    wild = [at(10 * n, 0.9 * (n % 3), accuracy=95.0) for n in range(90)]
    driven.send(*wild, at(901, 0, accuracy=5000.0), at(902, 9, accuracy=101.0), at(903, 900))
    driven.send(at(905, 9, accuracy=-1.0), *rest(910, 0, 400))
    assert newest(driven) == ({}, {})


def test_said_speeds_are_the_fastest_unless_no_vehicle_has_them() -> None:
    driven = started()
    way = [
        msgspec.structs.replace(fix, speed=speed)
        for fix, speed in zip(
            drive(410, 0, 9), [1, 5, 30, 1e9, math.nan, -3, 2, math.inf, 4, 5], strict=True
        )
    ]
    driven.send(*rest(0, 0, 400), *way, *rest(510, 9, 400))
    assert [each.fastest for each in newest(driven)[0].values()] == [30]


def test_totals_are_told_while_a_trip_goes_on_and_grow() -> None:
    driven = started()
    driven.send(*rest(0, 0, 400), *drive(410, 0, 60))
    under_way = [
        msgspec.json.decode(each.value, type=Trip)
        for each in driven.outputs
        if each.topic == "trip"
    ]
    assert 9 <= len(under_way) <= 11
    assert not any(each.ended for each in under_way)
    lengths = [each.distance_m for each in under_way]
    assert lengths == sorted(lengths) and len({each.start for each in under_way}) == 1


def test_late_and_repeated_fixes_change_nothing() -> None:
    way = [*rest(0, 0, 400), *drive(410, 0, 30), *rest(720, 30, 600)]
    plain, disturbed = started(), started()
    plain.send(*way)
    chance = random.Random(3)
    for number, fix in enumerate(way):
        disturbed.send(fix, *chance.choices(way[: number + 1], k=3), at(5, 40))
    assert disturbed.outputs == plain.outputs


def test_records_that_are_no_fixes_stop_nobody() -> None:
    driven = started()
    driven.send(*rest(0, 0, 400))
    driven.send(*MALFORMED_VALUES, None, b"")
    driven.send(*drive(410, 0, 9), *rest(510, 9, 400))
    assert len(newest(driven)[0]) == 1


def test_an_erased_device_is_forgotten_others_stay() -> None:
    driven = started()
    driven.send(*rest(0, 0, 100), make_fix(50, device="bob/car"))
    driven.task._processor.erase({"ann/phone": BEGIN + DAY_MS}, driven.store)
    assert driven.store.keys() == ["bob/car"]


def test_the_state_of_a_device_stays_small_however_long_it_goes_on() -> None:
    driven = started(update_s="600")
    for day in range(12):
        driven.send(*(at(day * 86_400 + 30 * n, 3 * (n % 40)) for n in range(2880)))
    [(_, state)] = driven.store.items()
    assert len(state.days) <= 3
    assert len(msgspec.json.encode(state)) < 1200


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"time_zone": "Mars/Base"}, "time_zone: 'Mars/Base' is not a time zone"),
        ({"time_zone": "../../etc/passwd"}, "is not a time zone"),
        ({"stay_m": "0"}, "--property stay_m=0: at least 1 is expected"),
        ({"minimum": "3"}, "has no such property; did you mean minimum_m"),
    ],
)
def test_wrong_properties_are_named(texts: dict[str, str], message: str) -> None:
    properties = Properties(texts)
    with pytest.raises(ConfigError, match=message):
        Trips(properties)
        properties.check_all_known("trips")


def spots_of(fixes: list[Fix]) -> list[Spot]:
    return [
        Spot(each.time, each.lat, each.lon, 10.0 if each.accuracy is None else each.accuracy)
        for each in fixes
    ]


#: Legs: seconds to the next fix, metres north and east, how often, accuracy.
LEGS = st.lists(
    st.tuples(
        st.sampled_from([5, 20, 60, 290, 1000]),
        st.integers(-220, 220),
        st.integers(-220, 220),
        st.integers(1, 12),
        st.sampled_from([None, 3.0, 40.0, 90.0]),
    ),
    min_size=1,
    max_size=14,
)


def walked(legs: list[tuple[int, int, int, int, float | None]]) -> list[Fix]:
    seconds, north, east = 0.0, 0.0, 0.0
    fixes = []
    for every, up, right, count, accuracy in legs:
        for _ in range(count):
            seconds, north, east = seconds + every, north + up, east + right
            fixes.append(
                make_fix(seconds, 47 + north / 111_195, 9 + east / 75_834, accuracy=accuracy)
            )
    return fixes


@given(LEGS, st.sampled_from(["UTC", "Asia/Kolkata"]), st.sets(st.integers(0, 60)))
def test_trips_and_totals_are_those_of_a_search_over_the_whole_track(
    legs: list[Any], zone: str, restarts: set[int]
) -> None:
    fixes = walked(legs)
    fixes.append(flush(fixes))
    one, several = started(time_zone=zone), started(time_zone=zone)
    one.send(*fixes)
    for number, fix in enumerate(fixes):
        if number in restarts:
            several.restart()
        several.send(fix)
    truth = comparable(trips(spots_of(fixes), zone))
    assert is_near(told(one), truth), (told(one), truth)
    assert several.outputs == one.outputs


@given(
    st.lists(
        st.builds(
            make_fix,
            st.integers(0, 4000),
            st.floats(-90, 90),
            st.floats(-180, 180),
            speed=st.none() | st.floats(),
            accuracy=st.none() | st.floats(),
        ),
        max_size=12,
    )
)
def test_any_fixes_give_records_that_can_be_read(fixes: list[Any]) -> None:
    driven = started(minimum_m="0", implausible_kmh="1e9", accuracy_max_m="1e9")
    driven.send(*fixes)
    assert driven.task.refused == 0
    found, days = newest(driven)
    told_of: list[Trip | TripDay] = [*found.values(), *days.values()]
    for each in told_of:
        assert math.isfinite(each.distance_m) and each.distance_m >= 0 and each.moving_s >= 0
