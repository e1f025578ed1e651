"""Clients are disconnected that read nothing for a while, and no others.

The clock of the loop stands still until a test moves it on, so that no load of the machine matters.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from waylog.network.reading_watch import ReadingWatch, unread_bytes

TIMEOUT_S = 60.0
SIZE = 16 * 1024 * 1024
_RECEIVED_AHEAD = 64 * 1024


class ManualClock(asyncio.SelectorEventLoop):
    """An event loop whose time is set by hand."""

    now = 0.0

    def time(self) -> float:
        return self.now


def run(test: Callable[[ManualClock], Awaitable[None]]) -> None:
    loop = ManualClock()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))

    async def tested() -> None:
        await test(loop)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(tested())
    assert not errors


async def pass_time(loop: ManualClock, seconds: float) -> None:
    loop.now += seconds
    for _ in range(5):
        await asyncio.sleep(0)


async def read_until_more_is_sent(client: socket.socket, transport: asyncio.WriteTransport) -> None:
    before = unread_bytes(transport)
    assert before > 0
    while unread_bytes(transport) >= before:
        with suppress(BlockingIOError):
            client.recv(4096)
        await asyncio.to_thread(time.sleep, 0.001)


async def settled(transport: asyncio.WriteTransport) -> None:
    """Wait until the kernel takes no more of what has been written."""
    last, same = -1, 0
    while same < 50:
        await asyncio.to_thread(time.sleep, 0.002)
        left = unread_bytes(transport)
        last, same = left, same + 1 if left == last else 0


@asynccontextmanager
async def connected(
    loop: asyncio.AbstractEventLoop,
) -> AsyncIterator[tuple[socket.socket, asyncio.WriteTransport]]:
    """Yield a client's socket and the transport that writes to it."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_AHEAD)
        client.connect(server.getsockname())
        made, _ = server.accept()
        transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, made)
        client.setblocking(False)
        yield client, cast(asyncio.WriteTransport, transport)
        transport.abort()
        await asyncio.sleep(0)


def test_who_reads_a_little_in_each_period_stays_and_who_stops_is_disconnected() -> None:
    async def test(loop: ManualClock) -> None:
        async with connected(loop) as (client, transport):
            with ReadingWatch(transport, TIMEOUT_S) as watch:
                watch.written += SIZE
                transport.write(bytes(SIZE))
                for _ in range(4):
                    await settled(transport)
                    # The kernel holds a part of it.
                    assert unread_bytes(transport) > transport.get_write_buffer_size() > 0
                    await pass_time(loop, TIMEOUT_S / 2)
                    await pass_time(loop, TIMEOUT_S / 4)
                    assert not transport.is_closing()
                    await read_until_more_is_sent(client, transport)
                    await pass_time(loop, TIMEOUT_S / 4)
                await settled(transport)
                for _ in range(4):
                    await pass_time(loop, TIMEOUT_S / 2)
                assert watch.has_disconnected
                assert transport.is_closing()

    run(test)


def test_nobody_is_disconnected_before_the_timeout() -> None:
    async def test(loop: ManualClock) -> None:
        async with connected(loop) as (_, transport):
            with ReadingWatch(transport, TIMEOUT_S) as watch:
                await pass_time(loop, TIMEOUT_S * 0.99)
                await pass_time(loop, 0)
                assert not watch.has_disconnected
                for _ in range(2):
                    await pass_time(loop, TIMEOUT_S / 2)
                assert watch.has_disconnected

    run(test)


def test_a_connection_stays_after_all_has_been_sent() -> None:
    async def test(loop: ManualClock) -> None:
        async with connected(loop) as (_, transport):
            with ReadingWatch(transport, TIMEOUT_S) as watch:
                watch.written += 5
                transport.write(b"hello")
            for _ in range(10):
                await pass_time(loop, TIMEOUT_S)
            assert not watch.has_disconnected
            assert not transport.is_closing()

    run(test)


def test_a_connection_that_ends_meanwhile_is_no_error() -> None:
    async def test(loop: ManualClock) -> None:
        async with connected(loop) as (_, transport):
            with ReadingWatch(transport, TIMEOUT_S):
                transport.write(bytes(SIZE))
                transport.abort()
                for _ in range(4):
                    await pass_time(loop, TIMEOUT_S / 2)
            assert unread_bytes(transport) == 0
        assert unread_bytes(None) == 0

    run(test)
