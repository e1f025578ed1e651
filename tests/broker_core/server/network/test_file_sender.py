"""Records that are sent from the page cache to the socket."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import API_VERSIONS, FETCH, PRODUCE
from broker_core.protocol.stored_batches import scan_batches
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient, fetch_body, produce_body, request_frame
from tests.broker_core.server.topics import create_topic
from tests.certificates import Certificates
from tests.resident_memory import resident_kb

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]

_BATCHES = 120
_RECORD_BYTES = 50_000


async def _fill(broker: Broker, client: RawClient) -> None:
    create_topic(broker, "t", 1, {})
    source = random.Random(1)
    for number in range(_BATCHES):
        value = source.randbytes(_RECORD_BYTES)
        batch = bytes(build_batch([(number, b"key", value, ())]))
        await client.call(PRODUCE, 8, produce_body("t", batch))


def _body(offset: int, size: int = 50_000_000) -> dict[str, Any]:
    return fetch_body("t", offset, max_bytes=size, partition_max_bytes=size)


def _stored(broker: Broker) -> bytes:
    topic = broker.topics.get("t")
    assert topic is not None
    return topic.partitions[0].log.segments[0].path.read_bytes()


def _records(answer: dict[str, Any]) -> bytes:
    return bytes(answer["responses"][0]["partitions"][0]["records"])


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_consumer_that_reads_slowly_gets_all_bytes_and_the_answers_behind_them(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    await _fill(broker, client)
    client.send(FETCH, 11, _body(0))
    client.send(API_VERSIONS, 0, {})
    client.send(FETCH, 11, _body(_BATCHES // 2))
    client.send(API_VERSIONS, 0, {})
    # More bytes are on their way than a socket buffer holds; other clients are served meanwhile.
    assert (await (await connect(broker)).call(API_VERSIONS, 0, {}))["error_code"] == 0
    stored = _stored(broker)
    _, whole = await client.receive(FETCH, 11)
    assert _records(whole) == stored
    assert (await client.receive(API_VERSIONS, 0))[1]["error_code"] == 0
    _, half = await client.receive(FETCH, 11)
    assert stored.endswith(_records(half))
    assert scan_batches(_records(half))[0][0].base_offset == _BATCHES // 2
    assert (await client.receive(API_VERSIONS, 0))[1]["error_code"] == 0


async def test_a_fetch_never_has_more_than_it_asked_for_but_for_its_first_batch(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    await _fill(broker, client)
    for size in (1, 60_000, 150_000, 1_000_000, 3_000_001):
        records = _records(await client.call(FETCH, 11, _body(7, size)))
        headers, end, problem = scan_batches(records)
        assert problem is None and end == len(records)
        assert headers[0].base_offset == 7
        assert len(headers) == 1 or len(records) <= size < len(records) + 2 * _RECORD_BYTES


async def test_a_client_that_goes_in_the_middle_leaves_nothing_open(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    await _fill(broker, client)
    before = _descriptors()
    for _ in range(5):
        leaving = await connect(broker)
        leaving.send(FETCH, 11, _body(0))
        await leaving.reader.readexactly(1000)
        leaving.writer.transport.abort()
    async with asyncio.timeout(60):
        while _descriptors() > before or broker.network.limits.connections > 1:
            await client.call(API_VERSIONS, 0, {})


async def _lose_the_file(broker: Broker, reader: RawClient, client: RawClient) -> None:
    """Check that only the connection ends whose records cannot be read any more."""
    topic = broker.topics.get("t")
    assert topic is not None
    path = topic.partitions[0].log.segments[0].path
    reader.send(FETCH, 11, _body(0))
    await reader.reader.readexactly(1000)
    os.truncate(path, 0)
    async with asyncio.timeout(60):
        try:
            rest = await reader.reader.read()
        except ConnectionError:
            rest = b""
    assert len(rest) < _BATCHES * _RECORD_BYTES
    assert (await client.call(API_VERSIONS, 0, {}))["error_code"] == 0


async def test_a_file_that_becomes_shorter_ends_the_connection_and_nothing_else(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    await _fill(broker, client)
    await _lose_the_file(broker, await connect(broker), client)


@pytest.fixture
async def tls_broker(start: Start, certificates: Certificates) -> Broker:
    return await start(
        listeners="SSL://127.0.0.1:0",
        ssl_keystore_location=str(certificates.broker),
        ssl_keystore_type="PEM",
    )


async def _tls_client(broker: Broker, certificates: Certificates) -> RawClient:
    reader, writer = await asyncio.open_connection(
        broker.endpoint.host,
        broker.endpoint.port,
        ssl=ssl.create_default_context(cafile=str(certificates.authority)),
    )
    return RawClient(reader, writer)


async def test_over_tls_a_slow_consumer_gets_all_bytes_and_the_answers_behind_them(
    tls_broker: Broker, certificates: Certificates
) -> None:
    client = await _tls_client(tls_broker, certificates)
    await _fill(tls_broker, client)
    for _ in range(2):
        client.send(FETCH, 11, _body(0))
        client.send(API_VERSIONS, 0, {})
    other = await _tls_client(tls_broker, certificates)
    assert (await other.call(API_VERSIONS, 0, {}))["error_code"] == 0
    for _ in range(2):
        _, whole = await client.receive(FETCH, 11)
        assert _records(whole) == _stored(tls_broker)
        assert (await client.receive(API_VERSIONS, 0))[1]["error_code"] == 0
    await client.close()
    await other.close()


async def test_over_tls_a_file_that_becomes_shorter_ends_the_connection_and_nothing_else(
    tls_broker: Broker, certificates: Certificates
) -> None:
    client = await _tls_client(tls_broker, certificates)
    await _fill(tls_broker, client)
    reader = await _tls_client(tls_broker, certificates)
    await _lose_the_file(tls_broker, reader, client)
    await client.close()
    await reader.close()


async def test_over_tls_clients_that_do_not_read_keep_little_in_memory(
    tls_broker: Broker, certificates: Certificates
) -> None:
    client = await _tls_client(tls_broker, certificates)
    await _fill(tls_broker, client)
    before = resident_kb()
    readers = [await _tls_client(tls_broker, certificates) for _ in range(30)]
    for reader in readers:
        reader.send(FETCH, 11, _body(0))
        reader.send(API_VERSIONS, 0, {})
        await reader.writer.drain()
    for _ in range(20):
        assert (await client.call(API_VERSIONS, 0, {}))["error_code"] == 0
    # 180 MB are stored for them; both ends of each connection are in this process.
    assert resident_kb() - before < 90 * 1024
    for reader in readers[:2]:
        _, whole = await reader.receive(FETCH, 11)
        assert _records(whole) == _stored(tls_broker)
    for reader in (client, *readers):
        reader.writer.transport.abort()


async def test_records_come_after_the_answers_that_have_not_been_read_yet(broker: Broker) -> None:
    client = await RawClient.connect(broker.endpoint)
    await _fill(broker, client)
    loop = asyncio.get_running_loop()
    count = 900
    with socket.create_connection((broker.endpoint.host, broker.endpoint.port)) as reader:
        reader.setblocking(False)
        small = request_frame(API_VERSIONS, 0, {})
        await loop.sock_sendall(reader, small)
        answer = await loop.sock_recv(reader, 1 << 20)
        # More than the kernel takes without a reader, but so little that reading does not pause.
        await loop.sock_sendall(reader, small * count)
        await loop.sock_sendall(reader, request_frame(FETCH, 11, _body(0)))
        for _ in range(100):
            assert (await client.call(API_VERSIONS, 0, {}))["error_code"] == 0
        stored = _stored(broker)
        received = bytearray()
        async with asyncio.timeout(60):
            while stored[-4096:] not in received[-8192:]:
                received += await loop.sock_recv(reader, 1 << 20)
    assert received.startswith(answer * count)
    assert received.find(stored, len(answer) * count) > 0
    await client.close()


async def test_what_waits_behind_unread_answers_is_not_read_into_memory(broker: Broker) -> None:
    client = await RawClient.connect(broker.endpoint)
    await _fill(broker, client)
    before = resident_kb()
    with ExitStack() as stack:
        for _ in range(30):
            reader = stack.enter_context(
                socket.create_connection((broker.endpoint.host, broker.endpoint.port))
            )
            reader.setblocking(False)
            # Small answers fill the socket first.
            frame = request_frame(API_VERSIONS, 0, {}) * 1000
            for _ in range(4):
                with suppress(BlockingIOError):
                    reader.send(frame)
                assert (await client.call(API_VERSIONS, 0, {}))["error_code"] == 0
            with suppress(BlockingIOError):
                reader.send(request_frame(FETCH, 11, _body(0)))
        for _ in range(20):
            assert (await client.call(API_VERSIONS, 0, {}))["error_code"] == 0
        assert resident_kb() - before < 90 * 1024
    await client.close()
