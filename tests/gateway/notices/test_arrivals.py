"""Arrivals at places, passing by, leaving, and the notifications of arrivals."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gateway.mqtt.packets.message import Message
from gateway.mqtt.sessions.router import Router
from gateway.notices.arrivals import STAY_MS, Arrivals
from gateway.notices.notices import FRESH_MS, Notices, event_of
from gateway.notices.owntracks_downlink import name_of, set_waypoints
from gateway.notices.waypoint_source import WaypointSource
from gateway.views.location_view import LocationView
from gateway.views.places import Places, PlacesUnavailable
from tests.gateway.mqtt.in_memory import User, Wire, new_router
from tests.gateway.records import NOW, address, fix, record
from tests.gateway.running import Gateway, Login, answered, json_of, places_of
from waylog.messages import Event, decode_event, encode
from waylog.observability.telemetry import now_ms
from waylog.process.machine_lock import MachineLock

HOME: dict[str, Any] = {
    **{"user": "ada", "device": None, "place_id": "p1", "lat": 47.14, "lon": 9.52},
    **{"label": "home", "name": None, "visits": 3, "dwell_s": 60.0, "address": "Städtle 1"},
}
WORK = HOME | {"place_id": "p2", "lat": 47.20, "label": "work", "dwell_s": 30.0}
MINUTE = 60_000


def test_who_stays_has_arrived_once_until_it_leaves() -> None:
    arrivals = Arrivals()

    def at(minute: float, lat: float) -> str | None:
        time = NOW + round(minute * MINUTE)
        arrival = arrivals.observe("ada/phone", time, lat, 9.52, [HOME, WORK])
        return None if arrival is None else str(arrival.place["place_id"])

    assert [at(0, 47.0), at(1, 47.1401), at(2, 47.1402), at(5, 47.14)] == [None, None, None, "p1"]
    assert [at(6, 47.14), at(90, 47.1415), at(300, 47.14)] == [None] * 3
    assert [at(301, 47.17), at(302, 47.20), at(310, 47.20)] == [None, None, "p2"]
    assert [at(311, 47.14), at(312, 47.20), at(313, 47.14), at(315, 47.14)] == [None] * 4


def test_to_pass_by_or_to_fall_silent_is_not_to_arrive() -> None:
    arrivals = Arrivals()
    assert arrivals.observe("a/b", NOW, 47.14, 9.52, [HOME]) is None
    assert arrivals.observe("a/b", NOW + 2 * STAY_MS, 47.3, 9.52, [HOME]) is None
    assert arrivals.observe("a/b", NOW + 3 * STAY_MS, 47.14, 9.52, [HOME]) is None
    assert arrivals.observe("a/b", NOW + 3 * STAY_MS + 2 * 3600_000, 47.14, 9.52, [HOME]) is None
    assert arrivals.observe("c/d", NOW, 47.14, 9.52, []) is None


def test_places_have_names_and_become_regions() -> None:
    assert [name_of(p) for p in (HOME, HOME | {"name": "Our house"}, HOME | {"label": None})] == [
        *("Home", "Our house", "Städtle 1"),
    ]
    assert set_waypoints([]) is None
    command = set_waypoints([HOME, WORK])
    assert command is not None
    first, second = command["waypoints"]["waypoints"]
    assert (first["desc"], first["lat"], first["rad"]) == ("Home", 47.14, 120)
    assert first["tst"] != second["tst"]
    assert (
        set_waypoints(  # type: ignore[index]
            [HOME | {"name": "x"}],
        )["waypoints"]["waypoints"][0]["tst"]
        == first["tst"]
    )


def write_places(folder: Path, *places: dict[str, Any]) -> None:
    import pyarrow
    from pyarrow import parquet

    folder.mkdir(exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(list(places)), folder / "new")
    (folder / "new").replace(folder / "places.parquet")


@pytest.fixture
async def places(tmp_path: Path) -> Places:
    write_places(tmp_path / "places", HOME, WORK)
    read = Places(str(tmp_path / "places"))
    await read.refresh()
    return read


async def test_an_arrival_is_told_everywhere_and_once(places: Places, tmp_path: Path) -> None:
    now = NOW
    locks = [MachineLock(tmp_path / "lock") for _ in range(2)]
    told: list[tuple[str, bytes]] = []
    once: list[Any] = []
    workers = [Notices(places, LocationView(), lock, lambda: now) for lock in locks]
    for worker in workers:
        worker.tell(lambda device, message: told.append((device, message)))
        worker.tell_once(once.append)
    for minute in (0, 1, 4, 5):
        now = NOW + minute * MINUTE
        for worker in workers:
            worker.address_changed("ada/phone", encode(address("ada/phone", now)))
            worker.address_changed("bob/phone", encode(address("bob/phone", now)))
    assert [device for device, _ in told] == ["ada/phone"] * 2
    message = json.loads(told[0][1])
    assert (message["_type"], message["event"], message["desc"]) == ("transition", "enter", "Home")
    (arrival,) = once
    assert event_of(arrival, now).type == "arrival"
    assert workers[0].take("ada/phone") == message
    assert workers[0].take("ada/phone") is None
    now += 2 * FRESH_MS
    assert workers[1].take("ada/phone") is None
    for lock in locks:
        lock.close()


async def test_old_news_is_no_news(places: Places, tmp_path: Path) -> None:
    lock = MachineLock(tmp_path / "lock")
    notices = Notices(places, LocationView(), lock, lambda: NOW + FRESH_MS + STAY_MS + 1)
    for time in (NOW, NOW + STAY_MS):
        notices.address_changed("ada/phone", encode(address("ada/phone", time)))
    assert notices.take("ada/phone") is None
    lock.close()


async def test_a_file_that_is_no_parquet_is_said(tmp_path: Path) -> None:
    (tmp_path / "places.parquet").write_bytes(b"PAR1 no")
    places = Places(str(tmp_path))
    with pytest.raises(PlacesUnavailable, match="cannot be read"):
        await places.of_device("ada/phone")


async def test_places_go_to_phones_over_mqtt(places: Places) -> None:
    router: Router = new_router()
    locations = LocationView()
    locations.on_records([record(fix("ada/phone", NOW))])
    source = WaypointSource(router, places, locations, lambda: 0.0, lambda: None)
    router.sources.append(source)
    wire = Wire(router)
    wire.connect(identity=User("ada"))
    assert b"setWaypoints" in wire.subscribe("owntracks/ada/phone/cmd")
    source.changed()
    assert b"setWaypoints" in wire.received()
    assert list(source.retained("#")) == []
    assert list(source.retained("owntracks/bob/#")) == []
    assert isinstance(next(source.retained("owntracks/ada/#")), Message)


async def test_in_http_mode_the_next_answer_tells(gateway: Gateway, user: Login) -> None:
    mine = [place | {"user": user.name} for place in (HOME, WORK)]
    write_places(gateway.folder / "places", *mine)
    now = now_ms()
    device = f"{user.name}/phone"
    async with gateway.client(user) as client:
        assert len(await places_of(client, device)) == 2
        told: dict[str, dict[str, Any]] = {}
        message = {"_type": "location", "lat": 1, "lon": 2}
        numbers = count()

        async def send() -> bool:
            number = next(numbers)
            time = now - (4 * MINUTE if number == 0 else 0) + number
            gateway.publish(address(device, time))
            message["tst"] = now // 1000 + number
            answer = await json_of(await client.post("/owntracks?d=phone", json=message))
            told.update({each["_type"]: each for each in answer})
            return "transition" in told and "cmd" in told

        await answered(send)
        assert told["transition"]["desc"] == "Home"
        assert len(told["cmd"]["waypoints"]["waypoints"]) == 2
        answer = await json_of(await client.post("/owntracks?d=phone", json=message))
        assert [each["_type"] for each in answer] == ["card"]

    async def arrivals() -> list[Event]:
        events = [
            decode_event(value) for _, value in await asyncio.to_thread(gateway.records, "event")
        ]
        return [each for each in events if each.type == "arrival" and each.device == device]

    await answered(arrivals)
