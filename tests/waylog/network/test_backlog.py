"""Connections that come faster than they are accepted wait in the kernel and are not dropped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import astuple
from pathlib import Path

import pytest

from gateway.http import starting
from geoservice.web import listener as geoservice
from waylog.config import Endpoint
from waylog.network.acceptor import Acceptor
from waylog.network.bind_addresses import BACKLOG
from waylog.network.connection_pool import ConnectionPool

_ENDPOINT = Endpoint("127.0.0.1", 0)
_CONNECTIONS = 1_500


def _of_gateway() -> Acceptor:
    return starting.listen(_ENDPOINT, asyncio.Protocol, reuse_port=False)


def _of_geoservice() -> Acceptor:
    return geoservice.listen(asyncio.Protocol, _ENDPOINT, ConnectionPool(10_000))


@pytest.fixture
def room() -> None:
    if int(Path("/proc/sys/net/core/somaxconn").read_text()) < BACKLOG:
        pytest.skip("this system lets fewer connections wait (net.core.somaxconn)")


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("listen", [_of_gateway, _of_geoservice])
async def test_many_connect_while_nobody_accepts(
    listen: Callable[[], Acceptor],
) -> None:
    acceptor = listen()
    address = astuple(acceptor.address)
    with ExitStack() as stack:
        for _ in range(_CONNECTIONS):  # the event loop stands still meanwhile
            client = stack.enter_context(socket.create_connection(address, timeout=60))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    await acceptor.close()
