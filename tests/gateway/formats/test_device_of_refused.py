"""What cannot be accepted is kept under the device that sent it, so that an erasure reaches it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.formats import Context, ulogger
from gateway.formats.by_name import PARSERS

NOW = 1_795_000_000_000
ALL = {**PARSERS, ulogger.SOURCE: ulogger.parse}


@pytest.mark.parametrize("body", [b"{broken", b'{"lat":95,"lon":7}', b"lat=95&lon=7", b"[5, 6]"])
@pytest.mark.parametrize("name", ALL)
def test_a_refused_item_is_of_the_device_that_the_request_names(name: str, body: bytes) -> None:
    context = Context("ada", "phone", NOW, query={"lat": "95", "u": "ada"})
    if name == "positions":
        context = Context("ada", "phone", NOW)
    parsed = ALL[name](body, context)
    assert parsed.rejected
    assert {each.device for each in parsed.rejected} == {"ada/phone"}


_BAD_PLACE: dict[str, dict[str, Any]] = {
    "owntracks": {"_type": "location", "lat": 95, "lon": 7, "topic": "owntracks/ada/phone"},
    "traccar": {"location": {"coords": {"latitude": 95, "longitude": 7}}, "device_id": "phone"},
    "colota": {"lat": 95, "lon": 7, "id": "phone"},
    "gpslogger": {"lat": 95, "lon": 7, "ser": "phone"},
    "osmand": {"lat": 95, "lon": 7, "id": "phone"},
    "opengts": {"dev": "phone", "gprmc": "nonsense"},
    "positions": {"lat": 95, "lon": 7, "device": "phone"},
}
_FEATURE = {
    "geometry": {"coordinates": [7, 95]},
    "properties": {"device_id": "phone"},
}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *_BAD_PLACE.items(),
        ("overland", {"locations": [_FEATURE]}),
        ("overland", {"locations": [5], "device_id": "phone"}),
        ("colota", [_BAD_PLACE["colota"]]),
    ],
)
def test_a_refused_item_is_of_the_device_that_it_names_itself(name: str, message: Any) -> None:
    (rejected,) = PARSERS[name](json.dumps(message).encode(), Context("ada", None, NOW)).rejected
    assert rejected.device == "ada/phone"


@pytest.mark.parametrize("named", ["bob/phone", "x" * 200, "wl_" + "q" * 43])
def test_a_name_that_is_no_device_of_the_user_is_kept_beside_the_item(named: str) -> None:
    (rejected,) = PARSERS["osmand"](b"lat=95&lon=7", Context("ada", named, NOW)).rejected
    assert rejected.device is None
    kept = (rejected.headers or {})["device"]
    assert kept == ("[token]" if named.startswith("wl_") else named)
