"""Events of others: every way by which a friend or a stranger with an ordinary token may ask."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.consumers.running import Broker, await_condition
from tests.gateway.notices.test_event_teller import Client, append, fence_event
from tests.gateway.running import Gateway, Login
from waylog.kafka.clients import ensure_topics
from waylog.messages import Event
from waylog.observability.telemetry import now_ms

HOME: Final = (47.14, 9.52)
AWAY: Final = (47.5, 9.9)
#: In the name of a fence that nobody but the owner may see.
SECRET: Final = "the-secret-door"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that knows where ada lives; bob is a friend of ada, eve is none."""
    broker = Broker(tmp_path)
    ensure_topics(broker.address)
    place = {
        **{"user": "ada", "device": "ada/phone", "place_id": "0123456789", "label": "home"},
        **{"lat": HOME[0], "lon": HOME[1], "name": "At ours", "address": "Hauptstrasse 5"},
        **{"visits": 9, "dwell_s": 360_000.0},
    }
    (tmp_path / "places").mkdir()
    pq.write_table(pa.Table.from_pylist([place]), tmp_path / "places" / "places.parquet")
    running = Gateway(
        *(tmp_path, broker.address, "--places", str(tmp_path / "places")),
        *("--mqtt", "127.0.0.1:0"),
    )
    yield running
    running.close()
    broker.process.stop()


def meeting(owner: Login, other: str, at: tuple[float, float], name: str) -> Event:
    time = now_ms()
    return Event(
        id=name,
        device=f"{owner.name}/phone",
        user=owner.name,
        type="meeting",
        time=time,
        received=time,
        source="streams",
        attributes={
            **{"transition": "begin", "with": other, "since": time - 1_000, "near_m": 75.0},
            **{"area": [at[0] - 0.001, at[1] - 0.001, at[0] + 0.001, at[1] + 0.001]},
        },
    )


async def read_for(content: aiohttp.ClientResponse, until: bytes) -> bytes:
    """Return what a stream sends until it has sent something."""
    heard = b""
    while until not in heard:
        heard += await content.content.readany()
    return heard


async def test_no_token_of_another_user_gets_an_event(gateway: Gateway) -> None:
    ada, bob, eve = (gateway.user(name) for name in ("ada", "bob", "eve"))
    gateway.users.rights.befriend("ada", "bob", 0)
    gateway.users.rights.befriend("bob", "ada", 0)
    ways = (
        *("#", "devices/#", "devices/ada/#", "devices/+/+/notice", "devices/ada/phone/notice"),
        *("owntracks/#", "owntracks/+/+/event", "owntracks/ada/places/event", "+/ada/#"),
    )
    own = Client(gateway, ada, "devices/ada/phone/notice", "owntracks/ada/+/event")
    others = [Client(gateway, login, *ways) for login in (bob, eve)]
    events = [
        fence_event(ada, SECRET, lat=AWAY[0], lon=AWAY[1]),
        fence_event(ada, f"{SECRET}-home", lat=HOME[0], lon=HOME[1]),
        fence_event(ada, f"{SECRET}-all", owner="*", lat=HOME[0], lon=HOME[1]),
    ]
    append(gateway.bootstrap_servers, *events)
    topic = "devices/ada/phone/notice"
    await_condition(lambda: len(own.of(topic)) == 3, 60, "the owner's notices")
    await_condition(lambda: len(own.of("owntracks/ada/places/event")) == 3, 60, "its transitions")
    for login in (bob, eve):
        async with gateway.client(login) as client:
            heard = b""
            for query in ("topics=event", "topics=location,address,event", "since=0", "topics="):
                async with client.get(f"/v1/stream?{query}") as answer:
                    if answer.status == 200:
                        heard += await read_for(answer, b": ready\n")
                    else:
                        heard += await answer.read()
            for path in ("/topics/event", "/topics/event/partitions/0/offsets"):
                assert (await client.get(path)).status == 403
            for path, body in (
                ("/consumers/x", {}),
                ("/topics/event", {"records": [{"key": "ada/phone", "value": {}}]}),
                ("/topics/friendship", {"records": [{"key": "ada\neve", "value": {"since": 0}}]}),
            ):
                assert (await client.post(path, json=body)).status == 403
            for path in ("", "/track", "/places", "/visits", "/trips", "/notices", "/receipts"):
                heard += await (await client.get(f"/v1/devices/ada%2Fphone{path}")).read()
            heard += await (await client.get("/v1/devices")).read()
            assert (await client.get("/v1/ws?topics=event")).status == 400
            async with client.ws_connect("/v1/ws") as socket:
                await socket.send_json({"type": "subscribe", "topics": ["event"]})
                heard += str(await socket.receive()).encode()
            assert SECRET.encode() not in heard
    # What comes later is told later.
    for client_of, login in zip(others, (bob, eve), strict=True):
        append(gateway.bootstrap_servers, fence_event(login, "marker"))
        own_topic = f"devices/{login.name}/phone/notice"
        await_condition(partial(client_of.of, own_topic), 60, "a later notice")
        assert SECRET not in json.dumps(client_of.received)
        assert not [where for where, _ in client_of.received if "/ada/" in where and (
            where.endswith(("/notice", "/event")))]  # fmt: skip
    for each in (own, *others):
        each.close()


async def test_a_meeting_at_the_other_ones_home_is_told_to_nobody_but_who_lives_there(
    gateway: Gateway,
) -> None:
    ada, bob = gateway.user("ada"), gateway.user("bob")
    gateway.users.rights.befriend("ada", "bob", 0)
    gateway.users.rights.befriend("bob", "ada", 0)
    of_ada = Client(gateway, ada, "devices/ada/phone/notice")
    of_bob = Client(gateway, bob, "devices/bob/phone/notice")
    append(
        gateway.bootstrap_servers,
        meeting(bob, "ada/phone", HOME, "home-bob"),
        meeting(ada, "bob/phone", HOME, "home-ada"),
        meeting(bob, "ada/phone", AWAY, "away-bob"),
        meeting(ada, "eve/phone", AWAY, "with-a-stranger"),
        meeting(ada, "bob/phone", AWAY, "away-ada"),
    )
    await_condition(lambda: len(of_ada.received) == 2, 60, "both meetings of ada")
    await_condition(lambda: of_bob.received, 60, "the meeting elsewhere")
    append(gateway.bootstrap_servers, fence_event(bob, "marker"))
    await_condition(lambda: "fence" in of_bob.received[-1][1], 60, "a later notice")
    assert len(of_bob.received) == 2
    assert of_bob.received[0][1]["with"] == "ada/phone"
    assert "area" not in of_bob.received[0][1]
    of_ada.close()
    of_bob.close()
