"""Events: which of them friends see, and of which meetings a user hears."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.friends.friend_filter import FriendFilter
from gateway.friends.home_blur import RADIUS_M, Area, Circle
from waylog.great_circle import distance_m
from waylog.messages import Event

HOME = 47.0, 9.0
AWAY = 47.1, 9.1
NOW = 1_900_000_800_000
METRE = 1 / 111_195


class Homes:
    """The home of the user ada."""

    looked_up = True

    def homes(self, user: str) -> list[tuple[float, float]]:
        return [HOME] if user == "ada" else []


@pytest.fixture
def tell() -> FriendFilter:
    return FriendFilter(Homes(), b"secret")


def event(kind: str, device: str = "ada/phone", **attributes: Any) -> Event:
    return Event(
        id="0123456789ab0123456789ab",
        device=device,
        user=device.partition("/")[0],
        type=kind,
        time=NOW,
        received=NOW + 900,
        source="streams",
        attributes=attributes,
    )


def fence(at: tuple[float, float] = AWAY, **changes: Any) -> Event:
    members: dict[str, Any] = {
        "transition": "enter",
        "fence": "office",
        "owner": "*",
        "since": NOW - 77_123,
    }
    members |= {"lat": at[0] + 1e-9, "lon": at[1], "fix_id": "0123456789ab0123456789ab"}
    return event("geofence", **members | changes)


def meeting(area: list[float], near_m: Any = 75.0, **changes: Any) -> Event:
    members = {"transition": "begin", "with": "ada/phone", "since": NOW - 300_000}
    return event("meeting", "bob/car", **members | {"area": area, "near_m": near_m} | changes)


def around(at: tuple[float, float], metres: float = 10) -> list[float]:
    lat, lon = at
    side = metres * METRE
    return [lat - side, lon - side, lat + side, lon + side]


def test_friends_are_told_of_fences_of_everybody_away_from_home(tell: FriendFilter) -> None:
    told = tell.event(fence())
    assert told is not None
    assert (told.device, told.type, told.time) == ("ada/phone", "geofence", NOW)
    assert told.attributes == {
        **{"transition": "enter", "fence": "office", "owner": "*"},
        **{"lat": AWAY[0], "lon": AWAY[1]},
    }
    assert told.id != "0123456789ab0123456789ab"
    assert tell.event(fence()) == told


@pytest.mark.parametrize(
    "hidden",
    [
        fence(HOME),
        fence((HOME[0] + 100 * METRE, HOME[1])),
        fence(owner="ada"),
        fence(owner=None),
        fence(lat=None),
        fence(lon="9.1"),
        fence(lat=math.nan),
        fence(lat=10**400),
        fence(lat=True),
        fence(transition="begin"),
        fence(transition=[]),
        event("silence", transition="begin", since=NOW, limit=900),
        event("speeding", transition="begin", lat=AWAY[0], lon=AWAY[1]),
        event("arrival", place_id="p", name="Home", lat=AWAY[0], lon=AWAY[1], owner="*"),
        event("transition", desc="Ada's door", lat=AWAY[0], lon=AWAY[1]),
        event("geofence"),
    ],
)
def test_of_anything_else_friends_are_told_nothing(tell: FriendFilter, hidden: Event) -> None:
    assert tell.event(hidden) is None


def test_what_did_not_come_from_a_topology_is_told_to_nobody(tell: FriendFilter) -> None:
    forged = fence()
    forged.source = "owntracks"
    assert tell.event(forged) is None


def test_before_homes_are_known_nothing_is_told() -> None:
    class Unknown(Homes):
        looked_up = False

    tell = FriendFilter(Unknown(), b"secret")
    assert tell.event(fence()) is None
    assert tell.company(meeting(around(AWAY))) is None


def test_of_a_meeting_at_the_other_ones_home_nobody_is_told(tell: FriendFilter) -> None:
    assert tell.company(meeting(around(AWAY))) == "ada/phone"
    assert tell.company(meeting(around(HOME))) is None
    # Together at home first, and then far away: the end would tell since when they had left.
    both = [*map(min, HOME, AWAY), *map(max, HOME, AWAY)]
    assert tell.company(meeting(both)) is None
    # At the own home the other one is told nothing, but the owner may know who has come.
    assert tell.company(meeting(around(HOME), **{"with": "cyd/phone"})) == "cyd/phone"


def test_a_device_that_says_to_be_everywhere_finds_no_home(tell: FriendFilter) -> None:
    """Bob sends false positions on a grid, and hears at which of them Ada is near."""
    [circle] = tell.circles("ada")
    near_m = 75.0
    heard = []
    for north in range(-900, 901, 60):
        for east in range(-900, 901, 60):
            lat = HOME[0] + north * METRE
            at = lat, HOME[1] + east * METRE / math.cos(math.radians(lat))
            # Ada is anywhere within near_m of it.
            if tell.company(meeting(around(at, 0), near_m)) is not None:
                heard.append(distance_m(*at, circle.lat, circle.lon))
    assert heard
    assert min(heard) > RADIUS_M + near_m


@pytest.mark.parametrize(
    "broken",
    [
        meeting([]),
        meeting([1, 2, 3]),
        meeting([1, 2, 3, "4"]),  # type: ignore[list-item]
        meeting([1, 2, 3, math.nan]),
        meeting("1234"),  # type: ignore[arg-type]
        meeting(around(AWAY), None),
        meeting(around(AWAY), math.inf),
        meeting(around(AWAY), **{"with": 5}),
        event("meeting", "bob/car", **{"with": "ada/phone", "since": NOW}),
    ],
)
def test_a_meeting_without_a_known_area_is_told_to_nobody(
    tell: FriendFilter, broken: Event
) -> None:
    assert tell.company(broken) is None


@given(
    st.floats(-85, 85), st.floats(-180, 180), st.floats(0, 2000), st.floats(0, 6.28),
    st.floats(0, 500), st.floats(0, 0.01), st.floats(0, 0.01),
)  # fmt: skip
def test_no_place_of_an_area_that_is_near_is_missed(
    lat: float, lon: float, away_m: float, bearing: float, near_m: float, high: float, wide: float
) -> None:
    circle = Circle(lat, lon)
    north = lat + away_m * METRE * math.cos(bearing)
    east = lon + away_m * METRE * math.sin(bearing) / math.cos(math.radians(lat))
    # The place is one of the area, at its corner or inside of it.
    area = Area(north - high, east - wide, north + high / 2, east + wide / 2)
    if distance_m(lat, lon, north, east) <= RADIUS_M + near_m:
        assert circle.is_near(area, near_m)
    if wide == high == 0 and distance_m(lat, lon, north, east) > 1.05 * (RADIUS_M + near_m):
        assert not circle.is_near(area, near_m)
