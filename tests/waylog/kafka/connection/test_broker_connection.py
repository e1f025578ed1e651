"""A connection to a server that may be no broker, or one that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tcp_server import Serve, tcp_server
from waylog.kafka.connection.broker_connection import BrokerConnection, addresses
from waylog.kafka.protocol import requests
from waylog.kafka.protocol.requests import Broker, MalformedAnswer
from waylog.process.background import end_on_failure


@asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[BrokerConnection]:
    async with tcp_server(serve) as port:
        loop = asyncio.get_running_loop()
        connection = await BrokerConnection.connect(loop, Broker("127.0.0.1", port), "test")
        try:
            yield connection
        finally:
            connection.close()


async def test_a_broker_that_says_nothing_is_not_waited_for_for_ever() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with connected(silent) as connection:
        with pytest.raises(TimeoutError):
            await connection.ask(requests.METADATA, requests.metadata([]), 0.05)


async def test_a_late_answer_ends_the_connection_for_all_who_wait() -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with connected(silent) as connection:
        answers: list[bytes | None] = []
        for _ in range(2):
            connection.request(requests.METADATA, requests.metadata([]), 0.0, answers.append)
        connection.look_after()
        assert answers == [None, None]
        assert not connection.is_open
        connection.request(requests.METADATA, requests.metadata([]), 1.0, answers.append)
        assert answers == [None, None, None]


@pytest.mark.parametrize(
    "answer",
    [
        b"\x7f\xff\xff\xff" + bytes(100),
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\0",
        b"\0\0\0\4\0\0\0\7",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
)
async def test_what_is_no_answer_ends_the_connection(answer: bytes) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await reader.read()  # until the client ends the connection

    async with connected(rude) as connection:
        with pytest.raises(ConnectionError):
            await connection.ask(requests.METADATA, requests.metadata([]), 30)


async def test_answers_that_come_in_pieces_go_to_those_who_asked() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in (1, 2):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
            for byte in (8).to_bytes(4, "big") + number.to_bytes(4, "big") + b"%04d" % number:
                writer.write(bytes([byte]))
                await writer.drain()

    async with connected(slow) as connection:
        parts = requests.metadata([])
        asked = [connection.ask(requests.METADATA, parts, 30) for _ in range(2)]
        assert await asyncio.gather(*asked) == [b"0001", b"0002"]


def framed(number: int, body: bytes) -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + number.to_bytes(4, "big") + body


async def skip_request(reader: asyncio.StreamReader) -> None:
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def test_the_rest_of_an_answer_is_no_answer_of_its_own_though_it_looks_like_one() -> None:
    rest = framed(2, b"rest")

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await skip_request(reader)
        second = framed(2, b"second" + rest)
        writer.write(framed(1, b"first") + second.removesuffix(rest))
        # Sent after the first answer has come, so that the rest comes alone.
        await skip_request(reader)
        writer.write(rest)
        await reader.read()

    async with connected(slow) as connection:
        parts = requests.metadata([])
        asked = [
            asyncio.create_task(connection.ask(requests.METADATA, parts, 30)) for _ in range(2)
        ]
        assert await asked[0] == b"first"
        connection.request(requests.METADATA, parts, 30, lambda _: None)
        assert await asked[1] == b"second" + rest


async def test_who_fails_to_take_an_answer_is_told_of_and_no_other_loses_its_own() -> None:
    failed: list[Exception] = []
    loop = asyncio.get_running_loop()
    end_on_failure(loop, failed.append)

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in (1, 2):
            await skip_request(reader)
            writer.write(framed(number, b"%04d" % number))
        await reader.read()

    def fail(answer: bytes | None) -> None:
        raise ValueError(str(answer))

    async with connected(answering) as connection:
        parts = requests.metadata([])
        connection.request(requests.METADATA, parts, 30, fail)
        assert await connection.ask(requests.METADATA, parts, 30) == b"0002"
        answers: list[bytes | None] = []
        for callback in (fail, answers.append):
            connection.request(requests.METADATA, parts, 30, callback)
        connection.close()
        assert answers == [None]
    assert [str(each) for each in failed] == ["b'0001'", "None"]


async def test_an_answer_in_time_leaves_no_timer_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await skip_request(reader)
        writer.write(framed(1, b"answer"))
        await reader.read()

    loop = asyncio.get_running_loop()
    call_later, timers = loop.call_later, list[asyncio.TimerHandle]()

    def kept(delay: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        timers.append(call_later(delay, callback, *arguments))
        return timers[-1]

    async with connected(answering) as connection:
        monkeypatch.setattr(loop, "call_later", kept)
        assert await connection.ask(requests.METADATA, requests.metadata([]), 30) == b"answer"
    assert timers
    assert all(each.cancelled() for each in timers)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_answer_are_refused(data: bytes) -> None:
    for read in (
        requests.read_metadata,
        requests.read_init_producer_id,
        requests.read_produce,
        requests.read_list_offsets,
        requests.read_fetch,
    ):
        try:
            read(data)
        except MalformedAnswer:
            continue


def test_a_list_of_addresses_may_have_ipv6() -> None:
    assert addresses("one:9092, [::1]:9093") == [Broker("one", 9092), Broker("::1", 9093)]
