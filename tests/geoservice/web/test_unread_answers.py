"""Clients of the geocoder that ask for large batches and do not read the answers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web

from geoservice.reverse.geocoder import Geocoder
from geoservice.web.listener import Accept, listen
from geoservice.web.server import BATCH_POINTS_MAX, make_app
from tests.http_session import http_session
from tests.resident_memory import resident_kb
from waylog.config import Endpoint
from waylog.network.connection_pool import ConnectionPool

MEBIBYTE = 1024 * 1024
POINTS = [[47.0 + n * 1e-5, 9.5] for n in range(BATCH_POINTS_MAX)]


@asynccontextmanager
async def serving(geocoder: Geocoder) -> AsyncIterator[tuple[str, int]]:
    runner = web.AppRunner(make_app(geocoder), access_log=None)
    await runner.setup()
    acceptor = listen(
        cast(Accept, runner.server), Endpoint("127.0.0.1", 0), ConnectionPool(1_000, None)
    )
    yield "127.0.0.1", acceptor.address.port
    await acceptor.close()
    await runner.cleanup()


async def asked(address: tuple[str, int]) -> socket.socket:
    """Ask for a batch, and return the connection without reading the answer."""
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    connection.setblocking(False)
    await loop.sock_connect(connection, address)
    body = json.dumps(POINTS).encode()
    head = f"POST /reverse/batch HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    await loop.sock_sendall(connection, head.encode() + body)
    return connection


async def answer(address: tuple[str, int], points: list[Any]) -> tuple[int, Any]:
    async with (
        http_session() as session,
        session.post("http://{}:{}/reverse/batch".format(*address), json=points) as response,
    ):
        return response.status, await response.json(content_type=None)


async def test_answers_that_are_not_read_are_bounded(
    geocoder: Geocoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geoservice.web.server._UNREAD_BYTES_EACH_MAX", 16 * MEBIBYTE)
    async with serving(geocoder) as address, asyncio.timeout(120):
        status, read = await answer(address, POINTS)
        assert (status, len(read)) == (200, len(POINTS))
        before = resident_kb()
        with ExitStack() as connections:
            for _ in range(20):
                connections.enter_context(await asked(address))
            while (await answer(address, POINTS))[0] != 503:
                await asyncio.sleep(0.1)
            assert resident_kb() - before < 80_000
            # Small answers need no room.
            status, [vaduz] = await answer(address, [[47.141, 9.5209]])
            assert (status, vaduz["name"]) == (200, "Vaduz")
        while (await answer(address, POINTS))[0] != 200:
            await asyncio.sleep(0.1)
