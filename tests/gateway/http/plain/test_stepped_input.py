"""The bytes of a WebSocket on their way to aiohttp: complete, in order, held while it pauses."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.http.plain.stepped_input import SteppedInput
from gateway.limits.turn_clock import TURN_S, PartyTurns


class Inner(asyncio.Protocol):
    """Stands for aiohttp's protocol; keeps what it gets, and pauses now and then."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.got = b""
        self.pauses_at: list[int] = []
        self.got_before_end: int | None = None
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.got += data
        if self.pauses_at and len(self.got) >= self.pauses_at[0]:
            self.pauses_at.pop(0)
            assert self.transport is not None
            self.transport.pause_reading()

    def eof_received(self) -> None:
        self.got_before_end = len(self.got)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Outer(asyncio.Protocol):
    """Puts the steps between the transport and the inner protocol when it is connected."""

    def __init__(self, inner: Inner, turns: PartyTurns | None = None) -> None:
        self.inner = inner
        self.turns = turns or PartyTurns()
        self.stepped: SteppedInput | None = None

    def connection_made(self, transport: Any) -> None:
        self.stepped = SteppedInput(self.inner, transport, self.turns, "a")
        self.inner.transport = self.stepped.inner_transport()

    def data_received(self, data: bytes) -> None:
        assert self.stepped is not None
        self.stepped.data_received(data)

    def eof_received(self) -> bool | None:
        assert self.stepped is not None
        return self.stepped.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        assert self.stepped is not None
        self.stepped.connection_lost(exc)


@pytest.mark.parametrize("seed", range(3))
async def test_everything_arrives_in_order_and_nothing_while_reading_is_paused(seed: int) -> None:
    randomness = random.Random(seed)
    inner = Inner()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Outer(inner), "127.0.0.1", 0)
    sent = randomness.randbytes(600_000)
    inner.pauses_at = sorted(randomness.sample(range(1, 500_000), 5))
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    pauses = len(inner.pauses_at)
    async with asyncio.timeout(60):
        for left in range(pauses - 1, -1, -1):
            while len(inner.pauses_at) > left:
                await asyncio.sleep(0)
            held = inner.got
            for _ in range(20):
                await asyncio.sleep(0)
            if len(inner.pauses_at) == left:
                assert inner.got == held
            assert inner.transport is not None
            inner.transport.resume_reading()
        while len(inner.got) < len(sent):
            await asyncio.sleep(0.001)
        assert inner.got == sent
        writer.close()
        while not inner.lost:
            await asyncio.sleep(0.001)
    server.close()
    await server.wait_closed()


async def test_the_end_comes_after_what_waits_for_its_turn() -> None:
    inner, turns = Inner(), PartyTurns()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Outer(inner, turns), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    while inner.transport is None:
        await asyncio.sleep(0)
    outer = turns.begin("a")
    until = time.perf_counter() + 20 * TURN_S
    while time.perf_counter() < until:
        pass
    turns.end("a", outer)
    writer.write(b"x" * 1_000)
    writer.write_eof()
    async with asyncio.timeout(60):
        while not inner.lost:
            await asyncio.sleep(0.001)
    assert inner.got_before_end == 1_000
    writer.close()
    server.close()
    await server.wait_closed()


#: So many bytes of each connection come at once in the tests below, which are several steps.
WAITING = b"x" * 40_000


class Slow(asyncio.Protocol):
    """Stands for aiohttp's protocol; works so long on what it gets that the turn is over."""

    def __init__(self) -> None:
        self.steps = 0
        self.got = 0
        self.lost_at: int | None = None

    def data_received(self, data: bytes) -> None:
        self.steps += 1
        self.got += len(data)
        until = time.perf_counter() + 2 * TURN_S
        while time.perf_counter() < until:
            pass

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_at = self.got


class Connection(asyncio.Protocol):
    """Puts the steps between a connection and a slow protocol."""

    def __init__(self, turns: PartyTurns, party: str) -> None:
        self.slow = Slow()
        self._turns = turns
        self._party = party

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport
        self.stepped = SteppedInput(self.slow, transport, self._turns, self._party)

    def data_received(self, data: bytes) -> None:
        self.stepped.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stepped.connection_lost(exc)


@contextmanager
def peers() -> Iterator[list[socket.socket]]:
    """Yield a list for the clients' ends of connections, which are closed at the end."""
    ends: list[socket.socket] = []
    yield ends
    for end in ends:
        end.close()


async def connected(ends: list[socket.socket], turns: PartyTurns, party: str) -> Connection:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ends.append(theirs)
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(turns, party), sock=ours
    )
    return connection


async def test_the_connections_of_a_party_share_its_turn_of_the_loop() -> None:
    turns = PartyTurns()
    with peers() as ends:
        many = [await connected(ends, turns, "many") for _ in range(5)]
        few = await connected(ends, turns, "few")
        for each in (*many, few):
            each.stepped.data_received(WAITING)
            # What comes meanwhile waits for its turn behind the rest.
            each.stepped.data_received(WAITING)
            assert not each.transport.is_reading()
        # A step takes longer than a turn.
        assert [each.slow.steps for each in (*many, few)] == [1, 0, 0, 0, 0, 1]
        async with asyncio.timeout(60):
            while not few.transport.is_reading():
                before = [sum(each.slow.steps for each in many), few.slow.steps]
                await asyncio.sleep(0)
                after = [sum(each.slow.steps for each in many), few.slow.steps]
                assert all(now <= then + 1 for now, then in zip(after, before, strict=True))
            assert not all(each.transport.is_reading() for each in many)
            while not all(each.transport.is_reading() for each in many):
                await asyncio.sleep(0)
        assert {each.slow.got for each in (*many, few)} == {2 * len(WAITING)}
        for each in (*many, few):
            each.transport.abort()


async def test_what_waits_is_dropped_with_its_connection() -> None:
    turns = PartyTurns()
    with peers() as ends:
        connections = [await connected(ends, turns, "a") for _ in range(5)]
        for each in connections:
            each.stepped.data_received(WAITING)
        lost = connections[-1]
        # Its turn is after those of the others, and comes when it is lost.
        lost.transport.abort()
        async with asyncio.timeout(60):
            while not all(each.slow.steps for each in connections[:-1]):
                await asyncio.sleep(0)
            for _ in range(30):
                await asyncio.sleep(0)
        assert lost.slow.lost_at == lost.slow.got == 0
        for each in connections[:-1]:
            each.transport.abort()


async def test_nothing_is_passed_on_after_the_server_has_closed_the_connection() -> None:
    with peers() as ends:
        connection = await connected(ends, PartyTurns(), "a")
        # The client does not read, so that closing takes as long as it likes.
        connection.transport.write(b"x" * 10_000_000)
        connection.stepped.data_received(WAITING)
        connection.transport.close()
        for _ in range(20):
            await asyncio.sleep(0)
        # The steps of the turn that was due then may be taken, of ten in all.
        assert connection.slow.steps <= 4
        assert connection.slow.lost_at is None
        connection.transport.abort()
