"""Traccar Client 9 and later, GPSLogger, Colota, Home Assistant's companion app."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest

from gateway.formats import Context, colota, gpslogger, home_assistant, traccar

RECEIVED = 1_761_994_812_000
CONTEXT = Context("mika", None, RECEIVED)
TIME = 1_761_994_805_120

TRACCAR: dict[str, Any] = {
    "location": {
        "timestamp": "2025-11-01T11:00:05.120Z",
        "coords": {
            "latitude": 50.73341,
            "longitude": 7.09811,
            "accuracy": 14.1,
            "speed": 6.4,
            "heading": 141.0,
            "altitude": 61.2,
        },
        "is_moving": True,
        "odometer": 18240,
        "event": "",
        "battery": {"level": 0.72, "is_charging": False},
        "activity": {"type": "in_vehicle"},
        "extras": {},
        "_": "&id=54017733&lat=50.73341&lon=7.09811&timestamp=1761994805&",
    },
    "device_id": "54017733",
}


def query(text: str) -> Context:
    return Context("mika", None, RECEIVED, query=dict(parse_qsl(text, keep_blank_values=True)))


# --- Traccar ------------------------------------------------------------------------------------


def test_traccars_json_is_read() -> None:
    (fix,) = traccar.parse(json.dumps(TRACCAR).encode(), CONTEXT).fixes
    assert (fix.device, fix.time) == ("mika/54017733", TIME)
    assert (fix.lat, fix.lon, fix.accuracy, fix.altitude) == (50.73341, 7.09811, 14.1, 61.2)
    assert (fix.speed, fix.course, fix.battery, fix.charging) == (6.4, 141, 72, False)
    assert fix.attributes == {"is_moving": True, "odometer": 18240, "activity": "in_vehicle"}


def test_traccars_sentinels_become_none() -> None:
    message = json.loads(json.dumps(TRACCAR))
    message["location"]["coords"] |= {"speed": -1, "heading": -1, "accuracy": -1}
    message["location"]["battery"] = {"level": -1, "is_charging": True}
    (fix,) = traccar.parse(json.dumps(message).encode(), CONTEXT).fixes
    assert (fix.speed, fix.course, fix.accuracy, fix.battery) == (None,) * 4
    assert fix.charging is True


def test_traccars_flat_location_is_read_too() -> None:
    body = {"device_id": "7", "location": {"latitude": 1, "longitude": 2, "speed": 3}}
    (fix,) = traccar.parse(json.dumps(body).encode(), CONTEXT).fixes
    assert (fix.device, fix.lat, fix.lon, fix.speed) == ("mika/7", 1, 2, 3)


def test_traccars_heartbeat_is_an_event() -> None:
    body = {"device_id": "7", "location": {"event": "heartbeat", "battery": {"level": 0.5}}}
    parsed = traccar.parse(json.dumps(body).encode(), CONTEXT)
    assert [event.type for event in parsed.events] == ["heartbeat"]


def test_a_form_to_traccars_address_is_the_osmand_protocol() -> None:
    (fix,) = traccar.parse(b"id=7&lat=1&lon=2&speed=10", CONTEXT).fixes
    assert fix.source == "osmand"
    (fix,) = traccar.parse(b"", query("id=7&lat=1&lon=2")).fixes
    assert fix.device == "mika/7"


@pytest.mark.parametrize("body", [b"{", b'{"device_id":"7"}', b'{"location":[1]}', b"[]"])
def test_traccar_rejects_what_it_cannot_read(body: bytes) -> None:
    parsed = traccar.parse(body, CONTEXT)
    assert not parsed.fixes
    assert len(parsed.rejected) == 1


# --- GPSLogger ----------------------------------------------------------------------------------


def test_gpsloggers_url_is_read_and_unknown_values_are_none() -> None:
    context = query(
        "lat=50.73341&lon=7.09811&timestamp=1761994805&acc=0.0&alt=61&spd=6.4&dir=141&batt=72"
        "&sat=%25SAT&desc=&aid=f00"
    )
    (fix,) = gpslogger.parse(b"", context).fixes
    assert (fix.device, fix.time) == ("mika/f00", 1761994805000)
    assert (fix.accuracy, fix.altitude, fix.speed, fix.course, fix.battery) == (
        *(None, 61, 6.4, 141, 72),
    )
    assert fix.attributes is None


def test_gpslogger_speaks_kmh_iso_times_and_charging_on_demand() -> None:
    context = query("LAT=1&LON=2&TIME=2025-11-01T11:00:05.120Z&spd_kph=36&ISCHARGING=true")
    (fix,) = gpslogger.parse(b"", context).fixes
    assert (fix.time, fix.speed, fix.charging) == (TIME, 10, True)


@pytest.mark.parametrize(
    "body",
    [
        b"latitude=1&longitude=2&device=pixel&accuracy=5&battery=50&speed=3&direction=90",
        b'{"latitude":1,"longitude":2,"device":"pixel","accuracy":5,"battery":50,"speed":3,'
        b'"direction":90}',
    ],
)
def test_gpsloggers_home_assistant_form_and_json_bodies_are_read(body: bytes) -> None:
    (fix,) = gpslogger.parse(body, CONTEXT).fixes
    assert (fix.device, fix.lat, fix.lon, fix.accuracy, fix.battery, fix.speed, fix.course) == (
        *("mika/pixel", 1, 2, 5, 50, 3, 90),
    )


def test_a_file_sent_again_gives_the_same_ids() -> None:
    line = query("lat=1&lon=2&timestamp=1761994805")
    assert gpslogger.parse(b"", line).fixes[0].id == gpslogger.parse(b"", line).fixes[0].id


# --- Colota -------------------------------------------------------------------------------------

COLOTA: dict[str, Any] = {
    **{"lat": 50.73341, "lon": 7.09811, "acc": 14, "alt": 61, "vel": 6.4, "batt": 72},
    **{"bs": 2, "tst": 1761994805, "bear": 141.0},
}


def test_colota_sends_metres_a_second() -> None:
    (fix,) = colota.parse(json.dumps(COLOTA).encode(), CONTEXT).fixes
    assert (fix.speed, fix.course, fix.battery, fix.charging) == (6.4, 141, 72, True)
    assert (fix.time, fix.device, fix.attributes) == (1761994805000, "mika/colota", None)


def test_colotas_other_templates_are_recognised() -> None:
    owntracks = COLOTA | {"_type": "location", "tid": "mk", "cog": 141}
    (fix,) = colota.parse(json.dumps(owntracks).encode(), CONTEXT).fixes
    assert (fix.speed, fix.device) == (6.4, "mika/mk")
    (fix,) = colota.parse(json.dumps(TRACCAR).encode(), CONTEXT).fixes
    assert fix.source == "traccar"
    assert colota.parse(b'{"locations":[]}', CONTEXT).rejected == []
    (fix,) = colota.parse(b"", query("lat=1&lon=2&tst=1761994805&vel=3&id=x")).fixes
    assert (fix.device, fix.speed) == ("mika/x", 3)


# --- Home Assistant -----------------------------------------------------------------------------


def test_home_assistants_update_is_a_fix_at_its_arrival() -> None:
    body = (
        b'{"type":"update_location","data":{"gps":[50.73341,7.09811],"gps_accuracy":14,'
        b'"battery":72,"speed":6,"altitude":61,"course":141,"vertical_accuracy":3}}'
    )
    (fix,) = home_assistant.parse(body, CONTEXT).fixes
    assert (fix.lat, fix.lon, fix.time) == (50.73341, 7.09811, RECEIVED)
    assert (fix.accuracy, fix.battery, fix.speed, fix.altitude) == (14, 72, 6, 61)


def test_home_assistants_zones_are_events_and_encrypted_messages_are_kept() -> None:
    zone = b'{"type":"update_location","data":{"location_name":"home"}}'
    assert [event.type for event in home_assistant.parse(zone, CONTEXT).events] == ["location_name"]
    secret = b'{"type":"encrypted","encrypted":true,"encrypted_data":"AA=="}'
    assert home_assistant.parse(secret, CONTEXT).rejected[0].raw == secret
