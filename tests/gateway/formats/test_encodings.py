"""Bodies that are not in plain UTF-8, or hold items in another shape than the app's own."""

from __future__ import annotations

import codecs
import json
from typing import Any

import pytest

from gateway.formats import Context, owntracks, ulogger
from gateway.formats.by_name import PARSERS
from gateway.formats.secretbox import encrypt
from gateway.formats.values import time_ms
from tests.gateway.formats.test_nothing_is_lost import EXAMPLES, RECEIVED

ALL = {**PARSERS, ulogger.SOURCE: ulogger.parse}


def context(charset: str | None = None, **more: Any) -> Context:
    content_type = "application/json" + (f"; charset={charset}" if charset else "")
    return Context("mika", None, RECEIVED, headers={"Content-Type": content_type}, **more)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_byte_order_mark_is_no_part_of_the_json(name: str) -> None:
    body = json.dumps(EXAMPLES[name]).encode()
    plain = PARSERS[name](body, context())
    assert PARSERS[name](codecs.BOM_UTF8 + body, context()) == plain
    assert plain.fixes


def test_a_byte_order_mark_in_front_of_lines_is_no_part_of_the_first() -> None:
    lines = b'{"lat":1,"lon":2}\n{"lat":3,"lon":4}\n'
    parsed = PARSERS["positions"](codecs.BOM_UTF8 + lines, context())
    assert [fix.lat for fix in parsed.fixes] == [1, 3]


@pytest.mark.parametrize(
    ("encoding", "charset"),
    [("utf-16", None), ("utf-16", "utf-16"), ("utf-16-le", "UTF-16LE"), ("utf-16-be", "utf-16be")],
)
@pytest.mark.parametrize("name", EXAMPLES)
def test_json_in_utf_16_is_read(name: str, encoding: str, charset: str | None) -> None:
    message = json.dumps(EXAMPLES[name])
    plain = PARSERS[name](message.encode(), context(charset))
    assert PARSERS[name](message.encode(encoding), context(charset)) == plain
    assert plain.fixes


@pytest.mark.parametrize("charset", ["iso-8859-1", "latin1", "windows-1252"])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_text_in_latin_1_is_read_and_utf_8_that_is_called_so_as_well(
    encoding: str, charset: str
) -> None:
    body = '{"lat":1,"lon":2,"note":"Köln"}'.encode(encoding)
    for name in ("positions", "colota", "gpslogger", "phonetrack"):
        (fix,) = PARSERS[name](body, context(charset)).fixes
        assert fix.attributes == {"note": "Köln"}


def test_a_charset_that_nobody_knows_changes_nothing() -> None:
    (fix,) = PARSERS["positions"](b'{"lat":1,"lon":2}', context("x-none")).fixes
    assert fix.lat == 1


def test_credentials_in_utf_16_are_not_kept_with_what_is_refused() -> None:
    body = '{"lat":95,"lon":2,"password":"hush"}'.encode("utf-16")
    (rejected,) = PARSERS["positions"](body, context()).rejected
    assert "hush" not in rejected.raw.decode(errors="ignore").replace("\0", "")


def test_an_array_of_colotas_positions_is_read() -> None:
    items = [{"lat": lat, "lon": 7, "tst": 1_761_994_805, "id": "x"} for lat in (1, 95, 3)]
    parsed = PARSERS["colota"](json.dumps([*items, 5]).encode(), context(query={"note": "n"}))
    assert [fix.lat for fix in parsed.fixes] == [1, 3]
    assert parsed.fixes[-1].attributes == {"query": {"note": "n"}}
    assert parsed.rejected_at == [1, 3]
    assert "not a JSON object but a number" in parsed.rejected[1].reason


def test_an_array_in_an_encrypted_message_is_read() -> None:
    key = "secret"
    location = {"_type": "location", "lat": 1, "lon": 2, "tst": 1_761_994_805}
    inside = json.dumps([location, location | {"lat": 95}, location | {"lat": 3}]).encode()
    message = {"_type": "encrypted", "data": encrypt(inside, key), "note": "n"}
    parsed = owntracks.parse(json.dumps(message).encode(), context(encryption_key=key))
    assert [fix.lat for fix in parsed.fixes] == [1, 3]
    assert [fix.attributes for fix in parsed.fixes] == [{"note": "n"}] * 2
    (rejected,) = parsed.rejected
    assert rejected.reason.startswith("1 of 3 encrypted messages: lat is outside")


@pytest.mark.parametrize("path", ["overland", "owntracks", "traccar", "colota", "osmand"])
def test_geojson_without_the_envelope_is_read(path: str) -> None:
    (feature,) = EXAMPLES["overland"]["locations"]
    collection = {"type": "FeatureCollection", "features": [feature, feature], "note": "n"}
    assert len(PARSERS[path](json.dumps(feature).encode(), context()).fixes) == 1
    parsed = PARSERS[path](json.dumps(collection).encode(), context())
    assert [(fix.attributes or {}).get("note") for fix in parsed.fixes] == [None, "n"]


def test_a_position_template_of_traccars_library_is_a_fix() -> None:
    body = b'{"location":{"lat":1.5,"lon":7,"ts":1761994805},"device_id":"phone"}'
    parsed = PARSERS["traccar"](body, context())
    (fix,) = parsed.fixes
    assert (fix.lat, fix.lon, fix.time, fix.device) == (1.5, 7, 1_761_994_805_000, "mika/phone")
    assert not parsed.events


# --- times --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["osmand", "gpslogger", "colota", "phonetrack", "traccar"])
def test_a_plus_in_a_url_that_was_not_encoded_is_the_sign_of_the_zone(name: str) -> None:
    query = {"lat": "1", "lon": "2", "timestamp": "2025-11-01T12:00:05 01:00"}
    (fix,) = PARSERS[name](b"", context(query=query)).fixes
    assert fix.time == 1_761_994_805_000


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2025-11-01T12:00:05 01:00", "2025-11-01T12:00:05+01:00"),
        ("2025-11-01T12:00:05.5 0130", "2025-11-01T12:00:05.5+01:30"),
        ("2025-11-01 12:00 05:45", "2025-11-01 12:00+05:45"),
    ],
)
def test_a_space_before_a_zone_is_a_plus(text: str, same: str) -> None:
    assert time_ms(text) == time_ms(same) is not None


@pytest.mark.parametrize("text", ["2025-11-01 12:00", "2025-11-01 1200"])
def test_a_space_before_the_time_of_day_is_none(text: str) -> None:
    assert time_ms(text) in (time_ms("2025-11-01T12:00"), None)


@pytest.mark.parametrize(
    "text", ["2025-11-01 01:00 01:00 01:00", "12:00:05 01:00", "2025-11-01T12 01:00"]
)
def test_a_space_elsewhere_makes_no_time(text: str) -> None:
    assert time_ms(text) is None
