"""What a client sent is gone with its connection, and does not wait for the garbage collector.

The collector is rare in a process that handles many records, so that clients which come and go in
quick succession could fill the memory with heads and bodies that nobody uses any more.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.http.listener import start_http
from tests.attacks.test_many_connections import head, listening, post
from tests.attacks.test_mqtt_turns import packet, publish, subscribe, text
from tests.event_loops import on_both_event_loops
from tests.gateway.mqtt.in_memory import Platform, eventually
from tests.gateway.parts import parts
from tests.gateway.records import MemoryLog
from tests.resident_memory import resident_kb
from waylog.config import Endpoint

CONNECTIONS = 20
_SOCKET = (
    *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
#: The head of a request with as many fields as are allowed, which aiohttp parses.
_LARGE_HEAD = head("GET /v1/session", 1, *(f"X-{each}: {'x' * 290}" for each in range(90)))
_CONNECT = packet(0x10, text("MQTT") + b"\4\xc2\0\0" + text("c") + text("alice") + text("x"))

#: What refers to what a client has sent.
_KEEPERS = frozenset(
    (
        *("PlainConnection", "SteppedInput", "RequestHandler", "StreamReader"),
        *("Request", "RawRequestMessage", "CIMultiDictProxy", "WebSocketDataQueue"),
        *("Viewer", "MqttProtocol", "Connection", "Session"),
    )
)


def come_and_go(port: int, data: bytes, is_answered: bool, resets: bool) -> None:
    clients = []
    for _ in range(CONNECTIONS):
        client = socket.create_connection(("127.0.0.1", port), timeout=60)
        client.sendall(data)
        if is_answered:
            assert client.recv(1 << 16)
        clients.append(client)
    for client in clients:
        if resets:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


async def left_by(act: Callable[[], None], are_gone: Callable[[], bool]) -> Counter[str]:
    """Return what is left for the collector of all that keeps what clients have sent."""
    await asyncio.to_thread(act)  # what is made once
    await eventually(are_gone)
    gc.collect()
    gc.disable()
    try:
        await asyncio.to_thread(act)
        await eventually(are_gone)
        for _ in range(50):
            await asyncio.sleep(0)  # tasks that end because of it
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(name for each in gc.garbage if (name := type(each).__name__) in _KEEPERS)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    ("data", "is_answered"),
    [
        pytest.param(post(1, 0), True, id="a fix"),
        pytest.param(head("GET /v1/devices", 1), True, id="a question"),
        pytest.param(_LARGE_HEAD * 8, False, id="a pipeline"),
        pytest.param(head("GET /nothing", 1), True, id="a path that does not exist"),
        pytest.param(head("PUT /v1/positions", 1), True, id="a method that does not exist"),
        pytest.param(head("GET /v1/devices", 1)[:-2], False, id="half a head"),
        pytest.param(
            head("POST /v1/positions", 1, "Content-Length: 200000") + b"[" * 100_000,
            *(False,),
            id="half a body",
        ),
        pytest.param(head("GET /v1/stream", 1), True, id="a stream"),
        pytest.param(head("GET /v1/ws", 1, *_SOCKET), True, id="a WebSocket"),
    ],
)
async def test_a_closed_http_connection_leaves_nothing(
    tmp_path: Path, data: bytes, is_answered: bool, resets: bool
) -> None:
    async with listening(tmp_path) as (endpoint, services, _):
        pool = services.connections

        def act() -> None:
            come_and_go(endpoint.port, data, is_answered, resets)

        left = await left_by(act, lambda: not pool.used and not services.viewers.watching)
        assert not left


@pytest.mark.parametrize("resets", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize(
    ("data", "is_answered"),
    [
        pytest.param(_CONNECT, True, id="a connection"),
        pytest.param(_CONNECT + subscribe("a/b", "devices/alice/+/address"), True, id="filters"),
        pytest.param(_CONNECT + publish("a/b", b"x" * 1_000) * 20, True, id="messages"),
        pytest.param(_CONNECT + publish("a/b", b"x" * 1_000)[:-1], False, id="half a message"),
        pytest.param(b"\xf0\0", False, id="no MQTT"),
    ],
)
async def test_a_closed_mqtt_connection_leaves_nothing(
    data: bytes, is_answered: bool, resets: bool
) -> None:
    platform = Platform()
    async with platform.listening():
        server = platform.server

        def act() -> None:
            come_and_go(server.endpoint.port, data, is_answered, resets)

        assert not await left_by(act, lambda: not server.pool.used)


async def test_who_goes_before_its_answer_comes_leaves_nothing(tmp_path: Path) -> None:
    """The log has stored what it sent, and there is nobody to tell."""
    log = MemoryLog()
    async with parts(tmp_path, log=log) as services:
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        pool, times = services.connections, itertools.count(1_795_000_000_000)

        def act() -> None:
            log.appended.clear()
            clients = []
            for number in range(CONNECTIONS):
                client = socket.create_connection(("127.0.0.1", server.endpoint.port), timeout=60)
                body = b'{"lat":1,"lon":2,"time":%d}' % next(times)
                length = f"Content-Length: {len(body)}"
                # The cookie brings it to the complete server.
                client.sendall(head("POST /v1/positions", number, length, "Cookie: a=b") + body)
                clients.append(client)
            until = time.monotonic() + 60
            while len(log.appended) < CONNECTIONS:
                assert time.monotonic() < until
                time.sleep(0.001)
            for client in clients:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()

        def are_gone() -> bool:
            if pool.used:
                return False
            log.acknowledge()
            return True

        try:
            assert not await left_by(act, are_gone)
        finally:
            await server.close()


async def test_many_large_heads_in_a_pipeline_take_little_memory(tmp_path: Path) -> None:
    """60 requests of 27 kB over each of 100 connections, again and again."""
    begun = threading.Barrier(2)

    def flood(port: int) -> None:
        clients = []
        for _ in range(100):
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            client.setblocking(False)
            client.send(_LARGE_HEAD * 60)
            clients.append(client)
        begun.wait(60)
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

    async with listening(tmp_path) as (endpoint, services, _):
        most = 0
        for repetition in range(5):
            flooding = asyncio.create_task(asyncio.to_thread(flood, endpoint.port))
            while not begun.n_waiting:
                await asyncio.sleep(0.01)
            for _ in range(100):
                await asyncio.sleep(0)
            if repetition == 0:
                before = resident_kb()
            most = max(most, resident_kb())
            await asyncio.to_thread(begun.wait, 60)
            await flooding
            await eventually(lambda: not services.connections.used)
        assert most - before < 20_000


def vanish(port: int, sent: list[bytes]) -> None:
    """Send and close again and again, after a time that varies: some requests have begun."""
    for number, data in enumerate(sent):
        client = socket.create_connection(("127.0.0.1", port), timeout=60)
        client.sendall(data)
        time.sleep(number % 4 / 1_000)
        if number % 3:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()


@on_both_event_loops
async def test_clients_that_vanish_are_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    requests = [
        head("GET /v1/devices", 1) * 3,
        head("POST /v1/positions", 1, "Content-Length: 40000") + b"[" * 40_000,
        head("POST /v1/positions", 1, "Content-Length: 40000") + b"[" * 100,
        head("POST /pub", 1, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n",
        head("GET /v1/stream", 1),
        head("GET /v1/ws", 1, *_SOCKET) + b"\x81\x82\0\0\0\0{}",
    ]
    async with listening(tmp_path) as (endpoint, services, _):
        await asyncio.to_thread(vanish, endpoint.port, requests * 100)
        await eventually(lambda: not services.connections.used)
        gc.collect()  # what tasks have failed with and nobody has asked for
    assert not [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
