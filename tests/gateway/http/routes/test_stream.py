"""Server-sent events and WebSocket, over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.limits.bounds import HttpLimits
from gateway.viewers.cursors import BadCursor, decode_cursor
from gateway.views.places_file import FILE_NAME
from tests.consumers.running import Broker
from tests.gateway.http.plain.test_plain_connection import AcknowledgingLog, listening
from tests.gateway.records import address
from tests.gateway.running import Gateway, Login, json_of, places_of
from tests.http_session import http_session
from waylog.messages import decode_fix
from waylog.observability.telemetry import now_ms

NOW = now_ms()


class Event(dict[str, str]):
    """One server-sent event."""

    @property
    def body(self) -> Any:
        return json.loads(self["data"])


async def events(answer: aiohttp.ClientResponse, count: int) -> list[Event]:
    """Return the next events that carry data."""
    found: list[Event] = []
    event = Event()
    async with asyncio.timeout(60):
        while len(found) < count:
            line = (await answer.content.readline()).decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
            else:
                if "data" in event:
                    found.append(event)
                event = Event()
    return found


@asynccontextmanager
async def stream(
    gateway: Gateway, user: Login | None, query: str = "", **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Connect a stream; all events from now on are received."""
    async with (
        gateway.client(user) as client,
        client.get(
            f"/v1/stream{query}",
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        ) as answer,
    ):
        assert answer.status == 200, await answer.text()
        assert answer.content_type == "text/event-stream"
        while (await answer.content.readline()) != b"\n":
            pass
        yield answer


async def send(gateway: Gateway, user: Login, *lats: float, device: str = "phone") -> None:
    fixes = [{"device": device, "lat": lat, "lon": 9, "time": NOW + int(lat)} for lat in lats]
    async with gateway.client(user) as client:
        await json_of(await client.post("/v1/positions", json=fixes))


async def test_fixes_and_addresses_come_as_they_happen(gateway: Gateway, user: Login) -> None:
    async with stream(gateway, user) as answer:
        await send(gateway, user, 1)
        (fix,) = await events(answer, 1)
        assert fix["event"] == "fix"
        assert decode_fix(fix["data"].encode()).device == f"{user.name}/phone"
        gateway.publish(address(f"{user.name}/phone", NOW))
        (found,) = await events(answer, 1)
        assert found["event"] == "address"
        assert found.body["display_name"] == "Aeulestrasse 5, Vaduz"


async def test_a_stream_goes_on_where_it_was_without_gap_or_repeat(
    gateway: Gateway, user: Login
) -> None:
    async with stream(gateway, user) as answer:
        await send(gateway, user, 1, 2, 3)
        first = await events(answer, 3)
    await send(gateway, user, 4, 5)
    async with stream(gateway, user, Last_Event_ID=first[1]["id"]) as answer:
        await send(gateway, user, 6)
        again = await events(answer, 4)
    assert [event.body["lat"] for event in again] == [3, 4, 5, 6]
    async with stream(gateway, user, f"?since={again[2]['id']}") as answer:
        assert [event.body["lat"] for event in await events(answer, 1)] == [6]


async def test_a_viewer_whose_missed_events_cannot_be_read_is_told_to_come_again(
    gateway: Gateway, gateway_broker: Broker, user: Login
) -> None:
    async with stream(gateway, user) as answer:
        await send(gateway, user, 1, 2, 3)
        seen = await events(answer, 2)
    since = f"?since={seen[0]['id']}"
    os.kill(gateway_broker.process.pid, signal.SIGSTOP)
    try:
        async with (
            asyncio.timeout(60),
            stream(gateway, user, since) as answer,
            gateway.client(user) as client,
            client.ws_connect(f"/v1/ws{since}") as web_socket,
        ):
            assert b"data:" not in await answer.read()
            assert json.loads((await web_socket.receive()).data)["type"] == "ready"
            assert (await web_socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert web_socket.close_code == aiohttp.WSCloseCode.TRY_AGAIN_LATER
    finally:
        os.kill(gateway_broker.process.pid, signal.SIGCONT)
    async with stream(gateway, user, since) as answer:
        assert [event.body["lat"] for event in await events(answer, 2)] == [2, 3]


async def test_where_a_viewer_is_counts_nothing_of_what_others_send(
    gateway: Gateway, user: Login
) -> None:
    ids: list[str] = []
    async with gateway.client(user) as client, client.get("/v1/stream") as answer:
        while not ids:
            line = (await answer.content.readline()).decode()
            ids += re.findall(r"^id: (.*)", line)
    async with websocket(gateway, user) as connection, stream(gateway, user) as answer:
        await send(gateway, user, 1)
        (fix,) = await receive(connection, "fix")
        ids += [fix["cursor"], (await events(answer, 1))[0]["id"]]
    async with stream(gateway, user, f"?since={ids[0]}") as answer:
        ids.append((await events(answer, 1))[0]["id"])
    assert len(ids) == 4
    for each in ids:
        with pytest.raises(BadCursor):
            decode_cursor(each)


async def test_a_viewer_sees_own_devices_only(gateway: Gateway, user: Login) -> None:
    other = gateway.user(f"{user.name}-other")
    async with stream(gateway, user) as answer, stream(gateway, gateway.admin) as of_all:
        await send(gateway, other, 1)
        await send(gateway, user, 2)
        assert [event.body["user"] for event in await events(answer, 1)] == [user.name]
        seen = {event.body["user"] for event in await events(of_all, 2)}
        assert seen == {user.name, other.name}


async def test_a_stream_is_narrowed_by_box_device_and_topic(gateway: Gateway, user: Login) -> None:
    device = f"{user.name}%2Fbike"
    async with (
        stream(gateway, user, "?bbox=8,2,10,3") as boxed,
        stream(gateway, user, f"?device={device}") as of_device,
        stream(gateway, user, "?topics=address") as addresses,
    ):
        await send(gateway, user, 1, 2, 4)
        await send(gateway, user, 5, device="bike")
        gateway.publish(address(f"{user.name}/bike", NOW))
        assert [event.body["lat"] for event in await events(boxed, 1)] == [2]
        assert [event.body["lat"] for event in await events(of_device, 1)] == [5]
        assert [event["event"] for event in await events(addresses, 1)] == ["address"]


@pytest.mark.parametrize(
    "query", ["?since=x", "?bbox=1,2", "?bbox=a,b,c,d", "?topics=error", "?bbox=nan,0,1,1"]
)
async def test_wrong_parameters_are_explained(gateway: Gateway, user: Login, query: str) -> None:
    async with gateway.client(user) as client:
        assert "error" in await json_of(await client.get(f"/v1/stream{query}"), 400)


# --- WebSocket ----------------------------------------------------------------------------------


@asynccontextmanager
async def websocket(
    gateway: Gateway, user: Login | None, query: str = ""
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with gateway.client(user) as client, client.ws_connect(f"/v1/ws{query}") as connection:
        assert (await connection.receive_json(timeout=60))["type"] == "ready"
        yield connection


async def receive(connection: aiohttp.ClientWebSocketResponse, *types: str) -> list[dict[str, Any]]:
    """Return one message of each of these types, received in any order."""
    found: dict[str, dict[str, Any]] = {}
    while found.keys() != set(types):
        message = await connection.receive_json(timeout=60)
        assert message["type"] in types, message
        found[message["type"]] = message
    return [found[each] for each in types]


async def test_a_fix_is_acknowledged_by_the_clients_id_and_seen(
    gateway: Gateway, user: Login
) -> None:
    async with websocket(gateway, user) as connection:
        await connection.send_json({"type": "fix", "id": "mine", "device": "x", "lat": 1, "lon": 2})
        ack, fix = await receive(connection, "ack", "fix")
        assert ack["ids"] == ["mine"]
        assert ack["fix_ids"] == [fix["id"]]
        assert (fix["device"], fix["lat"]) == (f"{user.name}/x", 1)
    assert any(f'"{fix["id"]}"'.encode() in value for _, value in gateway.records("location"))


async def test_batches_and_bad_items(gateway: Gateway, user: Login) -> None:
    async with websocket(gateway, user) as connection:
        await connection.send_json({"type": "unsubscribe"})
        fixes = [{"id": "a", "lat": 1, "lon": 2}, {"id": "b", "lat": 99, "lon": 0}]
        await connection.send_json({"type": "fixes", "fixes": fixes})
        ack, rejected = await receive(connection, "ack", "rejected")
        assert ack["ids"] == ["a"]
        assert (rejected["id"], rejected["index"]) == ("b", 1)
        for bad in ("{", '{"type":"zebra"}', '{"type":"subscribe","bbox":[1]}', "[" * 10_000):
            await connection.send_str(bad)
            (message,) = await receive(connection, *(["rejected"] if bad[0] == "[" else ["error"]))
            assert message["reason"]
        await connection.send_json({"type": "ping"})
        await receive(connection, "pong")


async def test_a_subscription_narrows_to_a_box(gateway: Gateway, user: Login) -> None:
    async with websocket(gateway, user) as connection:
        await connection.send_json({"type": "subscribe", "bbox": [8, 2, 10, 3], "batch": True})
        await receive(connection, "subscribed")
        await send(gateway, user, 1, 2, 4)
        (fix,) = await receive(connection, "fix")
        assert fix["lat"] == 2


async def test_a_websocket_goes_on_where_it_was(gateway: Gateway, user: Login) -> None:
    async with websocket(gateway, user) as connection:
        await send(gateway, user, 1)
        (fix,) = await receive(connection, "fix")
    await send(gateway, user, 2)
    async with websocket(gateway, user, f"?since={fix['cursor']}") as connection:
        (missed,) = await receive(connection, "fix")
        assert missed["lat"] == 2


async def test_friends_are_seen_until_the_viewer_wants_them_no_more(
    gateway: Gateway, user: Login
) -> None:
    friend = gateway.user(f"{user.name}-friend")
    gateway.users.rights.befriend(friend.name, user.name, since=NOW)
    async with websocket(gateway, user) as connection:
        await send(gateway, friend, 1)
        (fix,) = await receive(connection, "fix")
        assert fix["user"] == friend.name
        await connection.send_json({"type": "subscribe", "friends": False})
        await receive(connection, "subscribed")
        await send(gateway, friend, 2)
        await send(gateway, user, 3)
        (fix,) = await receive(connection, "fix")
        assert fix["user"] == user.name


async def test_who_is_revoked_is_cut_off(gateway: Gateway, user: Login) -> None:
    async with gateway.client(user) as client, client.get("/v1/stream") as stream:
        assert await stream.content.readline()
        async with websocket(gateway, user) as connection:
            gateway.users.revoke(user.name)
            message = await connection.receive(timeout=60)
            assert message.type == aiohttp.WSMsgType.CLOSE
            assert message.data == aiohttp.WSCloseCode.POLICY_VIOLATION
            assert message.extra == "the rights have been revoked"
        async with asyncio.timeout(60):
            await stream.content.read()
        assert stream.content.at_eof()


async def test_a_user_that_may_only_look_does(gateway: Gateway, user: Login) -> None:
    gateway.users.rights.set_sending(user.name, False)
    async with websocket(gateway, user) as connection:
        await connection.send_json({"type": "fix", "lat": 1, "lon": 2})
        (refusal,) = await receive(connection, "error")
        assert "may send" in refusal["reason"]
        assert refusal["retry"] is False


@pytest.mark.parametrize("start", ['{"type":"fix",', "{"])
async def test_what_our_own_clients_send_is_acknowledged_by_its_id(
    gateway: Gateway, user: Login, start: str
) -> None:
    name = f"01JF8ZQ4T0Q2W3E4R5T6-{start[2:6]}".replace('"', "-")
    position = f'"id":"{name}","device":"x","lat":1,"lon":2,"time":{NOW}}}'
    async with websocket(gateway, user) as connection:
        await connection.send_json({"type": "unsubscribe"})
        for _ in range(3):
            await connection.send_str(start + position)
            (ack,) = await receive(connection, "ack")
            assert ack == {"type": "ack", "ids": [name], "fix_ids": [name]}
    assert sum(f'"{name}"'.encode() in value for _, value in gateway.records("location")) == 1


async def test_a_flood_on_one_connection_is_held_back(tmp_path: Path) -> None:
    log, limits = AcknowledgingLog(), HttpLimits(fixes_per_s_per_websocket=0.01)  # one at once
    fixes = [{"lat": 1, "lon": n, "time": NOW + n, "id": f"n{n}"} for n in range(4)]
    async with listening(tmp_path, log, limits) as (server, _):
        url = f"http://{server.endpoint}"
        async with http_session(url) as client, client.ws_connect("/v1/ws") as connection:
            await receive(connection, "ready")
            await connection.send_json({"type": "unsubscribe"})
            for sent in (fixes[0], fixes[1], fixes[2:], fixes[1:]):
                await connection.send_json(sent)
            answers = [await connection.receive_json(timeout=60) for _ in range(4)]
    assert [each["ids"] for each in answers if each["type"] == "ack"] == [["n0"]]
    refusals = [each for each in answers if each["type"] == "error"]
    assert [each["ids"] for each in refusals] == [["n1"], ["n2", "n3"], ["n1", "n2", "n3"]]
    assert all(each["retry"] for each in refusals)
    assert len(log.appended) == 1


async def test_a_page_of_another_site_may_not_connect(gateway: Gateway, user: Login) -> None:
    async with gateway.client(user) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
            await client.ws_connect("/v1/ws", origin="https://evil.example")
        assert refusal.value.status == 403
        async with client.ws_connect("/v1/ws", origin=gateway.url) as connection:
            assert (await connection.receive_json(timeout=60))["type"] == "ready"


async def test_a_viewer_that_does_not_read_does_not_fill_the_memory(
    gateway: Gateway, user: Login
) -> None:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(gateway.address)
    reader, writer = await asyncio.open_connection(sock=connection, limit=1024)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    target = f"/v1/stream?token={user.token}"
    writer.write(f"GET {target} HTTP/1.1\r\nHost: {gateway.http}\r\n\r\n".encode())
    padding = {"text": "x" * 4000}
    sent = 0
    async with gateway.client(user) as client, gateway.client(gateway.admin) as watching:
        metrics = ""
        # Until the kernel's buffers are full as well, and events are skipped.
        while not re.search(r"^waylog_gateway_viewers 1\.0$", metrics, re.MULTILINE) or sent < 8000:
            fixes = [
                {"lat": 1, "lon": 2, "time": NOW + sent + n, "attributes": padding}
                for n in range(200)
            ]
            await json_of(await client.post("/v1/positions", json=fixes))
            sent += len(fixes)
            metrics = await (await watching.get("/metrics")).text()
    writer.transport.resume_reading()  # type: ignore[attr-defined]
    received = 0
    async with asyncio.timeout(60):
        tail = b""
        while b"event: skipped" not in tail:
            part = await reader.read(65536)
            assert part
            received += len(part)
            tail = tail[-100:] + part
    assert received < sent * 3500
    writer.close()
    await writer.wait_closed()


async def test_friends_are_seen_late_where_homes_are_not_known_at_once(
    gateway_broker: Broker, tmp_path: Path
) -> None:
    damaged = tmp_path / "places" / FILE_NAME
    damaged.parent.mkdir()
    damaged.write_bytes(b"no Parquet")
    running = Gateway(tmp_path, gateway_broker.address, "--places", str(damaged.parent))
    try:
        ada, bob = (running.user(f"{name}{running.address[1]}") for name in ("ada", "bob"))
        running.users.rights.befriend(ada.name, bob.name, since=0)
        async with stream(running, bob) as answer:
            await send(running, bob, 1)
            (own,) = await events(answer, 1)
            await send(running, ada, 2, 3)
            await send(running, bob, 4)
            (own_again,) = await events(answer, 1)
            assert [each.body["lat"] for each in (own, own_again)] == [1, 4]
            async with stream(running, bob, Last_Event_ID=own["id"]) as resumed:
                damaged.unlink()
                async with running.client(bob) as client:
                    # A request for places makes the gateway read them.
                    await places_of(client, f"{bob.name}/phone")
                # A live viewer gets only the newest; a viewer that resumes gets all it has missed.
                assert [each.body["lat"] for each in await events(answer, 1)] == [3]
                missed = [each.body["lat"] for each in await events(resumed, 3)]
                assert sorted(missed) == [2, 3, 4]
    finally:
        running.close()
