"""The bound on the head of a request, over connections that carry several requests."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.http.listener import start_http
from gateway.http.plain.plain_connection import PlainConnection
from gateway.limits.bounds import HttpLimits
from tests.gateway.parts import parts
from tests.gateway.records import MemoryLog
from waylog.config import Endpoint

HEAD_BYTES_MAX = 1_000
#: A short request that the complete server answers, in two pieces.
BEGIN, REST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Mo", b"re: 1\r\n\r\n"

#: The head of a request whose body is too large for a simple one.
LARGE_POST = b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nContent-Length: 40000\r\n\r\n"

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listening(folder: Path, log: MemoryLog | None = None) -> AsyncIterator[Endpoint]:
    limits = HttpLimits(head_bytes_max=HEAD_BYTES_MAX)
    async with asyncio.timeout(60), parts(folder, log=log, limits=limits) as services:
        server = await start_http(Endpoint("127.0.0.1", 0), services, "test")
        try:
            yield server.endpoint
        finally:
            await server.close()


async def connect(endpoint: Endpoint) -> Connection:
    return await asyncio.open_connection(endpoint.host, endpoint.port)


async def status(reader: asyncio.StreamReader) -> bytes:
    """Return the status of the next response, and read all of it."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    await reader.readexactly(int(length or b"0"))
    return head.split(b" ")[1]


async def until_read(endpoint: Endpoint) -> None:
    """Wait until the server has read what came over other connections before."""
    for _ in range(2):
        reader, writer = await connect(endpoint)
        writer.write(BEGIN + REST)
        assert await status(reader) == b"200"
        writer.close()


async def test_the_end_of_a_body_does_not_count_for_the_next_head(tmp_path: Path) -> None:
    async with listening(tmp_path) as endpoint:
        reader, writer = await connect(endpoint)
        writer.write(LARGE_POST + b" " * 40_000)
        assert await status(reader) == b"400"
        writer.write(BEGIN)
        await until_read(endpoint)
        writer.write(REST)
        assert await status(reader) == b"200"
        writer.close()


async def test_a_request_behind_a_refused_upgrade_may_be_followed_by_one_in_pieces(
    tmp_path: Path,
) -> None:
    async with listening(tmp_path) as endpoint:
        reader, writer = await connect(endpoint)
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + upgrade + BEGIN + REST)
        assert [await status(reader) for _ in range(2)] == [b"200", b"200"]
        writer.write(BEGIN)
        await until_read(endpoint)
        writer.write(REST)
        assert await status(reader) == b"200"
        writer.close()


async def test_a_head_in_pieces_may_follow_a_long_pipeline(tmp_path: Path) -> None:
    async with listening(tmp_path) as endpoint:
        reader, writer = await connect(endpoint)
        count = 200
        writer.write((BEGIN + REST) * count)
        for _ in range(count):
            assert await status(reader) == b"200"
        writer.write(BEGIN)
        await until_read(endpoint)
        writer.write(REST)
        assert await status(reader) == b"200"
        writer.close()


async def test_a_head_that_is_too_large_does_not_answer_the_request_before_it(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    async with listening(tmp_path, log) as endpoint:
        reader, writer = await connect(endpoint)
        body = b'{"lat":1,"lon":2,"time":1795000000000}'
        writer.write(
            b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nCookie: a=b\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        while not log.appended:
            await asyncio.sleep(0.01)
        writer.write(BEGIN + b"x" * HEAD_BYTES_MAX)
        # The fix may be stored: that it is refused must not be said.
        assert await reader.read() == b""
        writer.close()
        log.acknowledge()


async def test_a_head_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with listening(tmp_path) as endpoint:
        reader, writer = await connect(endpoint)
        for _ in range(2):
            writer.write(BEGIN + REST)
            assert await status(reader) == b"200"
        writer.write(BEGIN + b"x" * HEAD_BYTES_MAX)
        assert await status(reader) == b"431"
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([BEGIN + REST], id="one request"),
        pytest.param([(BEGIN + REST) * 3], id="a pipeline"),
        pytest.param([BEGIN, REST + BEGIN + REST], id="in two pieces"),
        pytest.param([BEGIN + REST + BEGIN], id="and half a request"),
        pytest.param(
            [
                b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nContent-Length: 40000\r\n\r\n"
                + b" " * 40_000
            ],
            id="a body",
        ),
    ],
)
async def test_who_closes_its_side_gets_its_answers(tmp_path: Path, sent: list[bytes]) -> None:
    async with listening(tmp_path) as endpoint:
        reader, writer = await connect(endpoint)
        for data in sent:
            writer.write(data)
            await asyncio.sleep(0)
        writer.write_eof()
        answers = await reader.read()
        assert answers.count(b"HTTP/1.1 ") == b"".join(sent).count(b"\r\n\r\n")
        writer.close()


async def test_who_closes_its_side_within_a_second_body_gets_the_first_answer(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    fixes = b",".join(b'{"lat":1.5,"lon":2.5,"time":%d}' % (10**12 + each) for each in range(1_500))
    body = b"[" + fixes + b"]"
    head = b"POST /v1/positions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with listening(tmp_path, log) as endpoint:
        reader, writer = await connect(endpoint)
        writer.write(head + body + LARGE_POST + b" ")
        writer.write_eof()
        while len(log.appended) < 1_500:
            await asyncio.sleep(0.01)
        log.acknowledge()
        assert await status(reader) == b"200"
        assert await reader.read() == b""
        writer.close()


async def test_who_closes_its_side_within_a_body_gets_nothing(tmp_path: Path) -> None:
    async with listening(tmp_path) as endpoint:
        reader, writer = await connect(endpoint)
        writer.write(LARGE_POST + b" ")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def test_the_stream_of_who_closes_its_side_ends(tmp_path: Path) -> None:
    async with listening(tmp_path) as endpoint:
        reader, writer = await connect(endpoint)
        writer.write(b"GET /v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Basic ZXZlOng=\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write_eof()
        await reader.read()
        writer.close()


async def test_nothing_is_kept_of_connections_that_have_ended(tmp_path: Path) -> None:
    def kept() -> int:
        gc.collect()
        return sum(isinstance(each, PlainConnection) for each in gc.get_objects())

    async with listening(tmp_path) as endpoint:
        before = kept()
        for _ in range(20):
            reader, writer = await connect(endpoint)
            writer.write(BEGIN + REST)
            assert await status(reader) == b"200"
            writer.write_eof()
            await reader.read()
            writer.close()
        # The last of them may be about to end.
        while kept() > before + 1:
            await asyncio.sleep(0.01)
