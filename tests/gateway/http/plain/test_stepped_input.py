"""The bytes of a WebSocket on their way to aiohttp: complete, in order, held while it pauses."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from gateway.http.plain.stepped_input import SteppedInput
from gateway.limits.turn_clock import PartyTurns


class Inner(asyncio.Protocol):
    """Stands for aiohttp's protocol; keeps what it gets, and pauses now and then."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.got = b""
        self.pauses_at: list[int] = []
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.got += data
        if self.pauses_at and len(self.got) >= self.pauses_at[0]:
            self.pauses_at.pop(0)
            assert self.transport is not None
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Outer(asyncio.Protocol):
    """Puts the steps between the transport and the inner protocol when it is connected."""

    def __init__(self, inner: Inner) -> None:
        self.inner = inner
        self.stepped: SteppedInput | None = None

    def connection_made(self, transport: Any) -> None:
        self.stepped = SteppedInput(self.inner, transport, PartyTurns(), "a")
        self.inner.transport = self.stepped.transport

    def data_received(self, data: bytes) -> None:
        assert self.stepped is not None
        self.stepped.data_received(data)

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
