"""The OsmAnd protocol, from a URL and from a form."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from gateway.formats import Context, osmand

RECEIVED = 1_761_994_812_000
EXAMPLE = (
    "id=54017733&lat=50.73341&lon=7.09811&timestamp=1761994805&speed=12.4&bearing=141"
    "&altitude=61&accuracy=14&batt=72"
)


def context(query: str = "") -> Context:
    return Context("mika", None, RECEIVED, query=dict(parse_qsl(query)))


@pytest.mark.parametrize("in_body", [False, True])
def test_a_fix_is_read_from_the_url_or_from_a_form(in_body: bool) -> None:
    parsed = (
        osmand.parse(EXAMPLE.encode(), context())
        if in_body
        else osmand.parse(b"", context(EXAMPLE))
    )
    (fix,) = parsed.fixes
    assert fix.device == "mika/54017733"
    assert (fix.lat, fix.lon, fix.time) == (50.73341, 7.09811, 1761994805000)
    assert fix.speed == pytest.approx(12.4 * 0.514444, abs=1e-3)
    assert (fix.course, fix.altitude, fix.accuracy, fix.battery) == (141, 61, 14, 72)
    assert fix.attributes is None


@pytest.mark.parametrize(("unit", "speed"), [("ms", 10), ("kmh", 10 / 3.6), ("kn", 5.14444)])
def test_the_url_says_the_unit_of_speed(unit: str, speed: float) -> None:
    query = f"id=1&lat=1&lon=2&speed=10&speed_unit={unit}"
    (fix,) = osmand.parse(b"", context(query)).fixes
    assert fix.speed == pytest.approx(speed, abs=1e-3)


@pytest.mark.parametrize(
    "time", ["1761994805", "1761994805000", "2025-11-01T11:00:05Z", "2025-11-01 11:00:05"]
)
def test_four_spellings_of_time(time: str) -> None:
    (fix,) = osmand.parse(b"", context(f"id=1&lat=1&lon=2&timestamp={time}")).fixes
    assert fix.time == 1761994805000


def test_a_location_parameter_holds_both_coordinates() -> None:
    (fix,) = osmand.parse(b"", context("deviceid=x&location=50.5,7.25")).fixes
    assert (fix.device, fix.lat, fix.lon) == ("mika/x", 50.5, 7.25)


@pytest.mark.parametrize(
    ("charge", "charging"),
    [("true", True), ("false", False), ("0", False), ("1", True), ("3", True), ("?", None)],
)
def test_charge_is_a_boolean_or_colotas_number(charge: str, charging: bool | None) -> None:
    (fix,) = osmand.parse(b"", context(f"id=1&lat=1&lon=2&charge={charge}")).fixes
    assert fix.charging is charging


def test_unknown_parameters_become_attributes_with_types() -> None:
    query = "id=1&lat=1&lon=2&hdop=1.5&valid=true&driverUniqueId=0049&alarm=sos&cell=1,2,3,4"
    (fix,) = osmand.parse(b"", context(query)).fixes
    assert fix.attributes == {
        "hdop": 1.5,
        "valid": True,
        "driverUniqueId": "0049",
        "alarm": "sos",
        "cell": "1,2,3,4",
    }
    assert fix.trigger == "sos"


def test_without_coordinates_it_is_a_sign_of_life() -> None:
    parsed = osmand.parse(b"", context("id=1&batt=50&notificationToken=secret"))
    (event,) = parsed.events
    assert (event.type, event.device) == ("status", "mika/1")
    assert "secret" not in str(event)


def test_owntracks_recorders_way_of_naming_user_and_device() -> None:
    (fix,) = osmand.parse(b"", context("id=mika/phone&lat=1&lon=2")).fixes
    assert fix.device == "mika/phone"
    (rejected,) = osmand.parse(b"", context("id=eve/phone&lat=1&lon=2")).rejected
    assert "another user" in rejected.reason


@pytest.mark.parametrize(
    "query", ["id=1&lat=91&lon=2", "id=1&lat=a&lon=2", "id=1&lat=1", "id=1&lat=1&lon=2&timestamp=x"]
)
def test_bad_values_are_rejected_with_the_parameters_as_raw_bytes(query: str) -> None:
    parsed = osmand.parse(b"", context(query))
    assert not parsed.fixes
    assert dict(parse_qsl(parsed.rejected[0].raw.decode())) == dict(parse_qsl(query))


def test_credentials_in_a_form_are_not_kept() -> None:
    parsed = osmand.parse(b"id=1&lat=99&lon=2&token=abc&password=def", context())
    assert b"abc" not in parsed.rejected[0].raw
    assert b"def" not in parsed.rejected[0].raw
