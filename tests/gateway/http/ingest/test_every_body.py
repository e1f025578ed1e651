"""Any body sent to any path: whatever is answered with success is in the log."""

from __future__ import annotations

import asyncio
import codecs
import gzip
import itertools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.formats import Context, positions, ulogger
from gateway.http.ingest import ulogger_sessions
from gateway.http.ingest.paths import PATHS
from tests.gateway.running import Gateway, Login, json_of
from waylog.messages import decode_fix, decode_rejected

TIME = "2025-11-01T11:00:05.120Z"
PROGRAMS = "/v1/positions"


class Body(NamedTuple):
    """The body of a request, and the marks by which it is found in the log."""

    data: bytes
    kind: str
    lat: float
    mark: str
    headers: dict[str, str]


def bodies(number: int) -> Iterator[Body]:
    """Yield one body of each kind; bodies of different numbers all differ."""
    count = itertools.count(number * 100)

    def body(kind: str, data: Any, headers: dict[str, str] | None = None) -> Body:
        n = next(count)
        lat, mark = round(n / 1000, 3), f"mark{n}z"
        content = data(lat, mark)
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        return Body(content, kind, lat, mark, headers or {})

    as_json, as_form = (
        {"Content-Type": "application/json"},
        {"Content-Type": "application/x-www-form-urlencoded"},
    )
    yield body("flat", lambda lat, mark: {"id": mark, "lat": lat, "lon": 2}, as_json)
    yield body(
        "traccar",
        lambda lat, mark: {
            "location": {"timestamp": TIME, "coords": {"latitude": lat, "longitude": 2}},
            "device_id": mark,
        },
        as_json,
    )
    yield body(
        "owntracks",
        lambda lat, mark: {"_type": "location", "tid": "x", "_id": mark, "lat": lat, "lon": 2},
        as_json,
    )
    yield body(
        "overland",
        lambda lat, mark: {
            "locations": [
                {
                    "geometry": {"type": "Point", "coordinates": [2, lat]},
                    "properties": {"timestamp": TIME, "device_id": mark},
                }
            ]
        },
        as_json,
    )
    yield body(
        "home_assistant",
        lambda lat, mark: {"type": "update_location", "data": {"gps": [lat, 2], "note": mark}},
        as_json,
    )
    yield body("of nobody", lambda _, mark: {"hello": {"world": mark}}, as_json)
    yield body("array", lambda lat, mark: [{"id": mark, "lat": lat, "lon": 2}], as_json)
    yield body("text", lambda _, mark: mark)
    yield body("form", lambda lat, mark: f"id={mark}&lat={lat}&lon=2".encode(), as_form)
    yield body("foreign form", lambda _, mark: f"name={mark}".encode(), as_form)
    yield body(
        "ndjson",
        lambda lat, mark: b'{"lat":%f,"lon":2,"id":"%b"}\n{"lat":3,"lon":2}' % (lat, mark.encode()),
        {"Content-Type": "application/x-ndjson"},
    )
    yield body("broken", lambda _, mark: b'{"mark":"%b' % mark.encode(), as_json)
    yield body("binary", lambda _, mark: b"\x00\xff=" + mark.encode() + b"\x80")
    yield body(
        "compressed",
        lambda lat, mark: gzip.compress(
            b'{"_type":"location","lat":%f,"lon":2,"_id":"%b"}' % (lat, mark.encode())
        ),
        as_json | {"Content-Encoding": "gzip"},
    )
    yield body("unsaid gzip", lambda _, mark: gzip.compress(mark.encode(), mtime=0))


async def test_no_path_throws_a_body_away_that_it_answers_with_success(
    gateway: Gateway, user: Login
) -> None:
    paths = [path for path, each in PATHS.items() if "POST" in each.methods]
    sent: list[tuple[str, Body, int]] = []
    async with gateway.client(user) as client:
        for number, path in enumerate((*paths, *ulogger_sessions.PATHS)):
            url = path.replace("{token}", user.token).replace("{device}", "phone")

            async def status(body: Body, url: str = url) -> int:
                async with client.post(url, data=body.data, headers=body.headers) as answer:
                    await answer.read()
                    return answer.status

            of_path = list(bodies(number))
            # Concurrently, because each waits until the log has its fix.
            answers = await asyncio.gather(*map(status, of_path))
            sent += [(path, *each) for each in zip(of_path, answers, strict=True)]
    fixes = {
        fix.lat
        for fix in (decode_fix(value) for _, value in gateway.records("location"))
        if fix.user == user.name
    }
    raw = b"\n".join(decode_rejected(value).raw for _, value in gateway.records("error"))
    events = b"\n".join(value for _, value in gateway.records("event"))
    lost = [
        (path, body.kind, status)
        for path, body, status in sent
        if not (
            body.lat in fixes
            or body.mark.encode() in events
            or body.mark.encode() in raw
            or body.data in raw
            or (path == PROGRAMS and status == 400)
        )
    ]
    assert lost == []
    assert {status for path, _, status in sent if path != PROGRAMS} == {200}


async def test_traccar_client_of_today_may_be_pointed_at_osmand(
    gateway: Gateway, user: Login
) -> None:
    message = {
        "location": {
            "timestamp": TIME,
            "coords": {"latitude": 50.7, "longitude": 7.1, "speed": 6.4, "heading": -1},
            "battery": {"level": 0.72},
            "event": "",
        },
        "device_id": "phone",
    }
    async with gateway.client() as client:
        answer = await client.post(f"/osmand?token={user.token}", json=message)
        assert answer.status == 200
    fixes = [decode_fix(value) for _, value in gateway.records("location")]
    (fix,) = [each for each in fixes if each.user == user.name]
    assert (fix.device, fix.lat, fix.speed, fix.battery) == (f"{user.name}/phone", 50.7, 6.4, 72)


@pytest.mark.parametrize("body", [b"{broken", b'{"lat":1,', b"[{]", b"lat=1&lon=2", b"a\nb", b"7"])
async def test_a_program_learns_that_its_json_is_malformed(
    gateway: Gateway, user: Login, body: bytes
) -> None:
    async with gateway.client(user) as client:
        for headers in ({}, {"Cookie": "x=y"}):  # the fast path for plain requests, and aiohttp's
            answer = await client.post(PROGRAMS, data=body, headers=headers)
            assert "JSON" in (await json_of(answer, 400))["error"]


async def test_coordinates_in_the_url_of_our_own_json_are_refused(
    gateway: Gateway, user: Login
) -> None:
    async with gateway.client(user) as client:
        for headers in ({}, {"Cookie": "x=y"}):  # the fast path for plain requests, and aiohttp's
            for body in (b'{"lat":3,"lon":4}', b""):
                answer = await client.post(f"{PROGRAMS}?lat=1&lon=2", data=body, headers=headers)
                assert "lat, lon in the URL" in (await json_of(answer, 400))["error"]


async def test_a_good_line_beside_a_broken_one_is_stored_and_the_broken_one_named(
    gateway: Gateway, user: Login
) -> None:
    async with gateway.client(user) as client:
        answer = await client.post(PROGRAMS, data=b'{"lat":1,"lon":2}\n{broken')
        said = await json_of(answer)
    assert said["accepted"] == 1
    assert [each["index"] for each in said["rejected"]] == [1]


def test_a_position_in_the_url_is_read_whatever_the_body_is() -> None:
    context = Context("mika", None, 1_761_994_812_000, query={"lat": "1", "lon": "2"})
    for path in ("/osmand", "/gpslogger", "/colota", "/traccar"):
        parsed = PATHS[path].parse(b"\x00 no form", context)
        assert [(fix.lat, fix.lon) for fix in parsed.fixes] == [(1, 2)], path
        assert [rejected.raw for rejected in parsed.rejected] == [b"\x00 no form"], path


def test_what_is_kept_of_a_refused_body_has_no_password_in_it() -> None:
    for body in (b"pass=hush&action=fly", b'{"password": "hush", "a": [1]}', b"token=hush"):
        for path in ("/osmand", "/gpslogger", "/overland"):
            parsed = PATHS[path].parse(body, Context("mika", None, 1))
            kept = b"".join(each.raw for each in parsed.rejected)
            assert b"hush" not in kept, (path, body)
        assert b"hush" not in ulogger.parse(body, Context("mika", None, 1)).rejected[0].raw


_tokens = st.sampled_from(
    (
        *("{", "}", "[", "]", '"', ":", ",", "=", "&", "%", " ", "\n", "\x00", "ü", "1", "null"),
        *(
            "lat",
            "lon",
            "_type",
            "location",
            "locations",
            "id",
            "gprmc",
            "points",
            "action",
            "auth",
        ),
    )
)


@settings(max_examples=150, deadline=None)
@example("\ufeff")
@given(st.lists(_tokens, max_size=12).map("".join) | st.text(max_size=30))
def test_every_parser_makes_something_of_every_body(text: str) -> None:
    body = text.encode("utf-8", "replace")
    for device_format in {*PATHS.values()}:
        for query in (None, {"id": "phone"}):
            parsed = device_format.parse(
                body, Context("mika", None, 1_761_994_812_000, query=query)
            )
            found = parsed.fixes or parsed.events or parsed.rejected or parsed.refused
            nothing = not body.removeprefix(codecs.BOM_UTF8).strip()
            empty = nothing or (device_format.name == positions.SOURCE and text != "")
            assert found or empty, (device_format.name, body)


async def test_what_is_refused_names_the_device_that_the_request_names(
    gateway: Gateway, user: Login
) -> None:
    token = user.token
    urls = [
        *(f"/{path}/{token}?device=d1" for path in ("owntracks", "overland", "osmand", "colota")),
        f"/pub?u={user.name}&d=d2&token={token}",
        f"/apps/phonetrack/logPost/{token}/d3",
        "/v1/positions?device=d4",
    ]
    async with gateway.client(user) as client:
        for url in urls:
            async with client.post(url, data=b'{"lat":95,"lon":7,"_type":"location"}') as answer:
                assert answer.status == 200, url
    records = [
        (key, decode_rejected(value))
        for key, value in gateway.records("error")
        if decode_rejected(value).user == user.name
    ]
    named = ["d1"] * 4 + ["d2", "d3", "d4"]
    assert [rejected.device for _, rejected in records] == [f"{user.name}/{each}" for each in named]
    # So an erasure of the device reaches them.
    assert all(key == (rejected.device or "").encode() for key, rejected in records)
    assert token.encode() not in b"".join(value for _, value in gateway.records("error"))


async def test_a_trip_beside_overlands_locations_is_kept_with_and_without_any(
    gateway: Gateway, user: Login
) -> None:
    feature = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [7, 50]},
        "properties": {"timestamp": TIME, "battery_state": {"odd": "mark0z"}},
    }
    async with gateway.client(user) as client:
        for number, locations in enumerate(([], [feature])):
            trip = {"mode": f"drive{number}z", "start": TIME, "current_location": feature}
            batch = {"locations": locations, "trip": trip, "current": feature}
            async with client.post("/overland", json=batch) as answer:
                assert answer.status == 200
        async with client.post("/overland", json={"locations": [], "note": "mark2z"}) as answer:
            assert answer.status == 200
    events = b"".join(value for _, value in gateway.records("event"))
    assert b"drive0z" in events
    assert b"drive1z" in events
    assert any(b"mark2z" in decode_rejected(value).raw for _, value in gateway.records("error"))


async def test_a_path_with_a_slash_at_its_end_is_the_one_without(
    gateway: Gateway, user: Login
) -> None:
    async with gateway.client(user) as client:
        for path, each in PATHS.items():
            if "POST" not in each.methods or path == "/":
                continue
            url = path.replace("{token}", user.token).replace("{device}", "phone")
            answers = []
            for spelled in (url, f"{url}/"):
                async with client.post(spelled, json={"note": path}) as answer:
                    answers.append((answer.status, await answer.read()))
            assert answers[0] == answers[1], path
            assert answers[0][0] == 200, path
