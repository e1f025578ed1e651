"""A client that connects in the last moments of a server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

#: Iterations of the event loop between the client's connection and the stop: the server accepts it
#: in one, makes a transport in the next, and hands it to a protocol in a third. If negative, the
#: client connects so many iterations after the stop has begun.
TURNS = pytest.mark.parametrize("turns", range(-5, 6))


async def check_disconnected(
    address: tuple[str, int], stop: Callable[[], Awaitable[object]], turns: int
) -> None:
    """Connect, stop the server `turns` iterations of the loop later, and see the connection end.

    `stop` may be called again afterwards.
    """
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[object] | None = None
    if turns < 0:
        stopping = asyncio.ensure_future(stop())
        for _ in range(-turns):
            await asyncio.sleep(0)
    # Blocking, so that the server's loop does not run meanwhile.
    try:
        client = socket.create_connection(address)
    except ConnectionRefusedError:
        assert stopping is not None
        await stopping
        return
    with client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await (stop() if stopping is None else stopping)
        try:
            async with asyncio.timeout(60):
                while await loop.sock_recv(client, 4096):
                    pass
        except ConnectionError:
            pass
        except TimeoutError:
            pytest.fail(f"still connected, {turns} turns after it was accepted")
