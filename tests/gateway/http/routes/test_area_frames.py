"""`GET /v1/ws`: a part of the map in binary frames, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.http.plain.test_plain_connection import AcknowledgingLog, listening
from tests.gateway.running import Gateway, Login, json_of
from tests.gateway.viewers.area_client import AreaClient
from tests.gateway.viewers.town import Record, Town
from tests.http_session import http_session
from waylog.observability.telemetry import now_ms

VADUZ = {"type": "view", "bbox": [9.4, 47.0, 9.6, 47.3], "zoom": 10}


class Watcher:
    """A client that looks at the map, and keeps what it was told."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self.connection = connection
        self.client = AreaClient()
        self.answers: list[dict[str, Any]] = []

    async def ask(self, **asked: Any) -> dict[str, Any]:
        """Send a message; return the answer to it."""
        await self.connection.send_json(asked)
        before = len(self.answers)
        while len(self.answers) == before:
            await self.receive()
        return self.answers[-1]

    async def receive(self) -> None:
        message = await self.connection.receive(timeout=60)
        if message.type is aiohttp.WSMsgType.BINARY:
            self.client.take(message.data)
        else:
            assert message.type is aiohttp.WSMsgType.TEXT, message
            answer = json.loads(message.data)
            if answer["type"] not in {"fix", "address"}:  # from before it was looked at a part
                self.answers.append(answer)

    async def until(self, points: set[str]) -> None:
        """Wait until these devices, and no others, are in sight."""
        async with asyncio.timeout(60):
            while set(self.client.points or ()) != points:
                await self.receive()


@asynccontextmanager
async def watching(gateway: Gateway, user: Login) -> AsyncIterator[Watcher]:
    async with gateway.client(user) as client, client.ws_connect("/v1/ws") as connection:
        watcher = Watcher(connection)
        await watcher.receive()
        assert watcher.answers.pop()["type"] == "ready"
        await connection.send_json({"type": "unsubscribe"})
        yield watcher


async def send(gateway: Gateway, user: Login, device: str, lat: float, lon: float = 9.5) -> None:
    fix = {"device": device, "lat": lat, "lon": lon, "time": now_ms(), "speed": 2.5}
    async with gateway.client(user) as client:
        await json_of(await client.post("/v1/positions", json=[fix]))


async def test_a_part_of_the_map_is_shown_and_follows_what_happens(
    gateway: Gateway, user: Login
) -> None:
    await send(gateway, user, "phone", 47.1)
    async with watching(gateway, user) as watcher:
        assert (await watcher.ask(**VADUZ))["type"] == "viewing"
        await watcher.until({f"{user.name}/phone"})
        await send(gateway, user, "watch", 47.2)
        await watcher.until({f"{user.name}/phone", f"{user.name}/watch"})
        await send(gateway, user, "phone", 40.0)
        await watcher.until({f"{user.name}/watch"})
        await watcher.ask(**VADUZ, devices=[f"{user.name}/phone", "eve/phone"])
        while set(watcher.client.chosen) != {f"{user.name}/phone"}:
            await watcher.receive()
        assert watcher.client.chosen[f"{user.name}/phone"].speed == 2.5
        # Nothing comes any more; the answer to the question is the next message.
        await watcher.ask(type="view")
        await send(gateway, user, "watch", 47.25)
        await asyncio.sleep(0.6)
        frames = len(watcher.client.kinds)
        await watcher.ask(type="ping")
        assert len(watcher.client.kinds) == frames


async def test_a_friendship_that_ends_takes_its_devices_away(gateway: Gateway, user: Login) -> None:
    friend = gateway.user(f"{user.name}-friend")
    gateway.users.rights.befriend(user.name, friend.name)
    await send(gateway, user, "phone", 47.1)
    await send(gateway, friend, "phone", 47.1)
    async with watching(gateway, friend) as watcher:
        await watcher.ask(**VADUZ)
        await watcher.until({f"{user.name}/phone", f"{friend.name}/phone"})
        gateway.users.rights.unfriend(user.name, friend.name)
        await watcher.until({f"{friend.name}/phone"})
        assert list(watcher.client.names.values()) == [f"{friend.name}/phone"]


@pytest.mark.parametrize(
    "asked",
    [
        {"bbox": [1, 2, 3]},
        {"bbox": [0, 0, 0, 91], "zoom": 3},
        {"bbox": [0, 0, 1, 1], "zoom": -1},
        {"bbox": [0, 0, 1, 1], "zoom": 1e300},
        {"bbox": "all", "zoom": 3},
        {"bbox": [0, 0, 1, 1], "zoom": "3"},
    ],
)
async def test_what_is_no_part_of_a_map_is_refused_and_nothing_changes(
    gateway: Gateway, user: Login, asked: dict[str, Any]
) -> None:
    await send(gateway, user, "phone", 47.1)
    async with watching(gateway, user) as watcher:
        answer = await watcher.ask(type="view", **asked)
        assert (answer["type"], answer["retry"]) == ("error", False)
        await watcher.ask(**VADUZ)
        await watcher.until({f"{user.name}/phone"})


_numbers = st.one_of(st.integers(-400, 400), st.floats(), st.sampled_from([1e308, -0.0, 180, 90]))
_odd = st.one_of(st.none(), st.booleans(), st.text(max_size=5), _numbers)
_boxes = st.lists(_numbers, max_size=5) | st.just([-180, -90, 180, 90])
_views = st.fixed_dictionaries(
    {"type": st.sampled_from(["view", "view", "unsubscribe", "subscribe"])},
    optional={
        "bbox": _boxes | _odd,
        "zoom": st.integers(0, 24) | _odd,
        "devices": st.lists(st.text(max_size=8) | st.just("ada/d1"), max_size=120) | _odd,
        "friends": _odd,
    },
)


@settings(max_examples=6)
@given(asked=st.lists(_views, max_size=25))
def test_no_message_ends_the_connection_or_shows_what_is_not_there(
    tmp_path_factory: pytest.TempPathFactory, asked: list[dict[str, Any]]
) -> None:
    async def ask() -> None:
        folder = tmp_path_factory.mktemp("fuzz")
        async with (
            listening(folder, AcknowledgingLog()) as (server, services),
            http_session(f"http://ada:x@{server.endpoint}") as session,
            session.ws_connect("/v1/ws") as connection,
        ):
            town = Town()
            fix = town.fix("ada/d1", 47.1, 9.5)
            services.location_view.on_records([Record(fix, 1)])
            watcher = Watcher(connection)
            await watcher.receive()
            for message in asked:
                await connection.send_str(json.dumps(message))
            await watcher.ask(type="view", bbox=[9, 47, 10, 48], zoom=9, devices=["ada/d1"])
            async with asyncio.timeout(60):
                while set(watcher.client.points or ()) != {"ada/d1"}:
                    await watcher.receive()
            assert set(watcher.client.chosen) <= {"ada/d1"}

    asyncio.run(ask())
