"""WebSockets of both kinds: pings are answered, pongs tell nothing, and parties share turns."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web

from gateway.http.listener import start_http
from gateway.limits.addresses import TrustedProxies
from gateway.limits.turn_clock import STRANGER, PartyTurns
from tests.gateway.mqtt.in_memory import Platform
from tests.gateway.parts import parts
from waylog.config import Endpoint

_MASK = b"\0\0\0\0"
PING = b"\x89\x85" + _MASK + b"hello"
ANSWER = b"\x8a\x05hello"
PONG = b"\x8a\x80" + _MASK

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Recorded(PartyTurns):
    """Turns that note which parties have asked for one."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[str] = set()

    def call_soon(self, party: str, callback: Callable[[], object] | asyncio.Future[None]) -> None:
        self.asked.add(party)
        super().call_soon(party, callback)


@asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[tuple[Endpoint, Recorded]]:
    """Run the HTTP listener, with MQTT over WebSocket, behind a proxy that it trusts."""
    platform, turns = Platform(), Recorded()
    async with parts(folder) as services, platform.listening():
        services.mqtt = platform.server
        services.turns = turns
        services.proxies = TrustedProxies(["127.0.0.1/32"])
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        try:
            yield server.endpoint, turns
        finally:
            await server.close()


async def handshake(endpoint: Endpoint, path: str, address: str = "192.0.2.1") -> Connection:
    """Open a WebSocket for a client whose address the proxy tells."""
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: {endpoint}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n"
        f"X-Forwarded-For: {address}\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    return reader, writer


@pytest.mark.parametrize("path", ["/v1/ws", "/mqtt"])
async def test_pings_are_answered_with_what_they_say_also_after_a_pong(
    tmp_path: Path, path: str
) -> None:
    async with listening(tmp_path) as (endpoint, _), asyncio.timeout(60):
        reader, writer = await handshake(endpoint, path)
        for _ in range(3):
            # A pong that nobody has asked for is allowed, and is not answered (RFC 6455, 5.5.3).
            writer.write(PONG + PING)
            await reader.readuntil(ANSWER)
        writer.close()


@pytest.mark.parametrize(
    ("path", "addresses", "parties"),
    [
        ("/v1/ws", ["192.0.2.1", "192.0.2.2"], {"anonymous"}),
        ("/mqtt", ["192.0.2.1", "192.0.2.2"], {f"{STRANGER}192.0.2.1", f"{STRANGER}192.0.2.2"}),
        ("/mqtt", ["2001:db8::1", "2001:db8::2"], {f"{STRANGER}2001:db8::/64"}),
    ],
)
async def test_a_user_or_a_network_is_one_party_however_many_connections_it_has(
    tmp_path: Path, path: str, addresses: list[str], parties: set[str]
) -> None:
    async with listening(tmp_path) as (endpoint, turns), asyncio.timeout(60):
        asked: set[str] = set()
        for address in addresses:
            reader, writer = await handshake(endpoint, path, address)
            turns.asked.clear()
            # Until more has come at once than is parsed in one turn.
            while not turns.asked:
                writer.write(PONG * 20_000 + PING)
                await reader.readuntil(ANSWER)
            asked |= turns.asked
            writer.close()
        assert asked == parties


async def test_what_looks_like_a_request_within_a_websocket_changes_nothing(tmp_path: Path) -> None:
    request = b"GET / HTTP/1.1\r\n"
    async with listening(tmp_path) as (endpoint, turns), asyncio.timeout(60):
        reader, writer = await handshake(endpoint, "/v1/ws")
        turns.asked.clear()
        while not turns.asked:
            # The answer tells that the beginning of the pong has been read, too.
            writer.write(PING + bytes((0x8A, 0x80 | len(request))) + _MASK)
            await reader.readuntil(ANSWER)
            writer.write(request + PONG * 20_000 + PING)
            await reader.readuntil(ANSWER)
        assert turns.asked == {"anonymous"}
        writer.close()


async def test_a_websocket_that_has_failed_takes_no_memory(tmp_path: Path) -> None:
    def sockets() -> int:
        return sum(type(each) is web.WebSocketResponse for each in gc.get_objects())

    async with listening(tmp_path) as (endpoint, _), asyncio.timeout(60):
        gc.collect()
        gc.disable()
        try:
            assert sockets() == 0
            reader, writer = await handshake(endpoint, "/v1/ws")
            assert sockets() == 1
            # A frame of a kind that does not exist.
            writer.write(b"\x83\x80" + _MASK)
            await reader.read()
            writer.close()
            while sockets():
                await asyncio.sleep(0.01)
        finally:
            gc.enable()


def binary_frame(payload: bytes) -> bytes:
    return bytes((0x82, 0x80 | len(payload))) + _MASK + payload


#: MQTT 3.1.1, client identifier "c".
CONNECT = binary_frame(b"\x10\x0d\0\4MQTT\4\2\0\0\0\1c")


def fail() -> None:
    raise KeyError("nobody has thought of this")


def cancel() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("end", [fail, cancel])
@pytest.mark.parametrize(("path", "first"), [("/v1/ws", b""), ("/mqtt", CONNECT)])
async def test_a_client_that_cannot_be_sent_anything_any_more_is_disconnected(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    first: bytes,
    end: Callable[[], None],
) -> None:
    async def fails(*_: object) -> None:
        end()

    for name in ("send_frame", "send_bytes"):  # of aiohttp
        monkeypatch.setattr(web.WebSocketResponse, name, fails)
    async with listening(tmp_path) as (endpoint, _), asyncio.timeout(60):
        reader, writer = await handshake(endpoint, path)
        writer.write(first)
        header = await reader.readexactly(4)
        assert header[0] == 0x88 and int.from_bytes(header[2:], "big") == 1011
        assert (await reader.readexactly(header[1] - 2)).startswith(b"an error of the gateway")
        writer.write(b"\x88\x80" + _MASK)
        # aiohttp does not wait for this answer; if it comes too late the connection is reset.
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
    assert caplog.text.count("sending to the client of a WebSocket failed") == 1
