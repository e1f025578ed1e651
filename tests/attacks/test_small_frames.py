"""Floods of the smallest WebSocket frames: no turn of the event loop is long, others are served."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.http.listener import start_http
from tests.attacks.turns import TURN_MS_MAX, Turns, measured_turns
from tests.gateway.mqtt.in_memory import Platform
from tests.gateway.parts import parts
from waylog.config import Endpoint

_MASK = b"\0\0\0\0"
PING = b"\x89\x80" + _MASK
PONG = b"\x8a\x80" + _MASK
EMPTY_TEXT = b"\x81\x80" + _MASK
BAD_JSON = b"\x81\x81" + _MASK + b"{"
OWN_PING = b"\x81\x8f" + _MASK + b'{"type":"ping"}'
FRAGMENT = b"\x00\x81" + _MASK + b"x"
FIRST_FRAGMENT = b"\x01\x81" + _MASK + b"x"
EMPTY_BINARY = b"\x82\x80" + _MASK

FLOODS = {
    "pings": ("/v1/ws", PING * 60_000),
    "pongs": ("/v1/ws", PONG * 60_000),
    "empty": ("/v1/ws", EMPTY_TEXT * 60_000),
    "bad": ("/v1/ws", BAD_JSON * 60_000),
    "own pings": ("/v1/ws", OWN_PING * 30_000),
    "fragments": ("/v1/ws", FIRST_FRAGMENT + FRAGMENT * 60_000),
    "pings of a stranger": ("/mqtt", PING * 60_000),
    "fragments of a stranger": ("/mqtt", FIRST_FRAGMENT + FRAGMENT * 60_000),
    "nothing of a stranger": ("/mqtt", EMPTY_BINARY * 60_000),
}


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[Endpoint, Turns]]:
    """Run the HTTP listener, with MQTT over WebSocket, in this loop."""
    platform = Platform()
    async with parts(folder) as services, platform.listening():
        services.mqtt = platform.server
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        try:
            with measured_turns() as turns:
                yield server.endpoint, turns
        finally:
            await server.close()


def flood(endpoint: Endpoint, path: str, frames: bytes, handshaken: Callable[[], None]) -> None:
    """Open a WebSocket and send all frames, as fast as they are taken; discard the answers."""
    with socket.create_connection((endpoint.host, endpoint.port), timeout=60) as client:
        client.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {endpoint}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
        )
        assert client.recv(4096).startswith(b"HTTP/1.1 101")
        handshaken()
        sent = 0
        client.setblocking(False)
        # Without reading at all, the connection would be cut before all frames are parsed.
        while sent < len(frames):
            try:
                sent += client.send(frames[sent:])
            except BlockingIOError:
                pass
            except ConnectionError:
                break
            try:
                client.recv(1 << 20)
            except BlockingIOError:
                os.sched_yield()
            except ConnectionError:
                break


@pytest.mark.parametrize(("path", "frames"), FLOODS.values(), ids=FLOODS)
async def test_no_flood_of_small_frames_keeps_others_waiting(
    tmp_path: Path, path: str, frames: bytes
) -> None:
    async with listening(tmp_path) as (endpoint, turns):
        loop = asyncio.get_running_loop()

        async def once() -> None:
            def begin() -> None:
                loop.call_soon_threadsafe(turns.worst)

            await asyncio.to_thread(flood, endpoint, path, frames, begin)
            # What has been sent is parsed after a client has gone, too.
            await asyncio.sleep(0.05)

        worst = await turns.least_worst(once)
        print(f"{worst:.1f} ms")
        assert worst < TURN_MS_MAX
