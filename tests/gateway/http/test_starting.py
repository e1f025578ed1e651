"""The short answers of a gateway that starts, and the take-over by the real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from gateway.http.starting import CONNECTIONS_MAX, StartingServer
from tests.gateway.raw_http import ask, read_answer, request
from waylog.config import Endpoint

PROBLEMS = {"start": "waits for the log at nowhere:9"}


@asynccontextmanager
async def starting(*, proxy: bool = False) -> AsyncIterator[tuple[StartingServer, tuple[str, int]]]:
    server = StartingServer(lambda: PROBLEMS, lambda address: proxy and address == "127.0.0.1")
    server.start(Endpoint("127.0.0.1", 0))
    try:
        yield server, ("127.0.0.1", server.port)
    finally:
        await server.close()
        await asyncio.sleep(0)  # the connections close their sockets in the next turn of the loop


@asynccontextmanager
async def connected(
    address: tuple[str, int],
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


class RealServer(asyncio.Protocol):
    """The server that takes over: tells what it was sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def test_probes_are_answered_and_everything_else_is_put_off() -> None:
    async with starting() as (_, address):
        for path in ("/healthz", "/healthz?x=1"):
            alive = await ask(address, "GET", path)
            assert (alive.status, alive.body) == (200, b'{"status":"ok"}')
        ready = await ask(address, "GET", "/readyz")
        assert ready.status == 503
        assert msgspec.json.decode(ready.body) == {"status": "not ready", "parts": PROBLEMS}
        for method, path in (("GET", "/"), ("POST", "/healthz"), ("POST", "/v1/positions")):
            refused = await ask(address, method, path, body=b"{}" if method == "POST" else None)
            assert (refused.status, refused.headers["retry-after"]) == (503, "2")
            assert refused.headers["content-type"] == "application/json"
            why = "the gateway is starting (start: waits for the log at nowhere:9)"
            assert msgspec.json.decode(refused.body) == {"error": why}


async def test_the_answer_to_head_has_no_body() -> None:
    async with starting() as (_, address), connected(address) as (reader, writer):
        writer.write(request("HEAD", "/healthz"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ") and b"Content-Length: 15" in head
        assert await reader.read() == b""


async def test_who_still_sends_a_body_can_read_the_answer() -> None:
    async with starting() as (_, address), connected(address) as (reader, writer):
        writer.write(request("POST", "/v1/positions", body=bytes(8 * 1024 * 1024)))
        await writer.drain()
        assert (await read_answer(reader)).status == 503


async def test_headers_without_an_end_are_not_kept() -> None:
    async with starting() as (_, address), connected(address) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\n" + b"X-Much: much\r\n" * 2000)
        assert (await read_answer(reader)).status == 200


async def test_connections_that_say_nothing_do_not_keep_probes_out() -> None:
    async with starting() as (server, address), AsyncExitStack() as silent:
        oldest, _ = await silent.enter_async_context(connected(address))
        for _ in range(CONNECTIONS_MAX + 20):
            await silent.enter_async_context(connected(address))
        assert (await ask(address, "GET", "/healthz")).status == 200
        assert len(server.connections) <= CONNECTIONS_MAX
        async with asyncio.timeout(60):
            assert await _ended(oldest)


async def _ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def test_a_proxy_names_the_client_first() -> None:
    async with starting(proxy=True) as (_, address):
        async with connected(address) as (reader, writer):
            writer.write(b"PROXY TCP4 192.0.2.1 127.0.0.1 1 2\r\n")
            writer.write(request("GET", "/healthz"))
            assert (await read_answer(reader)).status == 200
        async with connected(address) as (reader, writer):
            writer.write(request("GET", "/healthz"))
            assert await _ended(reader)


async def test_the_real_server_takes_over_who_has_not_been_answered() -> None:
    # The beginning of a request, a PROXY header, or nothing.
    begun = (b"GET /x", b"PROXY ", b"")
    async with starting() as (server, address), AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(connected(address)) for _ in begun]
        for (_, writer), start in zip(connections, begun, strict=True):
            writer.write(start)
        # It is answered after what was sent before has come.
        assert (await ask(address, "GET", "/x")).status == 503
        listening = server.take_over(RealServer)
        for (reader, writer), start in zip(connections, begun, strict=True):
            writer.write(b" more")
            async with asyncio.timeout(60):
                assert await reader.readexactly(len(start) + 5) == start + b" more"
        await server.close()  # which is not the server of this port any more
        async with connected(address) as (reader, writer):
            writer.write(b"new")
            assert await reader.readexactly(3) == b"new"
        await listening.close()


async def test_the_real_server_gets_nothing_of_a_request_that_has_been_answered() -> None:
    taken_over: list[RealServer] = []

    def accept() -> RealServer:
        taken_over.append(RealServer())
        return taken_over[-1]

    async with starting() as (server, address):
        async with connected(address) as (reader, writer):
            writer.write(b"POST /v1/positions HTTP/1.1\r\nContent-Length: 100\r\n\r\n")
            assert (await read_answer(reader)).status == 503
            listening = server.take_over(accept)
            # It could be taken for a request of its own.
            writer.write(b"GET /of-the-body HTTP/1.1\r\n\r\n")
        # New connections come after the bytes of that one.
        async with connected(address) as (reader, writer):
            writer.write(b"new")
            assert await reader.readexactly(3) == b"new"
        assert len(taken_over) == 1
        await listening.close()
