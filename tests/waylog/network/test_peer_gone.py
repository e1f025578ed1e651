"""Connections of which nothing is read: has the peer gone?"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
import uvloop

from tests.gateway.mqtt.in_memory import eventually
from waylog.network.peer_gone import has_gone
from waylog.network.stop_accepting import stop_accepting


class Unread(asyncio.Protocol):
    """Reads nothing."""

    def __init__(self) -> None:
        self.transport: asyncio.Future[asyncio.Transport] = asyncio.Future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop begins to read after this method, even if reading has been paused in it.
        asyncio.get_running_loop().call_soon(self._pause, transport)

    def _pause(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)
        made.pause_reading()
        self.transport.set_result(made)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[socket.socket, asyncio.Transport]]:
    """Return a client's socket, and the server's transport of the connection."""
    protocol = Unread()
    server = await asyncio.get_running_loop().create_server(lambda: protocol, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        transport = await protocol.transport
        yield client, transport
        transport.abort()
    await stop_accepting(server)


async def check_a_peer() -> None:
    async with connected() as (client, transport):
        client.sendall(b"x" * 1000)
        assert not has_gone(transport)
        client.close()
        await eventually(lambda: has_gone(transport))
    async with connected() as (client, transport):
        # With this, closing resets the connection.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        await eventually(lambda: has_gone(transport))
    assert not has_gone(None)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_peer_that_closes_its_connection_has_gone(loop: object) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(check_a_peer())
