"""A friend who knows the program collects all that it is told, and computes a home's position."""

from __future__ import annotations

import hashlib
import math
import random
from statistics import fmean, median
from typing import Any, Final

from gateway.friends.friend_events import FriendEventFilter
from gateway.friends.friend_filter import HOME_MS, FriendFilter
from gateway.friends.home_blur import RADIUS_M, Circle, circles_around
from gateway.views.view import ViewEvent
from waylog.messages import Fix, encode

METRES_PER_DEGREE: Final = 111_195
NOW: Final = 1_900_000_800_000
HOME: Final = (52.5, 13.4)
KEY: Final = b"secret of the installation"


def metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    east = (one[1] - other[1]) * math.cos(math.radians(one[0]))
    return math.hypot(one[0] - other[0], east) * METRES_PER_DEGREE


def moved(at: tuple[float, float], north_m: float, east_m: float) -> tuple[float, float]:
    lat = at[0] + north_m / METRES_PER_DEGREE
    return lat, at[1] + east_m / METRES_PER_DEGREE / math.cos(math.radians(lat))


class Homes:
    """All users live at the same place."""

    looked_up = True

    def homes(self, user: str) -> list[tuple[float, float]]:
        return [HOME]


def test_no_id_that_is_told_can_be_guessed_from_times() -> None:
    # Like the places job: a hash of the device and the beginning of the first stay.
    first_ms = NOW + 123_457

    def place_id(time: int) -> str:
        return hashlib.blake2b(f"ada/phone\0{time}".encode(), digest_size=8).hexdigest()

    tell = FriendFilter(Homes(), KEY)
    known = place_id(first_ms)
    away = moved(HOME, 5_000, 0)
    visit: dict[str, Any] = {
        "arrival": first_ms,
        "departure": first_ms + 9_999_999,
        "dwell_s": 1,
        "silent_s": 0,
    }
    visit |= {"place_id": known, "lat": away[0], "lon": away[1], "fixes": 3}
    [told] = tell.visits("ada", [visit], 0)
    guesses = {place_id(time) for time in range(told["arrival"], told["arrival"] + HOME_MS, 7)}
    assert told["place_id"] not in guesses
    assert known not in str(told)
    # Nor does what is told reveal the way from the home to the circle's middle.
    assert str(first_ms) not in str(told)


def test_the_mean_of_all_circles_of_a_year_is_not_the_home() -> None:
    chance = random.Random(11)
    errors, naive_errors = [], []
    for user in range(60):
        runs = [moved(HOME, chance.gauss(0, 5), chance.gauss(0, 5)) for _ in range(365)]
        middles = [circles_around(f"u{user}", [run], KEY)[0] for run in runs]
        mean = fmean(each.lat for each in middles), fmean(each.lon for each in middles)
        errors.append(metres(HOME, mean))
        # For comparison: a random offset for each run would reveal the home.
        turned = [
            moved(run, 250 * math.cos(turn), 250 * math.sin(turn))
            for run in runs
            for turn in [chance.random() * 2 * math.pi]
        ]
        naive = fmean(lat for lat, _ in turned), fmean(lon for _, lon in turned)
        naive_errors.append(metres(HOME, naive))
    assert median(naive_errors) < 25
    assert median(errors) > 100


def common_area(circles: set[Circle], metres_a_step: int = 20) -> float:
    """Return the area that is within all circles, in square metres."""
    middle = next(iter(circles))
    steps = range(-600, 601, metres_a_step)
    inside = sum(
        all(circle.has(*moved((middle.lat, middle.lon), north, east)) for circle in circles)
        for north in steps
        for east in steps
    )
    return inside * metres_a_step**2


def test_what_all_circles_of_a_home_have_in_common_stays_wide() -> None:
    chance = random.Random(12)
    areas = []
    for user in range(150):
        runs = [moved(HOME, chance.gauss(0, 5), chance.gauss(0, 5)) for _ in range(40)]
        circles = {circles_around(f"u{user}", [run], KEY)[0] for run in runs}
        if len(circles) > 1:
            areas.append(common_area(circles))
    assert areas
    assert median(areas) > 0.6 * math.pi * RADIUS_M**2
    assert min(areas) > 0.15 * math.pi * RADIUS_M**2


def drive(bearing: float, speed_m_s: float, start: int) -> list[Fix]:
    """Drive home in a straight line from 3 km away, a fix every 5 s, then stay for a minute."""
    fixes = []
    for number in range(1_000):
        left = 3_000 - speed_m_s * 5 * number
        at = moved(HOME, max(0, left) * math.cos(bearing), max(0, left) * math.sin(bearing))
        time = start + 5_000 * number
        fixes.append(
            Fix(
                id=f"{bearing}-{number}",
                device="ada/phone",
                user="ada",
                lat=at[0],
                lon=at[1],
                time=time,
                received=time,
            )
        )
        if left < -60 * speed_m_s:
            break
    return fixes


def test_how_long_somebody_drives_within_the_circle_is_not_told() -> None:
    tell = FriendFilter(Homes(), KEY)
    [circle] = tell.circles("ada")
    telling = FriendEventFilter(tell)
    offset = 0
    for number in range(12):
        start = NOW + 86_400_000 * number
        fixes = drive(number / 12 * 2 * math.pi, 10, start)
        inside = [fix for fix in fixes if circle.has(fix.lat, fix.lon)]
        assert len(inside) > 3
        told = []
        for fix in fixes:
            offset += 1
            event = ViewEvent("location", 0, offset, fix.device, fix.lat, fix.lon, encode(fix))
            found = telling.event(event)
            if found is not None and (found.what.lat, found.what.lon) == circle:
                told.append(found)
        # The arrival is told at the edge of the circle; a quarter of an hour may end on the way.
        assert told[0].time == inside[0].time
        assert {each.time // HOME_MS for each in told} == {each.time // HOME_MS for each in inside}
        assert len(told) <= 2
