"""What the URL and the body of one request say together: positions, devices, or nothing at all."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from gateway.formats import Context
from gateway.formats.by_name import PARSERS

RECEIVED = 1_761_994_812_000
TIME_S = 1_761_994_805
PLACE = {"lat": "1", "lon": "2", "timestamp": str(TIME_S), "speed": "10"}
SENTENCE = "$GPRMC,110005.00,A,5044.0046,N,00705.8866,W,12.4,141.0,011125"


def context(query: dict[str, str] | None = None, device: str | None = None) -> Context:
    return Context("mika", device, RECEIVED, query=query)


def visit(name: str) -> dict[str, Any]:
    properties = {"action": "visit", "timestamp": TIME_S, "device_id": name}
    place = {"type": "Point", "coordinates": [7, 50]}
    return {"locations": [{"type": "Feature", "geometry": place, "properties": properties}]}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("overland", visit("watch")),
        ("traccar", {"device_id": "watch", "location": {"timestamp": TIME_S}}),
        ("owntracks", {"_type": "lwt", "tid": "watch"}),
        ("gpslogger", {"lat": 3, "lon": 4, "time": TIME_S, "device": "watch"}),
        ("gpslogger", {"lat": 3, "lon": 4, "time": TIME_S, "aid": "watch"}),
        ("colota", {"lat": 3, "lon": 4, "tst": TIME_S, "tid": "watch"}),
        ("osmand", {"lat": 3, "lon": 4, "deviceid": "watch"}),
    ],
)
def test_a_position_in_the_url_is_of_the_device_that_the_body_names(
    name: str, body: dict[str, Any]
) -> None:
    parsed = PARSERS[name](json.dumps(body).encode(), context(dict(PLACE)))
    assert 1 in [fix.lat for fix in parsed.fixes]
    devices = {fix.device for fix in parsed.fixes} | {event.device for event in parsed.events}
    assert devices == {"mika/watch"}
    own = PARSERS[name](json.dumps(body).encode(), context(PLACE | {"id": "phone"}))
    assert "mika/phone" in {fix.device for fix in own.fixes if fix.lat == 1}


@pytest.mark.parametrize("in_url", [False, True])
def test_two_sentences_are_of_one_device(in_url: bool) -> None:
    one, other = {"gprmc": SENTENCE}, {"gprmc": SENTENCE.replace("5044", "5144")}
    named = one if in_url else other
    named["dev"] = "watch"
    parsed = PARSERS["opengts"](urlencode(other).encode(), context(one))
    assert [fix.device for fix in parsed.fixes] == ["mika/watch"] * 2


def test_overland_fills_metres_per_second_into_its_url() -> None:
    for unit, speed in (({}, 10), ({"speed_unit": "kmh"}, 2.7778)):
        (fix,) = PARSERS["overland"](b'{"locations":[]}', context(PLACE | unit)).fixes
        assert fix.speed == speed


@pytest.mark.parametrize("body", [b"", b" ", b"[]"])
@pytest.mark.parametrize(
    ("query", "device", "kept"),
    [
        ({"u": "mika", "d": "phone"}, "phone", []),
        ({"u": "mika", "d": "mika/phone"}, "phone", []),
        ({"u": "mika", "d": "watch"}, "phone", [b"d=watch"]),
        ({"battery": "7"}, None, [b"battery=7"]),
    ],
)
def test_an_owntracks_request_without_a_message_is_no_error_whatever_its_url_says(
    query: dict[str, str], device: str | None, kept: list[bytes], body: bytes
) -> None:
    # The app repeats the head of its queue for ever if it reads 400.
    parsed = PARSERS["owntracks"](body, context(query, device))
    assert parsed.malformed is None
    assert not parsed.fixes
    assert [each.raw for each in parsed.rejected] == kept or (body == b"[]" and not kept)


@pytest.mark.parametrize("beside", [{"lat": "%LAT", "lon": "%LON"}, {"lat": 91, "lon": 2}])
@pytest.mark.parametrize("in_url", [False, True])
def test_a_position_beside_points_that_is_none_does_not_cost_the_points(
    beside: dict[str, Any], in_url: bool
) -> None:
    rows = {"points": [[50.7, 7.1, TIME_S], [50.8, 7.1, TIME_S + 1]]}
    query = {name: str(value) for name, value in beside.items()} if in_url else None
    body = rows if in_url else rows | beside
    parsed = PARSERS["phonetrack"](json.dumps(body).encode(), context(query))
    assert [fix.lat for fix in parsed.fixes] == [50.7, 50.8]
    assert len(parsed.rejected) == 1
