"""TLS on accepted connections: handshakes take turns and end in time, and no data is lost."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import cast

import pytest
import trustme

from tests.event_loops import on_both_event_loops
from tests.tls_peer import TlsPeer
from waylog.network.tls.handshakes import HandshakeScheduler, TlsHandshake


class Echo(asyncio.Protocol):
    """A protocol that sends back what it gets."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast(asyncio.Transport, transport)
        server = self._server
        server.open.add(self)
        self.handshake = server.handshakes.begin(plain, server.context, server.party, self)
        if server.is_held:
            self.handshake.pause_reading()
        server.begun.append(self.handshake)

    def encrypted(self, transport: asyncio.Transport) -> Echo:
        self._transport = transport
        return self

    def failed(self, reason: str | None) -> None:
        self._server.failed.append(reason)
        self._server.open.remove(self)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.open.remove(self)


class Server:
    """A server that starts TLS on connections it has accepted and counted."""

    def __init__(self, timeout_s: float) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("localhost").configure_cert(self.context)
        self.handshakes = HandshakeScheduler(timeout_s)
        self.open: set[Echo] = set()
        self.begun: list[TlsHandshake] = []
        self.failed: list[str | None] = []
        self.is_held = False
        self.who = ""

    def party(self) -> str:
        return self.who

    async def connect(self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> TlsPeer:
        return await TlsPeer.connect("127.0.0.1", self.port, version)

    async def serve(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Echo(self), "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        return server


@contextlib.asynccontextmanager
async def serving(timeout_s: float = 60.0) -> AsyncIterator[Server]:
    server = Server(timeout_s)
    listening = await server.serve()
    try:
        yield server
        await eventually(lambda: not server.open)
    finally:
        listening.close()


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("pieces", [1, 3, 300])
@pytest.mark.parametrize("is_held", [False, True])
@on_both_event_loops
async def test_what_comes_with_the_end_of_a_handshake_is_read(
    version: ssl.TLSVersion, pieces: int, is_held: bool
) -> None:
    async with serving() as server:
        server.is_held = is_held
        peer = await server.connect(version)
        hello = peer.hello()
        size = -(-len(hello) // pieces)
        for start in range(0, len(hello), size):
            peer.writer.write(hello[start : start + size])
            await asyncio.sleep(0)
        if is_held:
            await eventually(lambda: bool(server.begun))
            server.begun[0].resume_reading()
        await peer.shake_hands(b"first")
        assert await peer.read(5) == b"first"
        await peer.close()


@on_both_event_loops
async def test_whoever_does_not_end_a_handshake_in_time_is_closed() -> None:
    async with serving(0.3) as server:
        silent, half, waiting = [await server.connect() for _ in range(3)]
        half.writer.write(half.hello()[:50])
        waiting.writer.write(waiting.hello())
        for peer in (silent, half, waiting):
            assert await peer.is_closed_by_peer()
            await peer.close()
    assert server.failed == ["no TLS handshake within 0.3 s"] * 3


@on_both_event_loops
async def test_one_that_is_held_is_not_answered_and_may_be_aborted() -> None:
    async with serving() as server:
        server.is_held = True
        peer = await server.connect()
        peer.writer.write(peer.hello())
        await eventually(lambda: bool(server.begun))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await peer.reader.read(1)
        server.begun[0].abort()
        assert await peer.is_closed_by_peer()
        await peer.close()
    assert server.failed == [None]


@on_both_event_loops
async def test_what_is_no_handshake_ends_with_a_reason() -> None:
    async with serving() as server:
        endless = b"\x16\x03\x01\x40\0\x01\xff\xff\xff".ljust(16_389) + b"\x16\x03\x01\x40\0"
        for said in (b"GET / HTTP/1.1\r\n\r\n", endless):
            peer = await server.connect()
            peer.writer.write(said)
            assert await peer.is_closed_by_peer()
            await peer.close()
    wrong, long = server.failed
    assert wrong is not None
    assert wrong.startswith("its TLS handshake failed: ")
    assert long == "its ClientHello is longer than 16384 bytes"


@on_both_event_loops
async def test_a_burst_of_one_party_keeps_no_other_waiting_and_leaves_the_loop_its_turns() -> None:
    async with serving() as server:
        server.is_held, server.who = True, "many"
        peers = [await server.connect() for _ in range(160)]
        for peer in peers:
            peer.writer.write(peer.hello())
        await eventually(lambda: len(server.begun) == len(peers))
        await asyncio.sleep(0.05)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        answers = [asyncio.create_task(peer.reader.read(1)) for peer in peers]
        for handshake in server.begun:
            handshake.resume_reading()
        server.is_held, server.who = False, "one"
        other = await server.connect()
        other.writer.write(other.hello())
        await other.shake_hands(b"me too")
        assert await other.read(6) == b"me too"
        assert not all(answer.done() for answer in answers)
        await asyncio.gather(*answers)
        counting.cancel()
        assert turns >= len(peers) / 8
        for peer in (other, *peers):
            peer.reset()


@on_both_event_loops
async def test_whoever_leaves_while_waiting_for_a_turn_is_forgotten() -> None:
    async with serving() as server:
        server.is_held = True
        peers = [await server.connect() for _ in range(60)]
        for peer in peers:
            peer.writer.write(peer.hello())
        await eventually(lambda: len(server.begun) == len(peers))
        await asyncio.sleep(0.05)
        for handshake in server.begun:
            handshake.resume_reading()
        for peer, handshake in zip(peers, server.begun, strict=True):
            handshake.abort()
            peer.reset()
        await eventually(lambda: not server.open)
        server.is_held = False
        other = await server.connect()
        other.writer.write(other.hello())
        await other.shake_hands(b"still here")
        assert await other.read(10) == b"still here"
        await other.close()
    assert server.failed == [None] * 60
