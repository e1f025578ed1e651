"""Parsers handle any bytes without raising, and what they accept can be stored and decoded."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.formats import (
    Context,
    Parsed,
    by_name,
    colota,
    gpslogger,
    home_assistant,
    opengts,
    osmand,
    overland,
    owntracks,
    phonetrack,
    positions,
    traccar,
    ulogger,
)
from waylog.messages import decode_event, decode_fix, decode_rejected, encode

PARSERS = [
    *(colota.parse, gpslogger.parse, home_assistant.parse, osmand.parse),
    *(overland.parse, owntracks.parse, positions.parse, traccar.parse),
    *(opengts.parse, phonetrack.parse, ulogger.parse),
]

PATH_PARSERS = list(by_name.PARSERS.values())

RECEIVED = 1_761_994_812_000
CONTEXT = Context("mika", None, RECEIVED, encryption_key="a passphrase")

scalars = (
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["-1", "%LAT", "nan", "1e999", "2025-11-01T12:00:05+01:00", "a/b", "wl_"])
)
NAMES = (
    *("_type", "_id", "lat", "lon", "tst", "acc", "vel", "cog", "batt", "bs", "t", "tid"),
    *("topic", "created_at", "id", "device", "time", "latitude", "longitude", "timestamp"),
    *("locations", "current", "trip", "properties", "geometry", "coordinates", "action", "type"),
    *("device_id", "location", "coords", "battery", "level", "data", "gps", "location_name"),
    *("speed", "attributes", "event", "points", "gprmc", "action", "encrypted_data"),
)
names = st.sampled_from(NAMES) | st.text(max_size=8)
values = st.recursive(
    scalars | st.sampled_from(["location", "transition", "update_location", "trip", "visit"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=8),
    max_leaves=20,
)
messages = st.dictionaries(names, values, max_size=12)
#: Messages with valid coordinates, so that their other members are parsed.
located = messages.map(
    lambda message: message | {"lat": 50.7, "lon": 7.1, "coords": {"latitude": 1, "longitude": 2}}
)


def check(parsed: Parsed) -> None:
    for fix in parsed.fixes:
        assert decode_fix(encode(fix)) == fix
        assert -90 <= fix.lat <= 90
        assert -180 <= fix.lon <= 180
        assert fix.device.startswith(f"{fix.user}/")
        assert fix.user == "mika"
        assert len(encode(fix)) < 900_000
        for value in (fix.accuracy, fix.speed, fix.course, fix.battery, fix.vertical_accuracy):
            assert value is None or value >= 0
    for event in parsed.events:
        assert decode_event(encode(event)).id == event.id
    for rejected in parsed.rejected:
        assert decode_rejected(encode(rejected)) == rejected
        assert rejected.reason
    assert len(parsed.rejected) == len(parsed.rejected_at)
    assert not parsed.client_ids or len(parsed.client_ids) == len(parsed.fixes)


@given(body=st.binary(max_size=200))
@settings(max_examples=300)
def test_any_bytes(body: bytes) -> None:
    for parser in PARSERS:
        check(parser(body, CONTEXT))


@given(message=messages | located | st.lists(located | messages, max_size=3))
@settings(max_examples=200)
def test_any_json(message: Any) -> None:
    bodies = [
        json.dumps(envelope).encode()
        for envelope in (
            message,
            {"location": message, "device_id": "x"},
            {"type": "update_location", "data": message},
            {"locations": [{"properties": message}], "trip": message},
        )
    ]
    for parser in PARSERS:
        for body in bodies:
            check(parser(body, CONTEXT))


@given(
    query=st.dictionaries(names, scalars.map(str), max_size=12),
    body=st.binary(max_size=50) | st.just(b"lat=1&lon=2&timestamp=x"),
)
@settings(max_examples=200)
def test_any_parameters(query: dict[str, str], body: bytes) -> None:
    query = {name: value.encode("utf-8", "replace").decode() for name, value in query.items()}
    for parser in PARSERS:
        check(parser(body, Context("mika", None, RECEIVED, query=query)))


@given(
    query=st.dictionaries(names | st.just("lat"), scalars.map(str), max_size=8),
    message=messages | located,
)
@settings(max_examples=200)
def test_any_json_beside_any_parameters(query: dict[str, str], message: Any) -> None:
    query = {name: value.encode("utf-8", "replace").decode() for name, value in query.items()}
    context = Context("mika", None, RECEIVED, query=query)
    bodies = [message, {"location": message}, {"locations": [{"properties": message}]}]
    for parser in PATH_PARSERS:
        for body in bodies:
            parsed = parser(json.dumps(body).encode(), context)
            check(parsed)
            assert parsed.count or parsed.malformed is not None or parsed.refused is not None


@given(message=located)
@settings(max_examples=100)
def test_the_same_bytes_have_the_same_ids(message: Any) -> None:
    body = json.dumps(message | {"tst": 1761994805, "timestamp": 1761994805, "time": 5}).encode()
    for parser in PARSERS:
        first = parser(body, CONTEXT)
        again = parser(body, Context("mika", None, RECEIVED + 5))
        assert [fix.id for fix in first.fixes] == [fix.id for fix in again.fixes]
