"""Examples from the decoder tests of other servers, parsed by Waylog's parsers.

WAYLOG_TRACCAR_TREE and WAYLOG_DAWARICH_TREE name checkouts of github.com/traccar/traccar and
github.com/Freika/dawarich; without them these tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from gateway.formats import Context, Parsed, opengts, osmand, overland, owntracks, traccar
from waylog.observability.telemetry import now_ms

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_VERIFY = re.compile(r"(verify\w*)\(decoder, request\((.*?)\)\)?(?:,\s*position\(|\);)", re.DOTALL)


def tree(variable: str) -> Path:
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"{variable} names no checkout of that server")
    return Path(named)


def calls(name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the checks of one of Traccar's decoder tests: their kind and string arguments."""
    folder = tree("WAYLOG_TRACCAR_TREE") / "src/test/java/org/traccar/protocol"
    source = (folder / f"{name}ProtocolDecoderTest.java").read_text(encoding="utf-8")
    for kind, arguments in _VERIFY.findall(source):
        yield kind, [json.loads(f'"{each}"') for each in _STRING.findall(arguments)]


def context(query: dict[str, str] | None = None, content_type: str = "") -> Context:
    return Context("ada", None, now_ms(), query=query, content_type=content_type)


def places(value: Any) -> Iterator[tuple[float, float]]:
    """Yield all coordinates in some JSON, whatever their names."""
    if isinstance(value, list):
        for each in value:
            yield from places(each)
    elif isinstance(value, dict):
        for lat, lon in (("lat", "lon"), ("latitude", "longitude")):
            if isinstance(value.get(lat), int | float) and isinstance(value.get(lon), int | float):
                yield value[lat], value[lon]
        if value.get("type") == "Point":
            lon, lat = value["coordinates"]
            yield lat, lon
        for each in value.values():
            yield from places(each)


def taken(parsed: Parsed) -> list[tuple[float, float]]:
    return [(fix.lat, fix.lon) for fix in parsed.fixes]


def test_traccars_examples_of_owntracks_are_read() -> None:
    bodies = [strings[-1] for _, strings in calls("OwnTracks")]
    assert len(bodies) >= 4
    for body in bodies:
        parsed = owntracks.parse(body.encode(), context())
        assert taken(parsed) == list(places(json.loads(body)))
        assert parsed.fixes[0].time == json.loads(body)["tst"] * 1000


def test_traccars_examples_of_its_own_client_are_read() -> None:
    bodies = [strings[-1] for _, strings in calls("OsmAnd") if strings[-1].startswith("{")]
    assert len(bodies) >= 3
    for body in bodies:
        parsed = traccar.parse(body.encode(), context(content_type="application/json"))
        assert taken(parsed) == list(places(json.loads(body)))


@pytest.mark.parametrize(("name", "parse"), [("OsmAnd", osmand.parse), ("OpenGts", opengts.parse)])
def test_traccars_examples_of_queries_are_read(
    name: str, parse: Callable[[bytes, Context], Parsed]
) -> None:
    checked = 0
    for kind, strings in calls(name):
        if not strings[-1].startswith("/"):
            continue
        query = dict(parse_qsl(urlsplit(strings[-1]).query, keep_blank_values=True))
        parsed = parse(b"", context(dict(query)))
        checked += 1
        if kind in {"verifyNull", "verifyNotNull", "verifyAttribute", "verifyAttributes"}:
            # A message without a device is useless to Traccar, but Waylog knows its user. Cell
            # towers are not a position.
            if "lat" not in query and "gprmc" not in query:
                assert not parsed.fixes
            continue
        assert len(parsed.fixes) == 1, (strings[-1], parsed.rejected)
        if "lat" in query:
            assert taken(parsed) == [(float(query["lat"]), float(query["lon"]))]
    assert checked


def test_dawarichs_examples_of_overland_are_read() -> None:
    file = tree("WAYLOG_DAWARICH_TREE") / "spec/fixtures/files/overland/geodata.json"
    body = file.read_bytes()
    parsed = overland.parse(body, context())
    assert parsed.fixes
    assert not parsed.rejected
    assert taken(parsed) == list(places(json.loads(body)["locations"]))


def test_dawarichs_examples_of_owntracks_are_read() -> None:
    folder = tree("WAYLOG_DAWARICH_TREE") / "spec/fixtures/files/owntracks"
    checked = 0
    for file in folder.glob("*.rec"):
        for line in file.read_text(encoding="utf-8").splitlines():
            body = line[line.index("{") :]
            sent = json.loads(body)
            parsed = owntracks.parse(body.encode(), context())
            if sent["_type"] == "location":
                assert taken(parsed) == [(sent["lat"], sent["lon"])]
                checked += 1
            else:
                assert not parsed.fixes
    assert checked
