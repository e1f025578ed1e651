"""The friend filter: what friends are shown."""

from __future__ import annotations

import json
from math import isnan
from typing import Any

import pytest

from gateway.friends.friend_events import FriendEventFilter
from gateway.friends.friend_filter import HOME, HOME_MS, VISIT_MS, FriendFilter, StaysSince
from gateway.friends.home_blur import RADIUS_M
from gateway.tracks.track_points import MEASURED, Points, as_told, unpacked
from gateway.views.track_store import pack_point
from gateway.views.view import ViewEvent
from waylog.messages import Address, Fix, decode_fix, encode

LAT, LON = 47.0, 9.0
AWAY = 47.1, 9.1
#: The beginning of a quarter of an hour, and a time near its end (ms).
BEGIN = 1_900_000_800_000
NOW = BEGIN + HOME_MS - 1_000


class Homes:
    """The home of the user ada."""

    looked_up = True

    def homes(self, user: str) -> list[tuple[float, float]]:
        return [(LAT, LON)] if user == "ada" else []


@pytest.fixture
def tell() -> FriendFilter:
    return FriendFilter(Homes(), b"secret")


def fix(lat: float = LAT, lon: float = LON, time: int = NOW) -> Fix:
    return Fix(
        id="0123456789ab0123456789ab",
        device="ada/phone",
        user="ada",
        lat=lat,
        lon=lon,
        time=time,
        received=time + 3,
        accuracy=5.0,
        altitude=431.5,
        speed=1.5,
        course=90.0,
        battery=80.0,
        trigger="p",
        attributes={"tid": "ad", "SSID": "Ada's Wi-Fi", "inregions": ["Ada's home"]},
    )


def address(lat: float = LAT, lon: float = LON) -> Address:
    return Address(
        device="ada/phone",
        fix_id="0123456789ab0123456789ab",
        time=NOW,
        lat=lat,
        lon=lon,
        display_name="5, Hauptstrasse, Vaduz, Liechtenstein",
        address={
            "house_number": "5",
            "road": "Hauptstrasse",
            "suburb": "Oberdorf",
            "postcode": "9490",
            "city": "Vaduz",
            "country": "Liechtenstein",
            "country_code": "li",
        },
        distance=3.0,
        resolved=NOW + 7,
    )


def place(place_id: str, lat: float, lon: float, label: str | None = None) -> dict[str, Any]:
    named = {"name": "Name", "address": "Street 5", "visits": 30, "dwell_s": 12_345.0}
    return {"place_id": place_id, "lat": lat, "lon": lon, "label": label, **named}


def visit(
    place_id: str, lat: float = LAT, lon: float = LON, begin: int = NOW, end: int = NOW + 90_000_000
) -> dict[str, Any]:
    times = {"arrival": begin, "departure": end, "dwell_s": (end - begin) / 1000}
    return {"place_id": place_id, "lat": lat, "lon": lon, "silent_s": 3.5, "fixes": 7, **times}


PLACES = [place("a", LAT, LON, "home"), place("b", LAT + 0.0002, LON), place("c", *AWAY, "work")]


def test_at_home_a_fix_is_the_middle_and_a_quarter_of_an_hour(tell: FriendFilter) -> None:
    [circle] = tell.circles("ada")
    told = tell.fix(fix())
    assert told is not None
    assert (told.lat, told.lon, told.accuracy) == (*circle, RADIUS_M)
    assert told.time == told.received == BEGIN
    assert (told.altitude, told.speed, told.course, told.trigger) == (None,) * 4
    assert (told.battery, told.charging) == (None, None)
    assert told.attributes == {"tid": "ad"}


def test_at_home_each_fix_of_a_quarter_of_an_hour_is_the_same(tell: FriendFilter) -> None:
    fixes = [fix(time=time) for time in (BEGIN, BEGIN + 60_000, NOW)]
    for number, each in enumerate(fixes):
        each.id, each.battery = f"fix-{number}", 80.0 - number
    assert len({encode(told) for each in fixes if (told := tell.fix(each))}) == 1
    found = [address() for _ in fixes]
    for number, at in enumerate(found):
        at.fix_id, at.time, at.resolved = f"fix-{number}", BEGIN + number, NOW + number
    assert len({encode(named) for at in found if (named := tell.address(at))}) == 1
    later, named = tell.fix(fix(time=NOW + HOME_MS)), tell.address(address())
    assert later is not None
    assert named is not None
    told = tell.fix(fix())
    assert told is not None
    assert later.id != told.id == named.fix_id


def test_elsewhere_a_fix_is_told_without_what_apps_add(tell: FriendFilter) -> None:
    told = tell.fix(fix(*AWAY))
    assert told is not None
    assert (told.lat, told.lon, told.time, told.accuracy) == (*AWAY, NOW, 5.0)
    assert told.attributes == {"tid": "ad"}
    # Digits beyond the precision of a receiver would identify the fix.
    told, found = tell.fix(fix(47.123456789, 9.1)), tell.address(address(47.123456789, 9.1))
    assert told is not None
    assert found is not None
    assert told.lat == found.lat == 47.12346
    assert b"Wi-Fi" not in encode(told)


def test_ids_are_keyed(tell: FriendFilter) -> None:
    told, other = tell.fix(fix()), FriendFilter(Homes(), b"another").fix(fix())
    assert told is not None
    assert other is not None
    assert fix().id != told.id != other.id
    named = tell.address(address())
    assert named is not None
    assert named.fix_id == told.id


def test_the_address_of_a_home_is_its_town(tell: FriendFilter) -> None:
    told = tell.address(address())
    assert told is not None
    assert told.display_name == "Vaduz, Liechtenstein"
    assert told.address == {"city": "Vaduz", "country": "Liechtenstein", "country_code": "li"}
    assert (told.lat, told.lon) == tell.circles("ada")[0]
    assert (told.distance, told.time, told.resolved) == (None, BEGIN, BEGIN)
    away = tell.address(address(*AWAY))
    assert away is not None
    assert away.display_name == address().display_name


def test_before_homes_are_known_nothing_is_told() -> None:
    homes = Homes()
    homes.looked_up = False
    tell = FriendFilter(homes, b"secret")
    assert tell.fix(fix(*AWAY)) is None
    assert tell.address(address(*AWAY)) is None
    payload = json.dumps({"_type": "location", "lat": 47.1, "lon": 9.1, "tst": NOW // 1000})
    assert (
        FriendEventFilter(tell).message("owntracks/ada/phone", payload.encode(), False, NOW) is None
    )


def places_told(
    tell: FriendFilter, visits: list[dict[str, Any]], since: int
) -> list[dict[str, Any]]:
    stays = StaysSince(since)
    for each in visits:
        stays.add(each)
    return list(tell.places("ada", PLACES, stays.by_place))


def test_places_next_door_are_not_told_and_ids_of_others_are_keyed(tell: FriendFilter) -> None:
    visits = [visit(each["place_id"], each["lat"], each["lon"]) for each in PLACES]
    home, work = places_told(tell, visits, NOW)
    assert (home["place_id"], home["name"], home["address"]) == (HOME, None, None)
    assert (home["lat"], home["lon"]) == tell.circles("ada")[0]
    assert (home["visits"], home["dwell_s"] % 3600) == (1, 0)
    assert work["place_id"] not in ("c", HOME)
    assert (work["lat"], work["lon"], work["name"]) == (*AWAY, "Name")
    assert work["place_id"] != FriendFilter(Homes(), b"another").place_id("ada", "c")


def test_places_from_before_the_friendship_are_not_told(tell: FriendFilter) -> None:
    visits = [visit("a"), visit("c", *AWAY, NOW - 99_000, NOW - 1)]
    assert [each["place_id"] for each in places_told(tell, visits, NOW)] == [HOME]


def test_what_was_before_the_friendship_does_not_count_for_a_place(tell: FriendFilter) -> None:
    end, hour = NOW + 90_000_000, 3_600_000
    long, short = visit("c", *AWAY, NOW, end), visit("c", *AWAY, end, end + hour)
    [work] = places_told(tell, [long, short], end - 2 * hour)
    assert (work["visits"], work["dwell_s"]) == (2, 3 * 3_600)
    # A visit that ended when the friendship began is told, as a visit and as a place.
    [work] = places_told(tell, [long], end)
    assert (work["visits"], work["dwell_s"]) == (1, 0)
    assert len(list(tell.visits("ada", [long], end))) == 1


def test_visits_at_home_and_next_door_can_not_be_told_apart(tell: FriendFilter) -> None:
    visits = [visit(each["place_id"], each["lat"], each["lon"]) for each in PLACES]
    home, door, work = tell.visits("ada", visits, 0)
    assert home == door
    assert (home["arrival"] % HOME_MS, home["departure"] % HOME_MS) == (0, 0)
    assert (home["fixes"], home["silent_s"]) == (None, None)
    assert (work["arrival"] % VISIT_MS, work["lat"]) == (0, AWAY[0])
    assert work["place_id"] == places_told(tell, visits, 0)[1]["place_id"]


def test_a_visit_that_the_friendship_began_in_began_with_it(tell: FriendFilter) -> None:
    [told] = tell.visits("ada", [visit("c", *AWAY)], NOW + 50_000_000)
    assert told["arrival"] > NOW + 50_000_000 - VISIT_MS
    assert not list(tell.visits("ada", [visit("c", *AWAY)], NOW + 91_000_000))


def test_trips_do_not_tell_how_far_it_is_home(tell: FriendFilter) -> None:
    def trip(origin: str | None, destination: str | None, start: int = NOW) -> dict[str, Any]:
        ends = {"origin": origin, "destination": destination}
        return {"start": start, "end": start + 1_234_567, "distance_m": 8_123.4, **ends}

    trips = [trip("a", "c"), trip("c", "b"), trip("c", "c"), trip("c", None), trip("c", "c", 5)]
    told = list(tell.trips("ada", trips, PLACES, NOW))
    assert [each["distance_m"] for each in told] == [None, None, 8_100.0, None]
    work = tell.place_id("ada", "c")
    assert [(each["origin"], each["destination"]) for each in told] == [
        (HOME, work),
        (work, HOME),
        (work, work),
        (work, None),
    ]
    assert told[0]["start"] == BEGIN
    assert told[1]["end"] % HOME_MS == 0
    assert told[2]["end"] % VISIT_MS == 0


@pytest.mark.parametrize("first", [0, 1])
def test_a_trip_to_a_place_that_is_at_home_for_one_of_the_devices_is_one_home(
    tell: FriendFilter, first: int
) -> None:
    # Each device may have its own position of a place with the same id.
    places = [place("d", *AWAY), place("d", LAT, LON)]
    trip = {"origin": "c", "destination": "d", "start": NOW, "end": NOW + 9, "distance_m": 5.0}
    [told] = tell.trips("ada", [trip], [places[first], places[1 - first], PLACES[2]], NOW)
    assert (told["destination"], told["distance_m"]) == (HOME, None)


def test_a_trip_that_the_friendship_began_in_is_not_told(tell: FriendFilter) -> None:
    trip = {"origin": "c", "destination": "c", "start": NOW - 1, "end": NOW + 9, "distance_m": 5.0}
    assert not list(tell.trips("ada", [trip], PLACES, NOW))
    assert len(list(tell.trips("ada", [trip], PLACES, NOW - 1))) == 1


def track(*points: tuple[int, float, float]) -> Points:
    return unpacked(b"".join(pack_point(*point, 400.0, 5.0, 1.0, 90.0) for point in points))


def test_a_way_loses_its_parts_at_home(tell: FriendFilter) -> None:
    circles = tell.circles("ada")
    away = (NOW, 47.1, 9.0), (NOW + 1, 47.2, 9.0)
    back = (NOW + 2, 47.0, 9.0), (NOW + 9, 47.0001, 9.0), (NOW + 10, 47.1, 9.0)
    # Times stay in order, whenever the quarter of an hour began.
    middle = pack_point(NOW + 1, *circles[0], None, RADIUS_M, None, None)
    shown = as_told(track(*away, *back), circles)
    assert shown.tobytes() == track(*away).tobytes() + middle + track(back[-1]).tobytes()


def test_a_track_shows_what_a_fix_shows(tell: FriendFilter) -> None:
    told = tell.fix(fix(*AWAY))
    assert told is not None
    [point] = as_told(track((NOW, *AWAY)), tell.circles("ada"))
    shown = {name for name in MEASURED if not isnan(point[name])}
    assert shown == {name for name in MEASURED if getattr(told, name) is not None}


def test_members_that_the_filter_does_not_know_are_not_told(tell: FriendFilter) -> None:
    new = {"new": "secret"}
    stays = StaysSince(NOW)
    stays.add(visit("c", *AWAY))
    trip = {"origin": "c", "destination": "c", "start": NOW, "end": NOW + 9, "distance_m": 5.0}
    told = [
        *tell.places("ada", [place("c", *AWAY) | new], stays.by_place),
        *tell.visits("ada", [visit("c", *AWAY) | new], NOW),
        *tell.trips("ada", [trip | new], PLACES, NOW),
    ]
    assert len(told) == 3
    assert not any("new" in each for each in told)


def event(record: Fix | Address, offset: int) -> ViewEvent:
    topic = "location" if isinstance(record, Fix) else "address"
    return ViewEvent(topic, 0, offset, record.device, record.lat, record.lon, encode(record))


def test_how_long_the_way_from_the_edge_to_the_door_takes_is_not_told(tell: FriendFilter) -> None:
    telling = FriendEventFilter(tell)
    came = [event(fix(*AWAY, NOW - 20_000), 0)]
    came += [event(fix(time=NOW - 10_000 + 1_000 * n), 1 + n) for n in range(10)]
    told = [each for each in map(telling.event, came) if each is not None]
    assert len(told) == 2
    assert (told[1].what.lat, told[1].what.lon) == tell.circles("ada")[0]
    # Every viewer gets the same form of an event.
    assert [telling.event(each) is None for each in came] == [False, False] + [True] * 9
    later = telling.event(event(fix(time=NOW + 2_000), 20))
    assert later is not None
    assert decode_fix(later.what.value).time == BEGIN + HOME_MS
    assert later.time == NOW + 2_000
    left = telling.event(event(fix(*AWAY, NOW + 3_000), 21))
    assert left is not None
    assert telling.event(event(fix(time=NOW + 4_000), 22)) is not None


def message(tell: FriendFilter, topic: str, members: dict[str, Any], retained: bool = False) -> Any:
    payload = json.dumps(members).encode()
    told = FriendEventFilter(tell).message(topic, payload, retained, NOW)
    return None if told is None else (told.time, json.loads(told.what))


AT = {"lat": LAT, "lon": LON, "tst": NOW // 1000}
ELSEWHERE = {"lat": AWAY[0], "lon": AWAY[1], "tst": NOW // 1000}


def test_owntracks_messages_are_told_with_what_is_known_alone(tell: FriendFilter) -> None:
    secret = {"SSID": "Wi-Fi", "inregions": ["home"], "poi": "here", "_id": "x"}
    fix = {"_type": "location", "tid": "ad", "acc": 5}
    time, told = message(tell, "owntracks/ada/phone", fix | ELSEWHERE | secret)
    assert time == NOW // 1000 * 1000
    assert told == {
        **{"_type": "location", "tid": "ad", "lat": 47.1, "lon": 9.1},
        **{"tst": NOW // 1000, "acc": 5},
    }
    _, told = message(tell, "owntracks/ada/phone", fix | {"vel": 50, "alt": 431} | AT)
    assert (told["lat"], told["lon"]) == tell.circles("ada")[0]
    assert set(told) == {"_type", "tid", "lat", "lon", "tst", "acc"}
    assert told["tst"] == BEGIN // 1000


@pytest.mark.parametrize("kind", ["waypoint", "waypoints", "cmd", "dump", "steps", "status"])
def test_other_owntracks_messages_are_not_told(tell: FriendFilter, kind: str) -> None:
    for topic in ("owntracks/ada/phone", "owntracks/ada/phone/event", "owntracks/ada/phone/info"):
        assert message(tell, topic, {"_type": kind} | ELSEWHERE) is None


def test_regions_near_home_are_not_told_and_others_with_another_id(tell: FriendFilter) -> None:
    region = {"_type": "transition", "event": "enter", "desc": "Work", "wtst": 1_600_000_000}
    assert message(tell, "owntracks/ada/phone/event", region | AT) is None
    assert message(tell, "owntracks/ada/phone/event", region | {"tst": 1}) is None
    _, told = message(tell, "owntracks/ada/places/event", region | ELSEWHERE)
    assert told["wtst"] != region["wtst"]
    assert (told["desc"], told["event"]) == ("Work", "enter")


def test_what_only_friends_can_read_is_passed_on_as_news_alone(tell: FriendFilter) -> None:
    sealed = {"_type": "encrypted", "data": "abc"}
    assert message(tell, "owntracks/ada/phone", sealed) == (NOW, sealed)
    assert message(tell, "owntracks/ada/phone", sealed, retained=True) is None


def test_our_own_json_is_told_like_a_fix(tell: FriendFilter) -> None:
    more = {"time": NOW, "attributes": {"note": "secret"}, "altitude": 431.5}
    _, told = message(tell, "devices/ada/phone/position", {"lat": LAT, "lon": LON} | more)
    assert (told["lat"], told["lon"]) == tell.circles("ada")[0]
    assert (told["time"], told["received"]) == (BEGIN, BEGIN)
    assert not {"altitude", "attributes"} & told.keys()


def test_positions_that_come_together_are_as_old_as_the_oldest(tell: FriendFilter) -> None:
    batch = [{"lat": 47.1, "lon": 9.1, "time": NOW + each} for each in (-5_000, 0)]
    told = FriendEventFilter(tell).message(
        "devices/ada/phone/position", json.dumps(batch).encode(), False, NOW
    )
    assert told is not None
    assert told.time == NOW - 5_000


@pytest.mark.parametrize("payload", [b"", b"[", b"[1]", b'{"_type":5}', b"\xff", b"[" * 5000])
@pytest.mark.parametrize(
    "tail", ["owntracks/ada/phone", "owntracks/ada/phone/info", "devices/ada/phone/address"]
)
def test_what_cannot_be_read_is_not_told(tell: FriendFilter, tail: str, payload: bytes) -> None:
    assert FriendEventFilter(tell).message(tail, payload, False, NOW) is None
