"""Slow, greedy and numerous clients, and a log that does not answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from gateway.http.listener import HttpServer, start_http
from gateway.http.plain.shared_state import SharedState
from gateway.limits.bounds import HttpLimits
from tests.gateway.parts import parts
from tests.gateway.records import MemoryLog
from waylog.config import Endpoint
from waylog.messages import decode_fix


@asynccontextmanager
async def listening(
    folder: Path, limits: HttpLimits, log: MemoryLog | None = None
) -> AsyncIterator[HttpServer]:
    async with parts(folder, log=log, limits=limits) as services:
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        yield server
        await server.close()


async def exchange(server: HttpServer, *sent: bytes) -> bytes:
    """Send the parts; return everything received until the connection is closed."""
    reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
    try:
        for part in sent:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


def post(body: bytes, length: int | None = None, more: bytes = b"") -> bytes:
    size = len(body) if length is None else length
    return b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b" % (
        size,
        more,
        body,
    )


async def test_headers_that_never_end_cost_the_connection(tmp_path: Path) -> None:
    async with listening(tmp_path, HttpLimits(header_timeout_s=0.3)) as server:
        assert await exchange(server, b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ") == b""


async def test_a_body_that_never_comes_is_answered_with_408(tmp_path: Path) -> None:
    async with listening(tmp_path, HttpLimits(body_timeout_s=0.3)) as server:
        answer = await exchange(server, post(b"{", length=100, more=b"Connection: close\r\n"))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"error"' in answer


async def test_connections_beyond_the_limit_are_told(tmp_path: Path) -> None:
    async with listening(tmp_path, HttpLimits(connections_max=2)) as server:
        host, port = server.endpoint.host, server.endpoint.port
        held = [await asyncio.open_connection(host, port) for _ in range(2)]
        for reader, writer in held:
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        answer = await exchange(server)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"\r\nRetry-After: " in answer
        assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"error": "too many connections"}
        for _, writer in held:
            writer.close()


async def test_large_bodies_share_a_budget(tmp_path: Path) -> None:
    limits = HttpLimits(all_body_bytes_max=300_000)
    async with listening(tmp_path, limits, MemoryLog()) as server:
        host, port = server.endpoint.host, server.endpoint.port
        _, held = await asyncio.open_connection(host, port)
        held.write(post(b"[", length=200_000))
        await held.drain()
        close = b"Connection: close\r\n"
        async with asyncio.timeout(60):
            while True:
                answer = await exchange(server, post(b" " * 200_000, more=close))
                if not answer.startswith(b"HTTP/1.1 200"):
                    break
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"too many large requests" in answer
        held.close()


async def test_a_log_that_does_not_answer_is_503_and_the_repeat_waits_for_the_same_append(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    request = post(b'{"lat":1,"lon":2,"time":1795000000000}', more=b"Connection: close\r\n")
    async with listening(tmp_path, HttpLimits(append_timeout_s=0.2), log) as server:
        answer = await exchange(server, request)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"Retry-After" in answer
        assert b"does not answer" in answer
        repeat = asyncio.create_task(exchange(server, request))
        async with asyncio.timeout(60):
            while not log.appended:
                await asyncio.sleep(0)
        log.acknowledge()
        assert (await repeat).startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))
        assert (await exchange(server, request)).startswith(b"HTTP/1.1 200")
    ((topic, _, value, _),) = log.appended
    assert (topic, decode_fix(value).lat) == ("location", 1)


async def test_a_plain_request_that_the_log_does_not_store_in_time_is_503(tmp_path: Path) -> None:
    log = MemoryLog()
    async with (
        asyncio.timeout(60),
        listening(tmp_path, HttpLimits(append_timeout_s=0.2), log) as server,
    ):
        reader, writer = await asyncio.open_connection(server.endpoint.host, server.endpoint.port)
        writer.write(post(b'{"lat":1,"lon":2,"time":1795000000000}'))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 503")
        assert log.appended
        writer.close()
        log.acknowledge()


async def test_the_first_answer_of_a_server_has_its_date(tmp_path: Path) -> None:
    async with parts(tmp_path) as services:
        shared = SharedState(services, asyncio.Protocol)
        # A connection that it takes over may be answered before the loop comes to anything else.
        now = parsedate_to_datetime(shared.date.decode())
        assert abs((datetime.now(UTC) - now).total_seconds()) < 60
