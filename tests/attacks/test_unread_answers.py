"""Clients that ask for large answers and do not read them: what they cost, and whom."""

from __future__ import annotations

import asyncio
import base64
import io
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import uvloop

from gateway.http.listener import HttpServer, start_http
from gateway.http.requests.services import Services
from gateway.limits.bounds import MEBIBYTE, HttpLimits
from tests.attacks.test_event_loop import AcknowledgingLog
from tests.gateway.parts import parts
from tests.gateway.records import MemoryLog, fix, record
from tests.http_session import http_session
from tests.resident_memory import resident_kb
from waylog.config import Endpoint
from waylog.observability.telemetry import now_ms

LIMITS = HttpLimits(unread_bytes_max=64 * MEBIBYTE, unread_bytes_each_max=16 * MEBIBYTE)
#: Devices of each user in the list of devices, which has some 4 MiB.
DEVICES = 1_000
NOTE = "x" * 4_000

DEVICES_ASKED = "GET /v1/devices HTTP/1.1\r\n"
BAD = b"[" + b",".join([b'{"id":"%b"}' % (b"y" * 200)] * 9_000) + b"]"


@asynccontextmanager
async def listening(
    folder: Path, limits: HttpLimits = LIMITS, log: MemoryLog | None = None
) -> AsyncIterator[tuple[HttpServer, Services]]:
    async with parts(folder, log=log, limits=limits) as services:
        for start in range(0, DEVICES, 25):
            services.location_view.on_records(
                [
                    record(fix(f"{user}/d{n:04}", now_ms(), attributes={"note": NOTE}), n)
                    for n in range(start, start + 25)
                    for user in ("ada", "eve")
                ]
            )
            await asyncio.sleep(0)
        for view in (services.location_view, services.address_view):
            view.on_caught_up()
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        try:
            yield server, services
        finally:
            await server.close()


def basic(user: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:any".encode()).decode()


async def asked(endpoint: Endpoint, user: str, request: str = DEVICES_ASKED) -> socket.socket:
    """Send a request, and return the connection without reading the answer."""
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    connection.setblocking(False)
    await loop.sock_connect(connection, (endpoint.host, endpoint.port))
    head = f"{request}Host: 127.0.0.1\r\nAuthorization: {basic(user)}\r\n\r\n"
    await loop.sock_sendall(connection, head.encode())
    return connection


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def read(connection: socket.socket, size: int) -> bytes:
    received = await asyncio.get_running_loop().sock_recv(connection, size)
    assert received, "disconnected"
    return received


def answered(services: Services, status: int) -> int:
    return sum(
        count for (_, answer), count in services.metrics.requests.items() if answer == status
    )


async def listed(session: aiohttp.ClientSession, endpoint: Endpoint, user: str) -> int:
    """Return the number of devices in the list, or -1 if the answer is 503."""
    headers = {"Authorization": basic(user)}
    async with session.get(f"http://{endpoint}/v1/devices", headers=headers) as answer:
        if answer.status == 503:
            return -1
        assert answer.status == 200
        return len(await answer.json())


async def test_answers_that_one_user_does_not_read_are_bounded(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, services), http_session() as session:
        before = resident_kb()
        with ExitStack() as connections:
            for _ in range(25):
                connections.enter_context(await asked(server.endpoint, "eve"))
            await eventually(lambda: answered(services, 503) > 0)
            await asyncio.sleep(0.5)
            assert services.unread.held_by("eve") <= LIMITS.unread_bytes_each_max
            assert resident_kb() - before < 80_000
            assert await listed(session, server.endpoint, "ada") == DEVICES
        await eventually(lambda: not services.unread.used)
        assert await listed(session, server.endpoint, "eve") == DEVICES


async def test_who_reads_nothing_is_disconnected_and_who_reads_slowly_is_not(
    tmp_path: Path,
) -> None:
    limits = HttpLimits(stalled_answer_timeout_s=2.0)
    async with listening(tmp_path, limits) as (server, services):
        with (
            await asked(server.endpoint, "eve"),
            await asked(server.endpoint, "eve") as slow,
        ):
            received = b""
            async with asyncio.timeout(60):
                while not services.metrics.answers_stalled:
                    received += await read(slow, 16 * 1024)
                    await asyncio.sleep(0.05)
                assert received.startswith(b"HTTP/1.1 200 OK")
                while not received.endswith(b"]"):
                    received += await read(slow, MEBIBYTE)
            assert services.metrics.answers_stalled == 1
            head, _, content = received.partition(b"\r\n\r\n")
            assert f"Content-Length: {len(content)}".encode() in head
            await eventually(lambda: not services.unread.used)


@pytest.mark.parametrize("count", [1, 3])
async def test_who_sends_no_more_gets_all_of_the_answers(tmp_path: Path, count: int) -> None:
    async with listening(tmp_path, HttpLimits()) as (server, services):
        with await asked(server.endpoint, "eve") as connection:
            loop = asyncio.get_running_loop()
            head = f"{DEVICES_ASKED}Host: 127.0.0.1\r\nAuthorization: {basic('eve')}\r\n\r\n"
            await loop.sock_sendall(connection, head.encode() * (count - 1))
            received = await read(connection, 16 * 1024)
            connection.shutdown(socket.SHUT_WR)
            await asyncio.sleep(0.1)
            async with asyncio.timeout(60):
                while more := await loop.sock_recv(connection, MEBIBYTE):
                    received += more
        assert received.count(b"HTTP/1.1 200 OK") == count
        sizes = [int(each.split(b"\r\n")[0]) for each in received.split(b"Content-Length: ")[1:]]
        assert len(received) > sum(sizes) == count * sizes[0]
        assert received.endswith(b"]")
        await eventually(lambda: not services.unread.used)


async def read_answer(connection: socket.socket) -> int:
    """Read one answer; return its length."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += await read(connection, MEBIBYTE)
    head, _, body = received.partition(b"\r\n\r\n")
    size = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    while len(body) < size:
        body += await read(connection, MEBIBYTE)
    return len(body)


async def test_requests_that_wait_for_their_users_turn_are_answered_though_no_more_come(
    tmp_path: Path,
) -> None:
    request = "GET /v1/devices?limit=20 HTTP/1.1\r\n"
    async with listening(tmp_path, HttpLimits()) as (server, _):
        loop = asyncio.get_running_loop()

        async def listing(session: aiohttp.ClientSession) -> None:
            while True:
                assert await listed(session, server.endpoint, "eve") == DEVICES

        with ExitStack() as stack:
            connections = [
                stack.enter_context(await asked(server.endpoint, "eve", request))
                for _ in range(100)
            ]
            async with (
                asyncio.timeout(120),
                asyncio.TaskGroup() as group,
                http_session() as session,
            ):
                busy = [group.create_task(listing(session)) for _ in range(4)]
                first = await asyncio.gather(*map(read_answer, connections))
                head = f"{request}Host: 127.0.0.1\r\nAuthorization: {basic('eve')}\r\n\r\n"
                for connection in connections:
                    await loop.sock_sendall(connection, head.encode())
                    connection.shutdown(socket.SHUT_WR)
                assert await asyncio.gather(*map(read_answer, connections)) == first
                for each in busy:
                    each.cancel()


async def test_a_connection_goes_on_after_a_large_answer_and_its_head(tmp_path: Path) -> None:
    async with listening(tmp_path) as (server, services), http_session() as session:
        url = f"http://{server.endpoint}/v1/devices"
        headers = {"Authorization": basic("ada")}
        async with session.head(url, headers=headers) as answer:
            assert answer.status == 200
            size = answer.content_length
        for _ in range(3):
            async with session.get(url, headers=headers) as answer:
                assert answer.headers["Cache-Control"] == "no-store"
                assert answer.content_type == "application/json"
                assert len(await answer.read()) == answer.content_length == size
        assert not services.unread.used


async def test_a_long_list_of_refused_items_comes_whole(tmp_path: Path) -> None:
    async with (
        listening(tmp_path, log=AcknowledgingLog()) as (server, services),
        http_session() as session,
    ):
        url = f"http://{server.endpoint}/v1/positions"
        headers = {"Authorization": basic("ada")}
        async with session.post(url, data=io.BytesIO(BAD), headers=headers) as answer:
            assert answer.status == 200
            told = await answer.json()
            assert [each["index"] for each in told["rejected"]] == list(range(9_000))
        assert not services.unread.used


async def test_a_list_of_devices_ends_where_it_becomes_too_large(tmp_path: Path) -> None:
    async with listening(tmp_path, HttpLimits()) as (server, services), http_session() as session:
        for start in range(0, 2_000, 50):
            services.location_view.on_records(
                [
                    record(fix(f"ada/e{n:04}", now_ms(), attributes={"note": NOTE * 4}), n)
                    for n in range(start, start + 50)
                ]
            )
        url = f"http://{server.endpoint}/v1/devices"
        headers = {"Authorization": basic("ada")}
        names: list[str] = []
        after, pages = "", 0
        while after or not pages:
            parameters = {"after": after}
            async with session.get(url, params=parameters, headers=headers) as answer:
                assert answer.status == 200
                names += [row["device"] for row in await answer.json()]
                after = answer.headers.get("Waylog-More-After", "").replace("%2F", "/")
            pages += 1
        assert pages > 1
        assert names == sorted(set(names))
        assert len(names) == DEVICES + 2_000


def test_who_sends_no_more_while_waiting_for_a_turn_is_answered_on_uvloop_too(
    tmp_path: Path,
) -> None:
    """Once a client has closed its side, uvloop's transport says that it does not read."""

    async def main() -> None:
        request = "GET /v1/devices?limit=2 HTTP/1.1\r\n"
        async with (
            listening(tmp_path, HttpLimits()) as (server, _),
            asyncio.timeout(60),
            asyncio.TaskGroup() as group,
            http_session() as session,
        ):

            async def listing() -> None:
                while True:
                    assert await listed(session, server.endpoint, "eve") == DEVICES

            async def ask() -> None:
                with await asked(server.endpoint, "eve", request) as connection:
                    connection.shutdown(socket.SHUT_WR)
                    assert await read_answer(connection) > 8_000

            busy = [group.create_task(listing()) for _ in range(4)]
            for _ in range(5):
                await asyncio.gather(*(ask() for _ in range(40)))
            for each in busy:
                each.cancel()

    uvloop.run(main())
