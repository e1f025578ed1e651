"""What friends are told to whom a user shows squares: as viewers of a share, and nothing more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import cos, hypot, radians
from typing import Any

import numpy as np
import pytest

from gateway.friends.friend_events import FriendEventFilter, card_parts
from gateway.friends.friend_filter import FriendFilter, Stays
from gateway.friends.home_blur import RADIUS_M
from gateway.shares.share import FRIENDS, TOWN_M, Terms, terms_with
from gateway.tracks.track_points import as_told, unpacked
from gateway.views.track_store import pack_point
from tests.gateway.friends.test_friend_filter import (
    AWAY,
    ELSEWHERE,
    LAT,
    LON,
    NOW,
    PLACES,
    Homes,
    address,
    event,
    fix,
    visit,
)
from tests.gateway.friends.test_told_events import fence
from waylog.messages import Address, Fix, decode_fix, encode

TOWN = terms_with("town", None)
COARSE = [terms_with("metres", 50), terms_with("metres", 500), TOWN, terms_with("metres", 50_000)]
STEP_MS = {each: each.step_ms for each in COARSE}
EXACT = ("Hauptstrasse", "Oberdorf", "9490", "Wi-Fi", str(NOW), str(NOW // 1000))


@pytest.fixture
def tell() -> FriendFilter:
    return FriendFilter(Homes(), b"secret")


def metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    east = (one[1] - other[1]) * cos(radians(one[0]))
    return hypot(one[0] - other[0], east) * 111_195


@pytest.mark.parametrize("terms", COARSE)
def test_a_square_a_step_of_time_and_the_town_are_told(tell: FriendFilter, terms: Terms) -> None:
    assert terms.cell_m is not None
    told, named = tell.fix(fix(*AWAY), terms), tell.address(address(*AWAY), terms)
    assert isinstance(told, Fix) and isinstance(named, Address)
    for each in (told, named):
        assert metres((each.lat, each.lon), AWAY) <= terms.cell_m * 0.75
        assert each.time % STEP_MS[terms] == 0
    assert (told.lat, told.lon, told.time) == (named.lat, named.lon, named.time)
    assert told.received == told.time and named.resolved == named.time
    assert told.accuracy == terms.cell_m / 2
    assert (told.altitude, told.speed, told.course, told.battery, told.charging) == (None,) * 5
    assert (told.trigger, told.attributes) == (None, {"tid": "ad"})
    assert not {"road", "suburb", "postcode", "house_number"} & named.address.keys()
    assert ("city" in named.address) == (terms.cell_m <= TOWN_M)
    # Every position of the square, at any time of the step, is the same record.
    other = fix(told.lat + 1e-5, told.lon + 1e-5, told.time + STEP_MS[terms] - 1)
    other.id = "another"
    assert tell.fix(other, terms) == told


@pytest.mark.parametrize("terms", COARSE)
def test_the_home_is_hidden_in_its_circle_besides(tell: FriendFilter, terms: Terms) -> None:
    assert terms.cell_m is not None
    [circle] = tell.circles("ada")
    told = [tell.fix(fix(LAT + north, LON), terms) for north in (0.0, 0.0005, -0.001)]
    assert all(each == told[0] for each in told)
    assert told[0] is not None
    assert metres((told[0].lat, told[0].lon), circle) <= terms.cell_m * 0.75
    assert told[0].accuracy == max(RADIUS_M, terms.cell_m / 2)


def messages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what a device publishes at AWAY that has a position, or the time of one."""
    location = {"_type": "location", "tid": "ad", "acc": 5, "vel": 30, "SSID": "Ada's Wi-Fi"}
    yield "owntracks/ada/phone", location | ELSEWHERE
    yield "devices/ada/phone/position", {"lat": AWAY[0], "lon": AWAY[1], "time": NOW}
    yield "devices/ada/phone/address", json.loads(encode(address(*AWAY)))


@pytest.mark.parametrize(("topic", "members"), [*messages()])
@pytest.mark.parametrize("retained", [False, True])
def test_messages_tell_the_square(
    tell: FriendFilter, topic: str, members: dict[str, Any], retained: bool
) -> None:
    told = FriendEventFilter(tell).message(topic, json.dumps(members).encode(), retained, NOW, TOWN)
    assert told is not None
    found = json.loads(told.what)
    expected = tell.fix(fix(*AWAY), TOWN)
    assert expected is not None
    assert (found["lat"], found["lon"]) == (expected.lat, expected.lon)
    assert found.get("time", found.get("tst", 0) * 1000) == expected.time
    assert not any(each in told.what.decode() for each in EXACT)


@pytest.mark.parametrize(
    ("topic", "members"),
    [
        ("owntracks/ada/phone", {"_type": "encrypted", "data": "the position"}),
        ("owntracks/ada/phone", {"_type": "lwt", "tst": NOW // 1000}),
        (
            "owntracks/ada/phone/event",
            {"_type": "transition", "event": "enter", "desc": "Work"} | ELSEWHERE,
        ),
    ],
)
def test_what_cannot_be_told_as_a_square_is_not_told(
    tell: FriendFilter, topic: str, members: dict[str, Any]
) -> None:
    payload = json.dumps(members).encode()
    assert FriendEventFilter(tell).message(topic, payload, False, NOW) is not None
    assert FriendEventFilter(tell).message(topic, payload, False, NOW, TOWN) is None


def test_a_card_has_the_name_and_the_town(tell: FriendFilter) -> None:
    own = {"name": "Ada", "face": "picture", "note": "secret"}
    parts = card_parts(address(*AWAY), fix(*AWAY), own)
    told = FriendEventFilter(tell).card(parts, False, TOWN)
    assert told is not None
    assert json.loads(told.what) == {
        **{"_type": "card", "tid": "ad", "face": "picture"},
        "name": "Ada - Vaduz, Liechtenstein",
    }
    exact = FriendEventFilter(tell).card(parts, True, FRIENDS)
    assert exact is not None
    assert json.loads(exact.what)["name"] == "Ada - 5, Hauptstrasse, Vaduz, Liechtenstein"
    # Which street it is changes within the town: that is no news.
    telling = FriendEventFilter(tell)
    streets = [address(*AWAY), address(AWAY[0] + 0.0001, AWAY[1])]
    news = [telling.card(card_parts(each, None, {}), False, TOWN) for each in streets]
    assert [each is None for each in news] == [False, True]
    assert [telling.card(card_parts(each, None, {}), False) is None for each in streets] == [
        *(False, False),
    ]


def test_a_square_is_told_once_for_each_step_of_time_to_all_of_one_precision(
    tell: FriendFilter,
) -> None:
    telling = FriendEventFilter(tell)
    begin = NOW - NOW % TOWN.step_ms
    square = tell.fix(fix(*AWAY), TOWN)
    assert square is not None
    middle = square.lat, square.lon
    times = [0, 10_000, 20_000, TOWN.step_ms, TOWN.step_ms + 1]
    came = [
        event(fix(middle[0] + number * 1e-5, middle[1], begin + each), number)
        for number, each in enumerate(times)
    ]
    told = [telling.event(each, TOWN) for each in came]
    assert [each is not None for each in told] == [True, False, False, True, False]
    # Whoever is told exact positions misses nothing by it, and the other way round.
    assert all(telling.event(each) is not None for each in came)
    fine = terms_with("metres", 50)
    assert telling.event(came[0], fine) is not None
    # A second viewer of the same precision gets the same.
    assert [telling.event(each, TOWN) for each in came] == told
    for each in told:
        if each is not None:
            assert decode_fix(each.what.value).time % TOWN.step_ms == 0


@pytest.mark.parametrize("terms", COARSE)
def test_of_the_past_the_way_through_the_squares_is_told_and_no_place(
    tell: FriendFilter, terms: Terms
) -> None:
    stays = {each["place_id"]: Stays(3, 7200.0) for each in PLACES}
    trip = {"start": NOW, "end": NOW + 1, "origin": "b", "destination": "c", "distance_m": 4_321.0}
    assert list(tell.places("ada", PLACES, stays))
    assert not [*tell.places("ada", PLACES, stays, terms)]
    assert not [*tell.visits("ada", [visit("c", *AWAY)], 0, terms)]
    assert not [*tell.trips("ada", [trip], PLACES, 0, terms)]
    times = [NOW + number * 20_000 for number in range(100)]
    packed = b"".join(
        pack_point(time, AWAY[0] + number * 1e-4, AWAY[1], 431.5, 5.0, 1.5, 90.0)
        for number, time in enumerate(times)
    )
    points = as_told(unpacked(packed), tell.circles("ada"), tell.grid_for("ada", terms))
    squares = {
        (each.lat, each.lon)
        for number, time in enumerate(times)
        if (each := tell.fix(fix(AWAY[0] + number * 1e-4, AWAY[1], time), terms)) is not None
    }
    assert {*zip(points["lat"] / 1e7, points["lon"] / 1e7, strict=True)} == squares
    assert (points["time"] % terms.step_ms == 0).all()
    assert np.isnan(points["speed"]).all() and np.isnan(points["altitude"]).all()


def test_no_event_is_told(tell: FriendFilter) -> None:
    assert tell.event(fence()) is not None
    for terms in COARSE:
        assert tell.event(fence(), terms) is None
