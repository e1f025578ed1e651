"""Connections: order of responses, limits, hostile clients."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import API_VERSIONS, FETCH, METADATA, PRODUCE
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import (
    RawClient,
    fetch_body,
    has_answer,
    produce_body,
    request_frame,
)
from tests.broker_core.server.topics import create_topic
from tests.late_client import TURNS, check_disconnected
from tests.resident_memory import resident_kb
from waylog.config import Endpoint

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]


async def serves(broker: Broker) -> None:
    """Check that the broker answers a well-behaved client."""
    client = await RawClient.connect(broker.endpoint)
    answer = await client.call(API_VERSIONS, 0, {})
    assert answer["error_code"] == 0
    await client.close()


async def test_api_versions_offers_produce_from_version_0(broker: Broker, connect: Connect) -> None:
    answer = await (await connect(broker)).call(API_VERSIONS, 3, {"client_software_name": "x"})
    ranges = {each["api_key"]: each for each in answer["api_keys"]}
    assert ranges[0]["min_version"] == 0
    assert ranges[3]["max_version"] == METADATA.versions[1]


async def test_an_api_versions_request_of_the_future_is_answered_in_version_0(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    frame = struct.pack(">hhih", 18, 99, 5, 2) + b"me" + b"\0\1\2\3"
    client.writer.write(struct.pack(">i", len(frame)) + frame)
    correlation_id, answer = await client.receive(API_VERSIONS, 0)
    assert correlation_id == 5
    assert answer["error_code"] == 35
    assert [each["api_key"] for each in answer["api_keys"]] == [18]
    # The client then tries again on the same connection.
    assert (await client.call(API_VERSIONS, 0, {}))["error_code"] == 0


async def test_pipelined_requests_are_answered_in_order(broker: Broker, connect: Connect) -> None:
    create_topic(broker, "t", 1, {})
    client = await connect(broker)
    # The first request waits for its timeout; the others are ready at once and wait behind it.
    client.send(FETCH, 11, fetch_body("t", 0, max_wait_ms=200))
    client.send(METADATA, 1, {"topics": []})
    batch = bytes(build_batch([(1, b"k", b"v", ())]))
    client.send(PRODUCE, 8, produce_body("t", batch))
    client.send(API_VERSIONS, 0, {})
    received = [
        (await client.receive(api, version))[0]
        for api, version in ((FETCH, 11), (METADATA, 1), (PRODUCE, 8), (API_VERSIONS, 0))
    ]
    assert received == [1, 2, 3, 4]


async def test_who_connects_and_leaves_at_once_costs_others_nothing(start: Start) -> None:
    broker = await start(max_connections="2")
    address = broker.endpoint.host, broker.endpoint.port
    async with asyncio.timeout(60):
        for _ in range(200):
            socket.create_connection(address).close()
        await serves(broker)
    assert broker.network.limits.refused == 0


@pytest.mark.parametrize("begin", [b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", b"\xff" * 4])
async def test_a_length_that_cannot_be_is_told_in_one_line(
    broker: Broker, begin: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client = await RawClient.connect(broker.endpoint)
    client.writer.write(begin)
    assert await client.is_closed_by_peer()
    await client.close()
    assert [each.levelname for each in caplog.records if each.levelname != "INFO"] == ["WARNING"]
    assert "is disconnected: a request of" in caplog.text


async def test_what_came_before_garbage_is_answered_before_the_connection_ends(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    client.send(API_VERSIONS, 0, {})
    client.send(METADATA, 1, {"topics": []})
    client.writer.write(struct.pack(">i", -5))
    assert (await client.receive(API_VERSIONS, 0))[1]["error_code"] == 0
    assert (await client.receive(METADATA, 1))[0] == 2
    assert await client.is_closed_by_peer()


async def test_a_thousand_pipelined_requests_are_all_answered(
    start: Start, connect: Connect
) -> None:
    broker = await start(queued_max_requests="10")
    client = await connect(broker)
    create_topic(broker, "t", 1, {})
    client.send(FETCH, 11, fetch_body("t", 0, max_wait_ms=100))
    for _ in range(1000):
        client.send(METADATA, 1, {"topics": []})
    await client.writer.drain()
    await client.receive(FETCH, 11)
    for number in range(1000):
        assert (await client.receive(METADATA, 1))[0] == number + 2


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        struct.pack(">ihhih", 10, 9999, 0, 1, 0),
        struct.pack(">i", 0),
        struct.pack(">ihh", 4, 18, 99),
        struct.pack(">ihhihi", 14, 3, 1, 1, 0, 2**31 - 1),
        struct.pack(">ihhihi", 14, 3, 1, 1, 0, -5),
        struct.pack(">ihhih", 20, 3, 9, 1, 0) + b"\xff" * 10,
    ],
    ids=[
        "longest length", "negative length", "over the limit", "http", "tls", "unknown api",
        "empty frame", "cut header", "array of 2^31-1", "array of -5", "endless varint",
    ],
)  # fmt: skip
async def test_a_peer_that_does_not_speak_kafka_is_disconnected(
    broker: Broker, connect: Connect, garbage: bytes
) -> None:
    client = await connect(broker)
    client.writer.write(garbage)
    assert await client.is_closed_by_peer()
    await serves(broker)


async def test_random_bytes_never_stop_the_broker(broker: Broker) -> None:
    source = random.Random(4711)
    for _ in range(200):
        client = await RawClient.connect(broker.endpoint)
        body = source.randbytes(source.randrange(1, 200))
        if source.random() < 0.7:
            header = struct.pack(">hh", source.randrange(0, 80), source.randrange(0, 14))
            body = header + body
            body = struct.pack(">i", len(body)) + body
        client.writer.write(body)
        client.writer.write_eof()
        try:
            async with asyncio.timeout(60):
                while await client.reader.read(65536):
                    pass
        except ConnectionError:
            pass
        await client.close()
    await serves(broker)


async def test_a_large_announced_frame_takes_no_memory_until_it_comes(
    broker: Broker, connect: Connect
) -> None:
    await serves(broker)
    before = resident_kb()
    for _ in range(20):
        client = await connect(broker)
        client.writer.write(struct.pack(">ihh", 100 * 1024 * 1024, 0, 8))
        await client.writer.drain()
    await serves(broker)
    assert resident_kb() - before < 16 * 1024


async def test_500_idle_connections_are_held_and_cost_little(
    broker: Broker, connect: Connect
) -> None:
    await serves(broker)
    before = resident_kb()
    for _ in range(500):
        await connect(broker)
    await serves(broker)
    assert broker.connections >= 500
    # Both ends of each connection are in this process.
    assert resident_kb() - before < 16 * 1024


async def test_connections_over_the_limit_are_refused(start: Start, connect: Connect) -> None:
    broker = await start(max_connections="2")
    first, second = await connect(broker), await connect(broker)
    await first.call(API_VERSIONS, 0, {})
    await second.call(API_VERSIONS, 0, {})
    third = await connect(broker)
    assert await third.is_closed_by_peer()
    assert (await first.call(API_VERSIONS, 0, {}))["error_code"] == 0


async def test_refusals_over_and_over_fill_no_log(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(max_connections="1")
    await (await connect(broker)).call(API_VERSIONS, 0, {})
    for _ in range(50):
        assert await (await connect(broker)).is_closed_by_peer()
    said = [line for line in caplog.messages if "is refused: max.connections=1" in line]
    assert 1 <= len(said) < 25
    assert broker.network.limits.refused == 50


@pytest.mark.parametrize("advertised", [None, Endpoint("kafka.example", 4711)])
async def test_clients_are_told_the_advertised_port_or_else_the_one_that_was_chosen(
    start: Start, connect: Connect, advertised: Endpoint | None
) -> None:
    properties = {} if advertised is None else {"advertised_listeners": f"PLAINTEXT://{advertised}"}
    broker = await start(**properties)
    told = (await (await connect(broker)).call(METADATA, 1, {"topics": []}))["brokers"]
    assert [Endpoint(each["host"], each["port"]) for each in told] == [
        advertised or broker.endpoint
    ]


async def test_who_reads_no_answers_is_disconnected_though_more_of_its_requests_wait(
    start: Start, connect: Connect
) -> None:
    broker = await start(connections_max_idle_ms="300")
    topic = create_topic(broker, "t", 1, {"max.message.bytes": "10000000"})
    topic.partitions[0].append(
        build_batch([(1, None, bytes(8_000_000), ())]), broker.clock.now_ms()
    )
    broker.flusher.request(topic.partitions[0])
    async with asyncio.timeout(60):
        while not topic.partitions[0].high_watermark:
            await asyncio.sleep(0.001)
    with socket.create_connection((broker.endpoint.host, broker.endpoint.port)) as client:
        large = fetch_body("t", 0, partition_max_bytes=10_000_000)
        waiting = fetch_body("t", 1, max_wait_ms=60_000)
        client.sendall(request_frame(FETCH, 11, large) + request_frame(FETCH, 11, waiting, 2))
        async with asyncio.timeout(60):
            while not broker.connections:
                await asyncio.sleep(0.001)
            while broker.connections:
                await asyncio.sleep(0.01)


async def test_many_requests_at_once_keep_nobody_waiting(broker: Broker, connect: Connect) -> None:
    client = await connect(broker)
    await client.call(API_VERSIONS, 0, {})
    # The answers are short: all of them fit into the kernel's buffers.
    frame = request_frame(FETCH, 11, fetch_body("nothing", 0))
    count = 50_000 // len(frame)  # the broker receives them together
    loop = asyncio.get_running_loop()
    with socket.create_connection((broker.endpoint.host, broker.endpoint.port)) as greedy:
        greedy.setblocking(False)
        await loop.sock_sendall(greedy, frame)
        answer = len(await loop.sock_recv(greedy, 1 << 20))
        await loop.sock_sendall(greedy, frame * count)
        assert (await client.call(API_VERSIONS, 0, {}))["error_code"] == 0
        answers = len(await loop.sock_recv(greedy, 1 << 20))
        assert 0 < answers < count * answer
        async with asyncio.timeout(60):
            while answers < count * answer:
                answers += len(await loop.sock_recv(greedy, 1 << 20))


async def crowd(
    stack: ExitStack, broker: Broker, count: int, frame: bytes
) -> tuple[list[socket.socket], socket.socket]:
    """Connect many times from one address and once from another; each has had an answer."""
    address = broker.endpoint.host, broker.endpoint.port
    greedy = [
        stack.enter_context(socket.create_connection(address, source_address=("127.0.0.2", 0)))
        for _ in range(count)
    ]
    client = stack.enter_context(socket.create_connection(address))
    loop = asyncio.get_running_loop()
    for each in (*greedy, client):
        each.setblocking(False)
        await loop.sock_sendall(each, frame)
        await loop.sock_recv(each, 1 << 20)
    return greedy, client


async def test_many_connections_of_one_address_do_not_keep_another_waiting(
    broker: Broker,
) -> None:
    frame = request_frame(FETCH, 11, fetch_body("nothing", 0))
    requests = frame * (50_000 // len(frame))  # more than a connection has answered in one turn
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        greedy, client = await crowd(stack, broker, 200, frame)
        # All of this has come before the broker reads again.
        for each in greedy:
            assert each.send(requests) == len(requests)
        client.send(frame)
        async with asyncio.timeout(60):
            await loop.sock_recv(client, 1 << 20)
        assert 0 < sum(map(has_answer, greedy)) < len(greedy) // 2


async def test_one_dear_request_of_each_of_many_connections_keeps_nobody_waiting(
    broker: Broker,
) -> None:
    frame = request_frame(FETCH, 11, fetch_body("nothing", 0))
    body = fetch_body("nothing", 0)
    body["topics"][0]["partitions"] *= 1_900
    dear = request_frame(FETCH, 11, body)
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        greedy, client = await crowd(stack, broker, 40, frame)
        # All of this has come before the broker reads again.
        for each in greedy:
            assert each.send(dear) == len(dear)
        client.send(frame)
        async with asyncio.timeout(60):
            assert await loop.sock_recv(client, 1 << 20)
        assert sum(map(has_answer, greedy)) < len(greedy) // 2
        # They wait with what they have sent, of which nothing is lost.
        async with asyncio.timeout(60):
            assert all([await loop.sock_recv(each, 1) for each in greedy])


async def test_a_connection_that_closes_leaves_nothing_behind(
    broker: Broker, connect: Connect
) -> None:
    topic = create_topic(broker, "t", 1, {})
    client = await connect(broker)
    client.send(FETCH, 11, fetch_body("t", 0, max_wait_ms=60_000))
    async with asyncio.timeout(60):
        while not topic.partitions[0].fetches:
            await asyncio.sleep(0.001)
    await client.close()
    async with asyncio.timeout(60):
        while topic.partitions[0].fetches or broker.connections:
            await asyncio.sleep(0.001)


async def test_a_client_that_takes_no_responses_is_not_read_any_further(
    broker: Broker, connect: Connect
) -> None:
    topic = create_topic(broker, "t", 1, {"max.message.bytes": "10000000"})
    batch = build_batch([(1, None, bytes(1_000_000), ())])
    topic.partitions[0].append(batch, broker.clock.now_ms())
    broker.flusher.request(topic.partitions[0])
    reader = await connect(broker)
    async with asyncio.timeout(60):
        while topic.partitions[0].high_watermark == 0:
            await asyncio.sleep(0.001)
    before = resident_kb()
    for _ in range(200):
        reader.send(FETCH, 11, fetch_body("t", 0))
    await serves(broker)
    assert resident_kb() - before < 64 * 1024
    for _ in range(200):
        await reader.receive(FETCH, 11)


async def test_a_waiting_fetch_gets_all_that_became_visible_together(
    broker: Broker, connect: Connect
) -> None:
    create_topic(broker, "t", 2, {})
    reader, writer = await connect(broker), await connect(broker)
    body = fetch_body("t", 0, max_wait_ms=60_000)
    parts = body["topics"][0]["partitions"]
    parts.append(parts[0] | {"partition": 1})
    reader.send(FETCH, 11, body)
    topic = broker.topics.get("t")
    assert topic is not None
    while not all(partition.fetches for partition in topic.partitions):
        await asyncio.sleep(0)
    request = produce_body("t", bytes(build_batch([(1, None, b"first", ())])))
    request["topic_data"][0]["partition_data"].append(
        {"index": 1, "records": bytes(build_batch([(1, None, b"second", ())]))}
    )
    await writer.call(PRODUCE, 8, request)
    _, answer = await reader.receive(FETCH, 11)
    assert all(each["records"] for each in answer["responses"][0]["partitions"])


@TURNS
async def test_a_client_that_connects_while_the_broker_stops_is_disconnected(
    start: Start, turns: int
) -> None:
    broker = await start()
    await check_disconnected((broker.endpoint.host, broker.endpoint.port), broker.close, turns)
