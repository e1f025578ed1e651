"""OwnTracks, with messages of its own apps and of apps that imitate them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.formats import Context, owntracks
from waylog.messages import Fix, fix_id

RECEIVED = 1_761_994_812_000
HTTP = Context("mika", "phone", RECEIVED)
MQTT = Context("mika", "phone", RECEIVED, topic="owntracks/mika/phone")

LOCATION: dict[str, Any] = {
    "_type": "location",
    "_id": "5fd20a91",
    "tid": "mk",
    "lat": 50.733417,
    "lon": 7.098112,
    "acc": 14,
    "alt": 61,
    "vac": 3,
    "vel": 23,
    "cog": 141,
    "batt": 72,
    "bs": 1,
    "conn": "m",
    "m": 1,
    "t": "p",
    "tst": 1761994805,
    "created_at": 1761994811,
    "inregions": ["Office"],
    "inrids": ["9c01aa"],
}


def parse_one(message: Any, context: Context = MQTT) -> Fix:
    parsed = owntracks.parse(json.dumps(message).encode(), context)
    assert (parsed.events, parsed.rejected) == ([], [])
    (fix,) = parsed.fixes
    return fix


def test_a_location_is_read_with_units_converted() -> None:
    assert parse_one(LOCATION) == Fix(
        id=fix_id(
            "mika/phone", 1761994805000, 50.733417, 7.098112, trigger="p", message_id="5fd20a91"
        ),
        device="mika/phone",
        user="mika",
        lat=50.733417,
        lon=7.098112,
        time=1761994805000,
        received=RECEIVED,
        accuracy=14,
        altitude=61,
        vertical_accuracy=3,
        speed=round(23 / 3.6, 4),
        course=141,
        battery=72,
        charging=False,
        trigger="p",
        source="owntracks",
        attributes={
            "tid": "mk",
            "conn": "m",
            "m": 1,
            "created_at": 1761994811,
            "inregions": ["Office"],
            "inrids": ["9c01aa"],
        },
    )


@pytest.mark.parametrize(
    ("state", "charging"), [(0, None), (1, False), (2, True), (3, True), (7, None)]
)
def test_battery_state_says_whether_it_charges(state: int, charging: bool | None) -> None:
    assert parse_one(LOCATION | {"bs": state}).charging is charging


def test_sentinels_become_none() -> None:
    fix = parse_one(LOCATION | {"vel": -1, "cog": -1, "acc": -1, "vac": -1, "batt": -1})
    assert (fix.speed, fix.course, fix.accuracy, fix.vertical_accuracy, fix.battery) == (None,) * 5


def test_a_repeat_with_other_members_has_the_same_id() -> None:
    first = {name: value for name, value in LOCATION.items() if name != "_id"}
    again = first | {"p": 101.2, "created_at": 1761994999, "batt": 71}
    assert parse_one(first).id == parse_one(again).id
    assert parse_one(first).id != parse_one(first | {"tst": 1761994806}).id
    assert parse_one(first).id != parse_one(first | {"t": "u"}).id


def test_short_message_ids_are_unique_only_with_device_and_time() -> None:
    assert parse_one(LOCATION).id != parse_one(LOCATION | {"tst": 1761994806}).id
    assert parse_one(LOCATION).id != parse_one(LOCATION, Context("mika", "pad", RECEIVED)).id


def test_whole_kmh_are_owntracks_and_fractions_without_topic_and_id_are_colota() -> None:
    foreign = {name: value for name, value in LOCATION.items() if name != "_id"}
    assert parse_one(foreign | {"vel": 36}, HTTP).speed == 10
    assert parse_one(foreign | {"vel": 6.4}, HTTP).speed == 6.4
    assert parse_one(foreign | {"vel": 36.0, "topic": "owntracks/mika/phone"}, HTTP).speed == 10
    assert parse_one(foreign | {"vel": 36.0}, MQTT).speed == 10
    unit_in_url = Context("mika", "phone", RECEIVED, query={"speed_unit": "ms"})
    assert parse_one(foreign | {"vel": 36}, unit_in_url).speed == 36


def test_overlands_owntracks_mode_counts_from_2001() -> None:
    message = {"_type": "location", "lat": 1.5, "lon": 2.5, "tst": 1761994805 - 978307200}
    parsed = owntracks.parse(json.dumps(message).encode(), HTTP)
    assert parsed.fixes[0].time == 1761994805000
    assert parsed.from_overland


@pytest.mark.parametrize("tst", [0, 1, 86400, 500_000_000, 946_684_799, 999_999_999])
def test_an_old_unix_time_is_read_as_what_it_is(tst: int) -> None:
    body = json.dumps({"_type": "location", "lat": 1.5, "lon": 2.5, "tst": tst}).encode()
    parsed = owntracks.parse(body, HTTP)
    (fix,) = parsed.fixes
    assert fix.time == tst * 1000
    suspect = {"time_suspect": "past"} if tst < 946_684_800 else None
    assert fix.attributes == suspect
    assert not parsed.from_overland


@pytest.mark.parametrize("tst", ["noon", True, [1]])
def test_what_is_no_time_is_kept_and_the_fix_has_its_arrivals_time(tst: Any) -> None:
    fix = parse_one(LOCATION | {"tst": tst})
    assert fix.time == RECEIVED
    assert (fix.attributes or {})["tst"] == tst


@pytest.mark.parametrize(
    ("tst", "flag"), [(1761994805 + 2 * 86400, "future"), (900_000_000, "past")]
)
def test_absurd_times_are_accepted_and_flagged(tst: int, flag: str) -> None:
    fix = parse_one(LOCATION | {"tst": tst})
    assert fix.time == tst * 1000
    assert fix.attributes is not None
    assert fix.attributes["time_suspect"] == flag


def test_http_mode_takes_the_device_from_topic_then_tid() -> None:
    nameless = Context("mika", None, RECEIVED)
    in_topic = LOCATION | {"topic": "owntracks/mika/watch"}
    assert parse_one(in_topic, nameless).device == "mika/watch"
    assert parse_one(LOCATION, nameless).device == "mika/mk"
    assert parse_one(in_topic, HTTP).device == "mika/phone"


def test_a_topic_never_names_another_user() -> None:
    theft = LOCATION | {"topic": "owntracks/boss/phone"}
    fix = parse_one(theft, Context("mika", None, RECEIVED))
    assert (fix.user, fix.device) == ("mika", "mika/phone")


@pytest.mark.parametrize(
    "message",
    [
        {"_type": "transition", "event": "enter", "tst": 1761994805, "wtst": 1, "acc": 9},
        {"_type": "waypoint", "desc": "Office", "tst": 1761994805, "lat": 1, "lon": 2, "rad": 50},
        {"_type": "waypoints", "waypoints": [{"_type": "waypoint", "desc": "x", "tst": 1}]},
        {"_type": "lwt", "tst": 1761994805},
        {"_type": "lwt"},
        {"_type": "status", "iOS": {"authorizationStatus": 3}},
        {"_type": "steps", "tst": 1761994805, "steps": -1, "from": 1, "to": 2},
        {"_type": "beacon", "desc": "b", "uuid": "u", "major": 1, "minor": 2, "tst": 1761994805},
        {"_type": "request", "request": "tours"},
    ],
)
def test_what_is_not_a_fix_becomes_an_event(message: dict[str, Any]) -> None:
    parsed = owntracks.parse(json.dumps(message).encode(), MQTT)
    assert (parsed.fixes, parsed.rejected) == ([], [])
    (event,) = parsed.events
    assert event.type == message["_type"]
    assert event.device == "mika/phone"
    assert event.time == (message["tst"] * 1000 if "tst" in message else RECEIVED)


def test_a_repeated_event_has_the_same_id_and_another_event_another() -> None:
    def event_id(**members: Any) -> str:
        body = {"_type": "transition", "tst": 1761994805, "wtst": 5, "desc": "Home"} | members
        (event,) = owntracks.parse(json.dumps(body).encode(), MQTT).events
        return event.id

    assert event_id(event="enter") == event_id(event="enter", acc=5)
    assert event_id(event="enter") != event_id(event="leave")


@pytest.mark.parametrize("context", [HTTP, MQTT])
@pytest.mark.parametrize("kind", ["dump", "configuration", "cmd", "card", "lwt", "status", "steps"])
def test_what_is_not_a_fix_keeps_its_members_without_passwords(kind: str, context: Context) -> None:
    settings = {
        "tst": 1761994805,
        "name": "Mika",
        "face": "aGVsbG8=",
        "password": "hunter2",
        "action": "setConfiguration",
        "configuration": {
            "_type": "configuration",
            "host": "example.org",
            "url": "https://mika:hunter2@example.org/pub?token=hunter2&d=phone",
            "password": "hunter2",
            "encryptionKey": "hunter2",
            "tlsClientCrtPassword": "hunter2",
            "httpHeaders": "X-Key: hunter2",
            "usePassword": True,
            "waypoints": [{"desc": "Home", "secret": ["hunter2"]}],
            "link": "https://example.org/owntracks/wl_" + "q" * 43,
        },
    }
    body = json.dumps({"_type": kind, **settings}).encode()
    (event,) = owntracks.parse(body, context).events
    assert event.type == kind
    assert event.attributes == {
        "tst": 1761994805,
        "name": "Mika",
        "face": "aGVsbG8=",
        "action": "setConfiguration",
        "configuration": {
            "_type": "configuration",
            "host": "example.org",
            "url": "https://[secret]@example.org/pub?token=[secret]&d=phone",
            "password": "[secret]",
            "encryptionKey": "[secret]",
            "tlsClientCrtPassword": "[secret]",
            "httpHeaders": "[secret]",
            "usePassword": True,
            "waypoints": [{"desc": "Home", "secret": "[secret]"}],
            "link": "https://example.org/owntracks/[token]",
        },
    }


def test_a_large_picture_of_a_card_is_named_and_not_kept() -> None:
    body = json.dumps({"_type": "card", "name": "Mika", "face": "A" * 20_000}).encode()
    (event,) = owntracks.parse(body, HTTP).events
    assert event.attributes == {"name": "Mika", "omitted": ["face"]}


def test_encrypted_messages_are_kept_as_they_came() -> None:
    body = b'{"_type":"encrypted","data":"bm9uY2UrY2lwaGVydGV4dA=="}'
    parsed = owntracks.parse(body, MQTT)
    (rejected,) = parsed.rejected
    assert rejected.raw == body
    assert "encrypted" in rejected.reason


@pytest.mark.parametrize("body", [b"", b"  \n"])
def test_an_empty_payload_stores_nothing(body: bytes) -> None:
    parsed = owntracks.parse(body, MQTT)
    assert (parsed.fixes, parsed.events, parsed.rejected) == ([], [], [])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{broken", "not JSON"),
        (b'{"_type":"location","tst":1}', "no coordinates"),
        (b'{"_type":"location","lat":91,"lon":0,"tst":1}', "lat is outside"),
        (b'{"_type":"location","lat":0,"lon":180.5,"tst":1}', "lon is outside"),
        (b'{"_type":"zebra"}', "unknown _type"),
        (b"42", "not a JSON object"),
        (b"[" * 100_000, "not JSON"),
        (b'{"_type":"location","lat":1,"lon":1,"x":' + b"[" * 40 + b"]" * 40 + b"}", "nested"),
    ],
)
def test_what_can_never_be_accepted_is_rejected_with_its_reason(body: bytes, reason: str) -> None:
    parsed = owntracks.parse(body, MQTT)
    assert (parsed.fixes, parsed.events) == ([], [])
    (rejected,) = parsed.rejected
    assert reason in rejected.reason
    assert rejected.source == "owntracks"
    assert rejected.raw == body[: 256 * 1024]


def test_a_picture_is_left_out_and_named() -> None:
    fix = parse_one(LOCATION | {"image": "A" * 100_000})
    assert fix.attributes is not None
    assert fix.attributes["omitted"] == ["image"]
