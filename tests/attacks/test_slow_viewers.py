"""Viewers that do not read: their costs for the gateway, and for other readers."""

from __future__ import annotations

import asyncio
import base64
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.http.listener import HttpServer, start_http
from gateway.http.requests.services import Services
from gateway.limits.bounds import HttpLimits
from gateway.observability.exposition import exposition
from tests.attacks.workers import Workers, workers
from tests.consumers.running import Broker
from tests.gateway.parts import parts
from tests.gateway.records import fix, record
from tests.gateway.running import Login, json_of
from tests.resident_memory import resident_kb
from waylog.config import Endpoint
from waylog.observability.telemetry import now_ms


@asynccontextmanager
async def listening(
    folder: Path, limits: HttpLimits | None = None
) -> AsyncIterator[tuple[HttpServer, Services]]:
    async with parts(folder, limits=limits) as services:
        services.location_view.watch(services.viewers)
        services.location_view.on_caught_up()
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        yield server, services
        await server.close()


async def unread(endpoint: Endpoint, path: str, headers: bytes = b"") -> socket.socket:
    """Send a request, and return the connection without reading the answer."""
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.setblocking(False)
    await loop.sock_connect(connection, (endpoint.host, endpoint.port))
    request = b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\n%b\r\n" % (path.encode(), headers)
    await loop.sock_sendall(connection, request)
    return connection


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_fifty_unread_streams_cost_no_more_than_what_they_hold(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, services):
        sockets = [await unread(server.endpoint, "/v1/stream") for _ in range(50)]
        await eventually(lambda: len(services.viewers) == 50)
        before, cpu = resident_kb(), time.process_time()
        for number in range(20):
            batch = [
                record(fix(f"ada/{n % 50}", now_ms() + n, id=f"{number}-{n}"), 1000 * number + n)
                for n in range(1_000)
            ]
            services.location_view.on_records(batch)
            await asyncio.sleep(0)
        await asyncio.sleep(0.2)
        spent = time.process_time() - cpu
        # A million deliveries; one by one they took half a minute.
        assert spent < 8, f"{spent:.1f} s of CPU"
        assert resident_kb() - before < 40_000
        for each in sockets:
            each.close()
        await eventually(lambda: not len(services.viewers))


async def test_a_stream_that_is_not_read_is_cut_and_a_slow_one_is_not(tmp_path: Path) -> None:
    limits = HttpLimits(stalled_viewer_timeout_s=3.0)
    async with listening(tmp_path, limits) as (server, services):
        with (
            await unread(server.endpoint, "/v1/stream"),
            await unread(server.endpoint, "/v1/stream") as slow,
        ):
            await eventually(lambda: len(services.viewers) == 2)
            received = 0

            async def read_slowly() -> None:
                nonlocal received
                loop = asyncio.get_running_loop()
                while piece := await loop.sock_recv(slow, 4096):
                    received += len(piece)
                    await asyncio.sleep(0.001)

            reading = asyncio.create_task(read_slowly())
            offset = 0
            async with asyncio.timeout(60):
                while services.metrics.viewers_stalled < 1:
                    news = [record(fix(f"ada/{n}"), offset + n) for n in range(200)]
                    offset += len(news)
                    services.location_view.on_records(news)
                    await asyncio.sleep(0.05)
            reading.cancel()
            assert len(services.viewers) == 1
            assert received


async def test_a_user_cannot_open_streams_without_number(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, services):
        sockets = [await unread(server.endpoint, "/v1/stream") for _ in range(60)]
        await eventually(lambda: exposition(services.metrics).count(b'status="503"'))
        await eventually(lambda: len(services.viewers) == 50)
        for each in sockets:
            each.close()


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("viewers")
    with workers(folder, gateway_broker.address, 1) as running:
        yield running


async def test_resumes_that_are_not_read_hold_no_reader(gateway: Workers) -> None:
    """The viewer who still reads is another user first, and then the same."""
    ada, eve = gateway.user("viewer-ada"), gateway.user("viewer-eve")
    host, port = gateway.address
    for login in (ada, eve):
        async with gateway.client(login) as client:
            for part in range(16):
                batch = [
                    {
                        "lat": 1,
                        "lon": 2,
                        "time": now_ms() - 10_000 + n,
                        "attributes": {"note": "x" * 6_000},
                    }
                    for n in range(part * 125, part * 125 + 125)
                ]
                await json_of(await client.post("/v1/positions", json=batch))
    authorization = base64.b64encode(f"{eve.name}:{eve.token}".encode())
    header = b"Authorization: Basic %b\r\n" % authorization
    path = "/v1/stream?since=l0-0"
    stalled = [await unread(Endpoint(host, port), path, header) for _ in range(12)]
    await asyncio.sleep(1)
    for login in (ada, eve):
        assert await resumed(gateway, login) >= 2_000
    for each in stalled:
        each.close()


async def resumed(gateway: Workers, login: Login) -> int:
    """Return the number of fixes that a user gets who resumes a stream and reads it."""
    count = 0
    async with gateway.client(login) as client, asyncio.timeout(60):
        answer = await client.get("/v1/stream?since=l0-0")
        assert answer.status == 200
        async for line in answer.content:
            count += line == b"event: fix\n"
            if count == 2_000:
                break
        answer.close()
    return count
