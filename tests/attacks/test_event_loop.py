"""Requests made as expensive as possible: none may block the event loop for long.

The measured value is the processor time of the loop's thread in one turn of the loop, so that a
busy machine does not count; clients are threads. On an idle machine every value is below 4 ms.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.http.listener import HttpServer, start_http
from gateway.http.requests.services import Services
from gateway.users.admission import Admission
from gateway.views.location_view import LocationView
from gateway.views.track_store import TrackStore
from tests.attacks.turns import REPEATED_TURN_MS_MAX, TURN_MS_MAX, Turns, measured_turns
from tests.consumers.running import Broker
from tests.gateway.parts import parts
from tests.gateway.records import MemoryLog, fix, record
from tests.http_session import http_session
from waylog.config import Endpoint
from waylog.observability.telemetry import now_ms

MEBIBYTE = 1024 * 1024
Asking = Callable[[], tuple[int, bytes]]


class AcknowledgingLog(MemoryLog):
    """Acknowledges records in the next turn of the loop, and keeps none of them."""

    def send(self, *arguments: object) -> None:
        super().send(*arguments)  # type: ignore[arg-type]
        if len(self.deliveries) == 1:
            asyncio.get_running_loop().call_soon(self.acknowledge)
        self.appended.clear()


@asynccontextmanager
async def listening(
    folder: Path, past: Path | None = None, bootstrap_servers: str = "127.0.0.1:1"
) -> AsyncIterator[tuple[HttpServer, Services, Turns]]:
    """Yield a listener in open mode, or one with data about the past and users of its own."""
    # A minute passes in a millisecond: what may be refused in one is measured each time.
    admission = Admission.in_memory(clock=lambda: time.monotonic() * 60_000)
    log = AcknowledgingLog()
    async with parts(
        folder,
        log=log,
        admission=admission,
        open_mode=past is None,
        past=past,
        bootstrap_servers=bootstrap_servers,
    ) as services:
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        try:
            with measured_turns() as turns:
                yield server, services, turns
        finally:
            await server.close()


def ask(
    endpoint: Endpoint, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=120)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    read = answer.read()
    connection.close()
    return answer.status, read


def many(item: bytes, count: int) -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


def positions(count: int, **members: object) -> bytes:
    return json.dumps(
        [
            {"lat": 1.5, "lon": 2.5, "time": now_ms() - n, "device": f"d{n}", **members}
            for n in range(count)
        ]
    ).encode()


def overland(count: int) -> bytes:
    point = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [2, 1]},
        "properties": {"timestamp": "2025-11-01T12:00:05+0100", "battery_level": 0.5},
    }
    return json.dumps({"locations": [point] * count}).encode()


def waypoints(count: int) -> bytes:
    found = [{"_type": "waypoint", "desc": "a", "tst": n, "lat": 1, "lon": 2} for n in range(count)]
    return json.dumps({"_type": "waypoints", "waypoints": found}).encode()


LONG = b'{"lat":"' + b"x" * 80_000 + b'"}'


#: Path, body, headers.
BODIES: dict[str, tuple[str, Callable[[], bytes], dict[str, str]]] = {
    "ten thousand devices": ("/v1/positions", lambda: positions(10_000), {}),
    "ten thousand unusual": ("/v1/positions", lambda: positions(10_000, note="x"), {}),
    "ten thousand bad": ("/v1/positions", lambda: many(b"{}", 10_000), {}),
    "two million objects": ("/v1/positions", lambda: many(b"{}", 2_000_000), {}),
    "deep": ("/v1/positions", lambda: b"[" * (8 * MEBIBYTE), {}),
    "one long string": ("/v1/positions", lambda: b'{"lat":"' + b"x" * 8_000_000 + b'"}', {}),
    "long strings": ("/v1/positions", lambda: many(LONG, 100), {}),
    "overland": ("/overland", lambda: overland(10_000), {}),
    "few bad": ("/v1/positions", lambda: many(b"{}", 5_400), {}),
    "bad messages": ("/owntracks", lambda: many(b"{}", 10_000), {}),
    "bad locations": ("/traccar", lambda: b'{"location":%b}' % many(b"1", 10_000), {}),
    "waypoints": ("/owntracks", lambda: waypoints(80_000), {}),
    "a form": (
        "/gpslogger",
        lambda: b"&".join(b"k%d=v" % n for n in range(500_000)),
        {"Content_Type": "application/x-www-form-urlencoded"},
    ),
    "compressed": (
        "/v1/positions",
        lambda: gzip.compress(positions(10_000)),
        {"Content_Encoding": "gzip"},
    ),
    # Anonymous: a form is parsed before its sender is authenticated.
    "a form in parts": (
        "/client/index.php",
        lambda: b"--b\r\n\r\n" + b"x\r\n" * 2_000_000 + b"--b--\r\n",
        {"Content_Type": "multipart/form-data; boundary=b"},
    ),
    "a bomb": (
        "/v1/positions",
        lambda: gzip.compress(b"[" + b" " * (64 * MEBIBYTE), 9),
        {"Content_Encoding": "gzip"},
    ),
}


async def test_no_body_keeps_others_waiting(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, _, turns):
        figures: dict[str, float] = {}
        for name, (path, make, headers) in BODIES.items():
            body = await asyncio.to_thread(make)
            # The first request has the modules imported, which is not to be measured.
            await asyncio.to_thread(ask, server.endpoint, "POST", path, b"{}")
            posting = partial(ask, server.endpoint, "POST", path, body, **headers)

            async def post(name: str = name, posting: Asking = posting) -> None:
                status, _body = await asyncio.to_thread(posting)
                assert status in (200, 400, 401, 413), (name, status)

            figures[name] = await turns.least_worst(post)
        print({name: round(each, 1) for name, each in figures.items()})
        assert {name: each for name, each in figures.items() if each > REPEATED_TURN_MS_MAX} == {}


async def test_a_request_takes_no_turn_of_the_loop_for_each_of_its_fixes(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, _, _turns):
        loop, count = asyncio.get_running_loop(), 0
        call_soon = loop.call_soon

        def counted(*arguments: Any, **named: Any) -> asyncio.Handle:
            nonlocal count
            count += 1
            return call_soon(*arguments, **named)

        loop.call_soon = counted  # type: ignore[method-assign, assignment]
        body = await asyncio.to_thread(positions, 10_000)
        status, _told = await asyncio.to_thread(ask, server.endpoint, "POST", "/v1/positions", body)
        assert status == 200
        print(f"{count} callbacks")
        assert count < 5_000


@pytest.mark.parametrize(
    "body",
    [positions(6_000, note="x" * 20), many(b"{}", 9_000)],
    ids=["unusual", "bad"],
)
async def test_no_websocket_message_keeps_others_waiting(tmp_path: Path, body: bytes) -> None:
    async with listening(tmp_path) as (server, _, turns):
        assert len(body) < 1024 * 1024

        def send() -> set[str]:
            async def talk() -> set[str]:
                url = f"http://{server.endpoint}/v1/ws"
                async with http_session() as session, session.ws_connect(url) as socket:
                    assert (await socket.receive_json())["type"] == "ready"
                    turns.worst()  # the time of imports is not to be measured
                    await socket.send_bytes(b'{"type":"fixes","fixes":%b}' % body)
                    await socket.send_json({"type": "ping"})
                    async with asyncio.timeout(60):
                        found: set[str] = set()
                        # There may be many refusals: read until the answer to the last message.
                        while not {"ack", "rejected"} & found or "pong" not in found:
                            found.add((await socket.receive_json())["type"])
                        return found

            return asyncio.run(talk())

        assert len(await asyncio.to_thread(send)) == 2
        worst = turns.worst()
        print(f"{worst:.1f} ms")
        assert worst < TURN_MS_MAX


async def test_no_reading_keeps_others_waiting(tmp_path: Path) -> None:
    """A gateway with as many devices as it remembers is read."""
    async with listening(tmp_path) as (server, services, turns):
        view = LocationView(tracks=TrackStore(0))
        services.location_view = view
        for start in range(0, 200_000, 2_000):
            news = [
                record(fix(f"u{n // 200}/d{n}", now_ms()), n) for n in range(start, start + 2_000)
            ]
            view.on_records(news)
            await asyncio.sleep(0)
        assert len(view) > 100_000
        view.on_caught_up()
        services.address_view.on_caught_up()
        figures: dict[str, float] = {}
        await asyncio.to_thread(ask, server.endpoint, "GET", "/metrics")  # imports
        for path in (
            *("/v1/devices?limit=1", "/v1/devices", "/v1/devices?after=u5%2Fd1&limit=10000"),
            *("/metrics", "/openapi.json", "/v1/pipeline", "/healthz", "/readyz", "/"),
        ):

            async def get(path: str = path) -> None:
                status, body = await asyncio.to_thread(ask, server.endpoint, "GET", path)
                assert status == 200, (path, body[:200])

            figures[path] = await turns.least_worst(get)
        print({name: round(each, 1) for name, each in figures.items()})
        assert {name: each for name, each in figures.items() if each > REPEATED_TURN_MS_MAX} == {}


async def test_no_track_keeps_others_waiting(tmp_path: Path) -> None:
    """One device has filled the memory for tracks; a hundredth of it is asked for, and all."""
    async with listening(tmp_path) as (server, services, turns):
        points, begin = 1_800_000, now_ms() - 1_800_000
        tracks = services.location_view.tracks
        for start in range(points):
            tracks.append("ada/phone", begin + start, 1.5, 2.5)
        path = "/v1/devices/ada%2Fphone/track?format=csv&from="
        figures: dict[int, float] = {}
        for age, expected in ((18_000, 200), (points, 400)):

            async def get(age: int = age, expected: int = expected) -> None:
                times = f"{begin + points - age}&to={begin + points}"
                status, body = await asyncio.to_thread(ask, server.endpoint, "GET", path + times)
                assert status == expected, body[:200]
                assert expected == 400 or body.count(b"\n") == 18_001

            figures[age] = await turns.least_worst(get)
        print({age: round(each, 1) for age, each in figures.items()})
        assert {age: each for age, each in figures.items() if each > REPEATED_TURN_MS_MAX} == {}


def write_past(folder: Path, rows: int) -> None:
    """Write visits, trips and places of ada/phone, as the places job does."""
    begin = now_ms() - rows * 1_000_000
    times = [begin + 1_000_000 * n for n in range(rows)]
    ends = [each + 500_000 for each in times]
    places = [f"p{n % 2_000}" for n in range(rows)]
    lats = [47.0 + n % 2_000 * 0.001 for n in range(rows)]
    table: dict[str, list[Any]]
    table = {"device": ["ada/phone"] * rows, "lat": lats, "lon": [9.1] * rows}
    visits = {"arrival": times, "departure": ends, "place_id": places, "fixes": [9] * rows}
    stays = {"dwell_s": [500.0] * rows, "silent_s": [1.0] * rows}
    trips = {"start": times, "end": ends, "origin": places, "destination": places}
    for kind, columns in {
        "visits": table | visits | stays,
        "trips": table | trips | {"distance_m": [1_234.5] * rows},
    }.items():
        (folder / kind).mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / kind / "ada.parquet")
    known = {name: each[:2_000] for name, each in (table | {"place_id": places}).items()}
    labels = ["home"] + ["favourite"] * 1_999
    more = {name: [None] * 2_000 for name in ("name", "address")}
    table = known | more | {"label": labels, "user": ["ada"] * 2_000, "visits": [3] * 2_000}
    pq.write_table(pa.table(table | {"dwell_s": [9.0] * 2_000}), folder / "places.parquet")


async def test_what_friends_are_told_of_years_keeps_nobody_waiting(
    tmp_path: Path, gateway_broker: Broker
) -> None:
    past = tmp_path / "past"
    await asyncio.to_thread(write_past, past, 4_900)
    async with listening(tmp_path, past, gateway_broker.address) as (server, services, turns):
        tokens = [services.users.add(name) for name in ("ada", "eve")]
        services.users.rights.befriend("ada", "eve", since=0)
        figures: dict[tuple[str, str], float] = {}
        for name, shown in zip(("owner", "friend"), tokens, strict=True):
            assert shown is not None
            for kind, most in (("visits", 4_900), ("trips", 4_900), ("places", 2_000)):
                path = f"/v1/devices/ada%2Fphone/{kind}"

                asking = partial(ask, server.endpoint, "GET", path, Authorization=f"Bearer {shown}")

                async def get(asking: Asking = asking, most: int = most) -> None:
                    status, body = await asyncio.to_thread(asking)
                    assert status == 200, body[:200]
                    # Places next door to a home are hidden from friends.
                    assert most - 10 < len(json.loads(body)) <= most

                await get()  # imports, and the places
                figures[name, kind] = await turns.least_worst(get)
        print({each: round(figure, 1) for each, figure in figures.items()})
        assert {each: ms for each, ms in figures.items() if ms > REPEATED_TURN_MS_MAX} == {}


def rest_records(count: int, value: bytes) -> bytes:
    return b'{"records":%b}' % many(b'{"key":"k","value":%b}' % value, count)


async def test_no_records_of_the_rest_proxy_keep_others_waiting(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, services, turns):
        figures: dict[str, float] = {}
        token = services.users.add("root", admin=True)
        headers = {
            "Content_Type": "application/vnd.kafka.json.v2+json",
            "Authorization": f"Bearer {token}",
        }
        for name, body in {
            "300,000 records": rest_records(300_000, b"1"),
            "deep": b'{"records":[{"value":' + b"[" * (8 * MEBIBYTE - 100),
            "half a record": rest_records(100, b"1")[:-1] + b" " * (8 * MEBIBYTE - 10_000),
        }.items():
            posting = partial(ask, server.endpoint, "POST", "/topics/rest", body, **headers)

            async def post(name: str = name, posting: Asking = posting) -> None:
                status, _told = await asyncio.to_thread(posting)
                assert status == 422, name

            figures[name] = await turns.least_worst(post)
        for name, body in {
            "ten thousand records": rest_records(10_000, b'{"a":"%b"}' % (b"x" * 700)),
            "one record of many objects": rest_records(1, many(b"{}", 300_000)),
            "long records": rest_records(100, LONG),
        }.items():

            async def read(body: bytes = body) -> None:
                records = await services.parsing.records(body, "json", "root")
                assert records[0][0] == b'"k"'

            figures[name] = await turns.least_worst(read)
        print({name: round(each, 1) for name, each in figures.items()})
        assert {name: each for name, each in figures.items() if each > REPEATED_TURN_MS_MAX} == {}


@pytest.mark.parametrize("size", [100, 40_000])
async def test_what_is_read_elsewhere_is_answered_the_same(tmp_path: Path, size: int) -> None:
    """A small and a large body have the same answer."""
    async with listening(tmp_path) as (server, _, _turns):
        padding = b" " * size
        body = b'[{"lat":1,"lon":2,"time":1795000000000,"id":"mine"},{"lat":100,"lon":2}]'
        status, told = await asyncio.to_thread(
            ask, server.endpoint, "POST", "/v1/positions", body + padding
        )
        answer = json.loads(told)
        assert status == 200
        assert answer["accepted"] == 1
        assert answer["acked"] == ["mine"]
        assert [each["index"] for each in answer["rejected"]] == [1]
        status, _body = await asyncio.to_thread(
            ask, server.endpoint, "POST", "/v1/positions", b"[{" + padding
        )
        assert status == 400
