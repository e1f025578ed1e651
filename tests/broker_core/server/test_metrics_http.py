"""The server of the metrics: who keeps its connections open, which paths there are, and its end."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

import pytest

from broker_core.server.metrics_http import MetricsServer
from waylog.config import Endpoint
from waylog.network.connection_pool import ConnectionPool
from waylog.supervision.reserved_ports import ReservedPorts

METRICS = b"GET /metrics HTTP/1.1\r\n\r\n"

Render = Callable[[], Coroutine[None, None, tuple[str, bytes]]]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def few() -> tuple[str, bytes]:
    return "text/plain", b"few\n"


async def page() -> bytes:
    return b"page"


@asynccontextmanager
async def listening(
    render: Render = few,
    *,
    problems: dict[str, str] | None = None,
    token: str | None = None,
    connections: ConnectionPool | None = None,
) -> AsyncIterator[tuple[Endpoint, MetricsServer]]:
    server = MetricsServer(
        render, lambda: problems or {}, token=token, page=page, connections=connections
    )
    endpoint = server.start(Endpoint("127.0.0.1", 0))
    try:
        async with asyncio.timeout(60):
            yield endpoint, server
    finally:
        await server.close()


async def connect(endpoint: Endpoint, request: bytes = b"") -> Connection:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    writer.write(request)
    return reader, writer


async def rest_of(connection: Connection) -> bytes:
    """Return what comes before the server ends the connection."""
    reader, writer = connection
    received = bytearray()
    try:
        while data := await reader.read(1 << 16):
            received += data
    except ConnectionError:
        pass
    writer.close()
    return bytes(received)


async def ask(endpoint: Endpoint, request: bytes = METRICS) -> bytes:
    return await rest_of(await connect(endpoint, request))


def status(answer: bytes) -> bytes:
    return answer.split(b" ")[1]


async def test_whose_connection_has_ended_makes_room_for_the_next_one() -> None:
    whole = ConnectionPool(1)
    async with listening(connections=whole) as (endpoint, _):
        for _ in range(3):
            assert status(await ask(endpoint)) == b"200"
        silent = await connect(endpoint)
        while not whole.is_full:
            await asyncio.sleep(0)
        # The process has no room for another connection, and does not keep it waiting.
        assert await ask(endpoint) == b""
        silent[1].close()
        while whole.is_full:
            await asyncio.sleep(0)
        assert status(await ask(endpoint)) == b"200"
    assert whole.used == 0


async def test_nothing_is_kept_of_those_who_have_been_answered() -> None:
    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, asyncio.StreamWriter) for each in gc.get_objects())

    async with listening() as (endpoint, _):
        await ask(endpoint)
        before = kept()
        for _ in range(20):
            await ask(endpoint)
        assert kept() < before + 10


async def test_who_is_silent_or_does_not_read_loses_the_connection() -> None:
    async def large() -> tuple[str, bytes]:
        return "text/plain", bytes(32_000_000)

    whole = ConnectionPool(10)
    async with listening(large, connections=whole) as (endpoint, _):
        unread = await connect(endpoint, METRICS)
        unread[1].transport.pause_reading()  # type: ignore[attr-defined]
        silent = await connect(endpoint)
        assert await rest_of(silent) == b""
        while whole.used:
            await asyncio.sleep(0.01)
        unread[1].transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await rest_of(unread)) < 32_000_000


async def test_who_asks_while_the_metrics_fail_does_not_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail() -> tuple[str, bytes]:
        raise LookupError

    async with listening(fail) as (endpoint, _):
        assert await ask(endpoint) == b""
        assert status(await ask(endpoint, b"GET /healthz HTTP/1.1\r\n\r\n")) == b"200"
    assert "could not be answered" in caplog.text


async def test_who_asks_meanwhile_shares_the_answer() -> None:
    begun = 0
    may_end = asyncio.Event()

    async def slow() -> tuple[str, bytes]:
        nonlocal begun
        begun += 1
        await may_end.wait()
        return "text/plain", b"%d\n" % begun

    whole = ConnectionPool(10)
    async with listening(slow, connections=whole) as (endpoint, _):
        impatient = await connect(endpoint, METRICS)
        while not begun:
            await asyncio.sleep(0)
        others = [await connect(endpoint, METRICS) for _ in range(3)]
        while whole.used < 4:
            await asyncio.sleep(0)
        # Probes do not wait.
        assert status(await ask(endpoint, b"GET /healthz HTTP/1.1\r\n\r\n")) == b"200"
        impatient[1].close()
        may_end.set()
        for each in others:
            assert (await rest_of(each)).endswith(b"\r\n1\n")
        assert (await ask(endpoint)).endswith(b"\r\n2\n")


async def test_metrics_that_are_collected_end_with_the_server() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless() -> tuple[str, bytes]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with listening(endless) as (endpoint, server):
        waiting = await connect(endpoint, METRICS)
        await begun.wait()
        await server.close()
        assert await rest_of(waiting) == b""
        await ended.wait()


async def test_open_connections_end_with_the_server() -> None:
    whole = ConnectionPool(10)
    async with listening(connections=whole) as (endpoint, server):
        with socket.create_connection((endpoint.host, endpoint.port)) as client:
            client.setblocking(False)
            while not whole.used:
                await asyncio.sleep(0)
            await server.close()
            # Much less than the time that a client may be silent.
            for _ in range(100):
                await asyncio.sleep(0)
            with suppress(ConnectionError):
                assert client.recv(1) == b""


@pytest.mark.parametrize("path", [b"/healthz", b"/readyz"])
async def test_probes_are_told_of_problems_without_a_token(path: bytes) -> None:
    request = b"GET %b HTTP/1.1\r\n\r\n" % path
    async with listening(token="secret") as (endpoint, _):
        answer = await ask(endpoint, request)
        assert status(answer) == b"200"
        assert answer.endswith(b"\r\n\r\nok\n")
    async with listening(token="secret", problems={"storage": "full"}) as (endpoint, _):
        answer = await ask(endpoint, request)
        assert status(answer) == b"503"
        assert answer.endswith(b"\r\n\r\nstorage: full\n")


async def test_the_head_of_an_answer_can_be_had_alone() -> None:
    async with listening() as (endpoint, _):
        whole = await ask(endpoint)
        alone = await ask(endpoint, METRICS.replace(b"GET", b"HEAD"))
        assert alone == whole.partition(b"few")[0]
        assert b"\r\nContent-Length: 4\r\n" in alone


@pytest.mark.parametrize(
    ("path", "code"),
    [(b"/metrics?name[]=up", b"200"), (b"/?x", b"200"), (b"/metric", b"404"), (b"/a b", b"405")],
)
async def test_a_query_does_not_matter_and_another_path_does(path: bytes, code: bytes) -> None:
    async with listening() as (endpoint, _):
        assert status(await ask(endpoint, b"GET %b HTTP/1.1\r\n\r\n" % path)) == code


async def test_a_port_that_is_held_for_this_process_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ReservedPorts() as ports:
        endpoint = ports.settle(Endpoint("127.0.0.1", 0))
        for name, value in ports.environment().items():
            monkeypatch.setenv(name, value)
        server = MetricsServer(few, dict)
        assert server.start(endpoint) == endpoint
        await server.close()
