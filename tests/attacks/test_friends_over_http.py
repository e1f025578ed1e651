"""Friends, former friends and device tokens, against the streams and routes of a gateway."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gateway.friends.home_blur import RADIUS_M
from tests.consumers.running import Broker
from tests.gateway.records import address
from tests.gateway.running import Gateway, Login, answered, json_of
from waylog.kafka.clients import ensure_topics
from waylog.observability.telemetry import now_ms

HOME: Final = (47.14, 9.52)
AWAY: Final = (47.5, 9.9)
#: Seconds that are promised, and additional seconds for a busy machine.
REACHES_S: Final = 2.0
_GRACE_S: Final = 8.0

_numbers = itertools.count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that knows where ada0 to ada99 live."""
    folder: Path = tmp_path_factory.mktemp("friends")
    broker = Broker(tmp_path_factory.mktemp("friends-broker"))
    ensure_topics(broker.address)
    rows = [
        {
            **{"user": f"ada{number}", "device": f"ada{number}/phone", "place_id": "0123456789"},
            **{"lat": HOME[0], "lon": HOME[1], "label": "home", "name": "At ours"},
            **{"visits": 9, "dwell_s": 360_000.0, "address": "Hauptstrasse 5, Vaduz"},
        }
        for number in range(100)
    ]
    (folder / "places").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), folder / "places" / "places.parquet")
    running = Gateway(folder, broker.address, "--places", str(folder / "places"))
    yield running
    running.close()
    broker.process.stop()


@pytest.fixture
def ada(gateway: Gateway) -> Login:
    return gateway.user(f"ada{next(_numbers)}")


@pytest.fixture
def bob(gateway: Gateway) -> Login:
    return gateway.user(f"bob{next(_numbers)}")


async def send(
    gateway: Gateway, user: Login, at: tuple[float, float] = AWAY, **members: Any
) -> None:
    fix = {"device": "phone", "lat": at[0], "lon": at[1], "time": now_ms(), **members}
    async with gateway.client(user) as client:
        await json_of(await client.post("/v1/positions", json=fix))


async def found(client: aiohttp.ClientSession, path: str) -> Any:
    """Return the answer to a GET as soon as it has something: views follow the log."""
    async with asyncio.timeout(60):
        while True:
            answer = await client.get(path)
            if answer.status == 200 and (content := await json_of(answer)):
                return content
            await asyncio.sleep(0.02)


class Watching:
    """The fixes that a user was shown, over SSE or a WebSocket."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []
        self.news = asyncio.Event()

    def take(self, record: dict[str, Any]) -> None:
        self.shown.append(record)
        self.news.set()

    async def fix(self) -> dict[str, Any]:
        """Return the next fix."""
        async with asyncio.timeout(60):
            while not self.shown:
                self.news.clear()
                await self.news.wait()
            return self.shown.pop(0)


@asynccontextmanager
async def watching(
    gateway: Gateway, user: Login, channel: str, query: str = ""
) -> AsyncIterator[Watching]:
    """Open a stream or a WebSocket, and wait until it is ready."""
    watch = Watching()
    ready = asyncio.Event()

    async def stream(client: aiohttp.ClientSession) -> None:
        async with client.get(f"/v1/stream{query}") as answer:
            kind = b""
            async for line in answer.content:
                if line == b": ready\n":
                    ready.set()
                elif line.startswith(b"event: "):
                    kind = line[7:].strip()
                elif line.startswith(b"data: ") and kind in (b"fix", b"address"):
                    watch.take(json.loads(line[6:]))

    async def websocket(client: aiohttp.ClientSession) -> None:
        async with client.ws_connect(f"/v1/ws{query}") as socket:
            async for message in socket:
                record = json.loads(message.data)
                if record["type"] == "ready":
                    ready.set()
                elif record["type"] in ("fix", "address"):
                    watch.take(record)

    read = stream if channel == "sse" else websocket
    async with gateway.client(user) as client:
        reading = asyncio.create_task(read(client))
        try:
            async with asyncio.timeout(60):
                await ready.wait()
            yield watch
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


@asynccontextmanager
async def watching_both(
    gateway: Gateway, user: Login, query: str = ""
) -> AsyncIterator[tuple[Watching, Watching]]:
    """Open a stream and a WebSocket."""
    async with (
        watching(gateway, user, "sse", query) as stream,
        watching(gateway, user, "ws", query) as socket,
    ):
        yield stream, socket


async def until_seen_no_more(
    gateway: Gateway, sender: Login, last: Login, watches: tuple[Watching, Watching]
) -> None:
    """Send until viewers see the last user's fix, and none of the sender's before it.

    Rights are looked at twice a second, and later if the machine stands still.
    """
    async with asyncio.timeout(REACHES_S + _GRACE_S):
        seen = True
        while seen:
            seen = False
            await send(gateway, sender)
            await send(gateway, last)
            for watch in watches:
                while (await watch.fix())["user"] != last.name:
                    seen = True


async def test_who_is_no_friend_any_more_sees_nothing_on_an_open_stream(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    gateway.users.rights.befriend(ada.name, bob.name)
    async with watching_both(gateway, bob) as watches:
        await send(gateway, ada)
        for watch in watches:
            assert (await watch.fix())["user"] == ada.name
        gateway.users.rights.unfriend(ada.name, bob.name)
        await asyncio.sleep(REACHES_S)
        await until_seen_no_more(gateway, ada, bob, watches)


async def test_a_new_friend_is_seen_on_a_stream_that_is_open(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    async with watching_both(gateway, bob) as watches:
        await send(gateway, ada)
        gateway.users.rights.befriend(ada.name, bob.name)
        deadline = time.monotonic() + REACHES_S + _GRACE_S
        while not all(watch.shown for watch in watches):
            assert time.monotonic() < deadline
            await send(gateway, ada, (48.0, 9.0))
            await asyncio.sleep(0.1)
        for watch in watches:
            assert (await watch.fix())["lat"] == 48.0


async def test_an_administrator_that_is_none_any_more_sees_own_devices(
    gateway: Gateway, ada: Login
) -> None:
    root = gateway.user(f"root{next(_numbers)}", admin=True)
    async with watching_both(gateway, root) as watches:
        await send(gateway, ada)
        for watch in watches:
            # An administrator may also see late what the tests before this one have sent.
            while (await watch.fix())["user"] != ada.name:
                pass
        gateway.users.set_admin(root.name, False)
        await asyncio.sleep(REACHES_S)
        await until_seen_no_more(gateway, ada, root, watches)


async def test_who_may_only_look_sends_nothing_more_over_an_open_websocket(
    gateway: Gateway, ada: Login
) -> None:
    async with gateway.client(ada) as client, client.ws_connect("/v1/ws") as socket:
        await socket.receive_json()
        fix = {"type": "fix", "device": "phone", "lat": 1, "lon": 2, "time": now_ms()}
        await socket.send_json(fix)
        while (await socket.receive_json(timeout=60))["type"] != "ack":
            pass
        gateway.users.rights.set_sending(ada.name, False)
        await asyncio.sleep(REACHES_S)

        async def verdict() -> dict[str, Any]:
            await socket.send_json(fix | {"time": now_ms()})
            while (answer := await socket.receive_json(timeout=60))["type"] not in ("ack", "error"):
                pass
            return dict(answer)

        refusal = await answered(verdict, lambda answer: answer["type"] == "error")
        assert "may send" in refusal["reason"]


async def test_the_token_of_a_device_that_is_revoked_is_shown_nothing_more(
    gateway: Gateway, ada: Login
) -> None:
    token = gateway.users.add_token(ada.name, "phone")
    async with (
        gateway.client(Login(ada.name, token)) as client,
        client.get("/v1/stream") as answer,
        client.ws_connect("/v1/ws") as socket,
    ):
        await answer.content.readline()
        await socket.receive_json()
        gateway.users.revoke_device(ada.name, "phone")
        async with asyncio.timeout(REACHES_S + _GRACE_S):
            await answer.content.read()
            message = await socket.receive()
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING)


async def test_nothing_from_before_the_friendship_is_told(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    await send(gateway, ada, (47.6, 9.0))
    gateway.publish(address(f"{ada.name}/phone", now_ms()))
    device = f"/v1/devices/{ada.name}%2Fphone"
    async with gateway.client(ada) as client:
        await found(client, device)
    gateway.users.rights.befriend(ada.name, bob.name)
    await asyncio.sleep(REACHES_S)
    async with gateway.client(bob) as client:
        assert await json_of(await client.get("/v1/devices")) == []
        for path in (device, f"{device}/address"):
            assert (await client.get(path)).status == 404
        assert (await json_of(await client.get(f"{device}/track")))["features"] == []
        owntracks = {"_type": "location", "lat": 1, "lon": 2, "tst": now_ms() // 1000}
        told = await json_of(await client.post("/owntracks?d=phone", json=owntracks))
        assert [each for each in told if each["_type"] == "location"] == []
    # A fix that a phone has kept is from before the friendship as well.
    await send(gateway, ada, (47.7, 9.0), time=now_ms() - 60_000)
    await send(gateway, ada, (47.8, 9.0))
    async with watching_both(gateway, bob, "?since=l0-0") as watches:
        for watch in watches:
            shown = [await watch.fix()]
            while shown[-1]["lat"] != 47.8:
                shown.append(await watch.fix())
            assert {each["lat"] for each in shown if each["user"] == ada.name} == {47.8}


def metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    east = (one[1] - other[1]) * math.cos(math.radians(one[0]))
    return math.hypot(one[0] - other[0], east) * 111_195


async def test_what_came_before_the_friendship_is_not_told_though_its_clock_was_ahead(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    device = f"/v1/devices/{ada.name}%2Fphone"
    ahead = now_ms() + 3_600_000
    await send(gateway, ada, (47.6, 9.0), time=ahead)
    gateway.publish(address(f"{ada.name}/phone", ahead, resolved=now_ms()))
    async with gateway.client(ada) as client:
        await found(client, device)
    gateway.users.rights.befriend(ada.name, bob.name)
    await asyncio.sleep(REACHES_S)
    async with gateway.client(bob) as client:
        assert await json_of(await client.get("/v1/devices")) == []
        for path in (device, f"{device}/address"):
            assert (await client.get(path)).status == 404
        assert (await json_of(await client.get(f"{device}/track")))["features"] == []
    await send(gateway, ada, (47.8, 9.0))
    async with watching_both(gateway, bob, "?since=l0-0") as watches:
        for watch in watches:
            assert (await watch.fix())["lat"] == 47.8


async def test_a_live_stream_does_not_tell_where_a_friends_home_is(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    gateway.users.rights.befriend(ada.name, bob.name)
    await asyncio.sleep(REACHES_S)
    async with watching_both(gateway, bob) as (stream, socket):
        door = HOME[0] + 0.0001, HOME[1]
        await send(gateway, ada, door, accuracy=4, altitude=455.5, trigger="u")
        live, other = await stream.fix(), await socket.fix()
        assert live.items() < other.items()
    async with gateway.client(bob) as client:
        row = await json_of(await client.get(f"/v1/devices/{ada.name}%2Fphone"))
        body = await (await client.get(f"/v1/devices/{ada.name}%2Fphone/track")).read()
        [feature] = json.loads(body)["features"]
        lon, lat, *_ = feature["geometry"]["coordinates"]
        owntracks = {"_type": "location", "lat": 1, "lon": 2, "tst": now_ms() // 1000}
        told = await json_of(await client.post("/owntracks?d=phone", json=owntracks))
        [own_app] = [each for each in told if each["_type"] == "location"]
    middles = {(each["lat"], each["lon"]) for each in (live, row, row["fix"], own_app)}
    middles.add((lat, lon))
    [middle] = middles
    assert 1 < metres(HOME, middle) < RADIUS_M
    assert live["time"] % 900_000 == row["time"] % 900_000 == own_app["tst"] % 900 == 0
    assert "altitude" not in live
    # A small box must not reveal what the middle hides, even if it is a few metres away.
    edge = 0.00001
    box = f"{HOME[1] - edge},{HOME[0] - edge},{HOME[1] + edge},{HOME[0] + edge}"
    async with (
        watching_both(gateway, bob, f"?bbox={box}") as boxed,
        watching_both(gateway, bob) as all_of_it,
    ):
        await send(gateway, ada, AWAY)
        await send(gateway, ada, HOME)
        for watch in all_of_it:
            await watch.fix()
            await watch.fix()
        assert [watch.shown for watch in boxed] == [[], []]


async def test_no_choice_of_times_tells_a_friend_when_somebody_was_at_home(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    quarter = 900_000
    gateway.users.rights.befriend(ada.name, bob.name, since=now_ms() - 10 * quarter)
    shown_ms = (now_ms() - 3 * quarter) // quarter * quarter
    true_ms = shown_ms + 412_773
    await send(gateway, ada, HOME, time=true_ms)
    track = f"/v1/devices/{ada.name}%2Fphone/track"
    async with gateway.client(ada) as client:
        async with asyncio.timeout(60):
            while not (await json_of(await client.get(track)))["features"]:
                await asyncio.sleep(0.02)
        # The owner gets exactly what is asked for.
        early = await client.get(f"{track}?from={shown_ms}&to={true_ms - 1}")
        assert (await json_of(early))["features"] == []
    async with asyncio.timeout(60), gateway.client(bob) as client:
        while not (whole := (await json_of(await client.get(track)))["features"]):
            await asyncio.sleep(0.1)
        assert str(true_ms) not in str(whole)
        periods = {
            "around it": (true_ms - 1, true_ms + 1),
            "just before": (true_ms - 2, true_ms - 1),
            "just after": (true_ms + 1, true_ms + 2),
            "its quarter": (shown_ms, shown_ms + quarter - 1),
        }
        told = {
            name: (await json_of(await client.get(f"{track}?from={begin}&to={end}")))["features"]
            for name, (begin, end) in periods.items()
        }
        assert told == dict.fromkeys(periods, whole)
        for begin in (shown_ms - quarter, shown_ms + quarter):
            period = f"from={begin}&to={begin + quarter - 1}"
            assert (await json_of(await client.get(f"{track}?{period}")))["features"] == []


async def test_the_token_of_a_phone_shows_its_friends_where_they_are_and_nothing_else(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    gateway.users.rights.befriend(ada.name, bob.name)
    await asyncio.sleep(REACHES_S)
    await send(gateway, ada)
    await send(gateway, bob, device="tablet")
    phone = Login(bob.name, gateway.users.add_token(bob.name, "phone"))
    friends = f"/v1/devices/{ada.name}%2Fphone"
    async with gateway.client(phone) as client:
        rows = await found(client, "/v1/devices")
        assert [row["device"] for row in rows] == [f"{ada.name}/phone"]
        owntracks = {"_type": "location", "lat": 1, "lon": 2, "tst": now_ms() // 1000}
        told = await json_of(await client.post("/owntracks", json=owntracks))
        assert [each["lat"] for each in told if each["_type"] == "location"] == [AWAY[0]]
        await json_of(await client.get(friends))
        for part in ("track", "places", "visits", "trips"):
            assert (await client.get(f"{friends}/{part}")).status == 403
        assert (await client.get(f"/v1/devices/{bob.name}%2Ftablet")).status == 403
    for channel in ("sse", "ws"):
        async with watching(gateway, phone, channel, "?since=l0-0") as watch:
            assert (await watch.fix())["device"] == f"{bob.name}/phone"
            await send(gateway, bob, device="tablet")
            await send(gateway, ada)
            assert (await watch.fix())["device"] == f"{ada.name}/phone"


async def test_the_token_of_an_administrators_phone_sends_for_that_phone_alone(
    gateway: Gateway, ada: Login
) -> None:
    root = gateway.user(f"root{next(_numbers)}", admin=True)
    phone = Login(root.name, gateway.users.add_token(root.name, "phone"))
    async with watching(gateway, root, "sse") as watch:
        await send(gateway, phone, device=f"{ada.name}/phone")
        await watch.fix()
    async with gateway.client(ada) as client:
        assert await json_of(await client.get("/v1/devices")) == []
    async with gateway.client(phone) as client:
        rows = await found(client, "/v1/devices")
        assert {row["user"] for row in rows} == {root.name}
        assert (await client.get("/topics")).status == 403
