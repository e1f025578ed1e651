"""Overland's batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.formats import Context, overland

RECEIVED = 1_761_994_812_000
CONTEXT = Context("mika", None, RECEIVED)
SAMPLE = Path(__file__).parents[3] / "../shared/data/tracks/formats/overland.json"


def feature(**properties: Any) -> dict[str, Any]:
    return {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [7.0981123, 50.7334171]},
        "properties": {
            "timestamp": "2025-11-01T12:00:05+01:00",
            "altitude": 61,
            "speed": 6,
            "course": 141,
            "horizontal_accuracy": 14,
            "vertical_accuracy": 3,
            "speed_accuracy": 0.5,
            "course_accuracy": 4.0,
            "motion": ["driving"],
            "battery_state": "unplugged",
            "battery_level": 0.72,
            "wifi": "",
            "device_id": "mk-iphone",
        }
        | properties,
    }


def parse(envelope: dict[str, Any]) -> Any:
    return overland.parse(json.dumps(envelope).encode(), CONTEXT)


def test_a_feature_is_read_with_longitude_first() -> None:
    (fix,) = parse({"locations": [feature()]}).fixes
    assert (fix.lat, fix.lon) == (50.7334171, 7.0981123)
    assert fix.time == 1761994805000
    assert fix.device == "mika/mk-iphone"
    assert (fix.altitude, fix.speed, fix.course, fix.accuracy) == (61, 6, 141, 14)
    assert (fix.vertical_accuracy, fix.battery, fix.charging) == (3, 72, False)
    assert fix.attributes == {"speed_accuracy": 0.5, "course_accuracy": 4.0, "motion": ["driving"]}


def test_an_offset_without_a_colon_is_understood() -> None:
    (fix,) = parse({"locations": [feature(timestamp="2025-11-01T04:00:05-0700")]}).fixes
    assert fix.time == 1761994805000


def test_negative_values_are_unknown() -> None:
    names = ["speed", "course", "horizontal_accuracy", "vertical_accuracy"]
    names += ["speed_accuracy", "course_accuracy", "battery_level"]
    unknown = dict.fromkeys(names, -1)
    (fix,) = parse({"locations": [feature(**unknown)]}).fixes
    assert (fix.speed, fix.course, fix.accuracy, fix.vertical_accuracy, fix.battery) == (None,) * 5
    assert fix.attributes == {"motion": ["driving"]}


def test_current_is_a_fix_and_the_same_one_when_it_comes_again() -> None:
    parsed = parse({"locations": [feature()], "current": feature()})
    assert len(parsed.fixes) == 2
    assert parsed.fixes[0].id == parsed.fixes[1].id


def test_trips_visits_and_app_events_are_no_fixes() -> None:
    trip = feature(type="trip", mode="walking", start="2025-11-01T10:00:00Z", distance=900)
    visit = feature(
        action="visit", arrival_date="2025-11-01T10:00:00Z", departure_date=None, timestamp=None
    )
    paused = {"type": "Feature", "properties": {"action": "paused_location_updates"}}
    parsed = parse({"locations": [trip, visit, paused, feature()], "trip": {"mode": "walking"}})
    assert [event.type for event in parsed.events] == [
        *("trip", "visit", "paused_location_updates", "trip")
    ]
    assert len(parsed.fixes) == 1
    assert parsed.events[1].time == 1761991200000
    assert not parsed.rejected


def test_colota_names_the_device_on_the_envelope() -> None:
    (fix,) = parse({"locations": [feature(device_id="")], "device_id": "colota-1"}).fixes
    assert fix.device == "mika/colota-1"


def test_one_bad_feature_does_not_lose_the_batch() -> None:
    bad: list[Any] = [5, {"type": "Feature"}, feature(timestamp="noon")]
    bad.append(feature() | {"geometry": {"type": "Point", "coordinates": [7.1]}})
    bad.append(feature() | {"geometry": {"type": "Point", "coordinates": [7.1, 99]}})
    parsed = parse({"locations": [feature(), *bad, feature()]})
    assert len(parsed.fixes) == 2
    assert parsed.rejected_at == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("odd", "wifi"), [(rb'"a\ud83d"', "a?"), (rb'"\udc00\ud83d b"', "?? b"), (b"1e400", None)]
)
def test_what_json_allows_and_utf_8_does_not_loses_nothing(odd: bytes, wifi: str | None) -> None:
    body = json.dumps({"locations": [feature(), feature(wifi="@", timestamp=RECEIVED // 1000)]})
    parsed = overland.parse(body.encode().replace(b'"@"', odd), CONTEXT)
    assert len(parsed.fixes) == 2
    assert not parsed.rejected
    if wifi is not None:
        assert (parsed.fixes[1].attributes or {})["wifi"] == wifi
    assert msgspec.json.encode(parsed.fixes)


@pytest.mark.parametrize(
    "body", [b"x", b"[]", b"{}", b'{"locations":5}', b'{"locations":' + b"[" * 50_000]
)
def test_what_is_no_envelope_is_rejected(body: bytes) -> None:
    parsed = overland.parse(body, CONTEXT)
    assert not parsed.fixes
    assert len(parsed.rejected) == 1


@pytest.mark.parametrize("odd", [b"NaN", b"Infinity", b"-Infinity", b'"\xff"', b"[" * 50_000])
def test_what_json_does_not_allow_is_rejected(odd: bytes) -> None:
    body = json.dumps({"locations": [feature(wifi="@")]}).encode().replace(b'"@"', odd)
    parsed = overland.parse(body, CONTEXT)
    assert not parsed.fixes
    assert len(parsed.rejected) == 1


def test_a_number_beyond_32_bits_is_unknown() -> None:
    (fix,) = parse({"locations": [feature(speed=1e39, altitude=-1e300, course=90)]}).fixes
    assert (fix.speed, fix.altitude, fix.course) == (None, None, 90)


def test_an_empty_batch_is_fine() -> None:
    parsed = parse({"locations": []})
    assert (parsed.fixes, parsed.rejected) == ([], [])


def test_a_recorded_batch_is_read_whole() -> None:
    if not SAMPLE.exists():
        pytest.skip(f"{SAMPLE} is not there")
    envelope = json.loads(SAMPLE.read_bytes())
    parsed = overland.parse(SAMPLE.read_bytes(), CONTEXT)
    assert len(parsed.fixes) + len(parsed.events) == len(envelope["locations"])
    assert not parsed.rejected
