"""Client quotas and connection limits in a running broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from broker_core import errors
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
)
from broker_core.server.network.limits import ConnectionLimits
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import (
    RawClient,
    client_at,
    fetch_body,
    produce_body,
    request_frame,
)
from tests.broker_core.server.topics import create_topic

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]


async def limit(client: RawClient, key: str, value: float, **names: str | None) -> None:
    entity = [
        {"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()
    ]
    entry = {"entity": entity, "ops": [{"key": key, "value": value, "remove": False}]}
    body = {"entries": [entry], "validate_only": False}
    answer = await client.call(ALTER_CLIENT_QUOTAS, 1, body)
    assert answer["entries"][0]["error_code"] == 0


async def test_a_producer_over_its_quota_is_told_and_made_to_wait(
    start: Start, connect: Connect
) -> None:
    broker = await start(quota_window_num="2", quota_window_size_seconds="1")
    create_topic(broker, "t", 1, {})
    client, other = await connect(broker), await connect(broker)
    await limit(client, "producer_byte_rate", 10_000, client_id="test")
    batch = bytes(build_batch([(1, None, bytes(15_000), ())]))
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await client.call(PRODUCE, 8, produce_body("t", batch))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert 300 < answer["throttle_time_ms"] < 900
    await client.call(METADATA, 1, {"topics": []})
    assert loop.time() - began >= answer["throttle_time_ms"] / 1000 * 0.9
    # Other clients do not wait for one that waits for long.
    await limit(other, "producer_byte_rate", 1, client_id="test")
    answer = await client.call(PRODUCE, 8, produce_body("t", batch))
    assert answer["throttle_time_ms"] > 10_000
    waiting = asyncio.create_task(client.call(METADATA, 1, {"topics": []}))
    await other.call(METADATA, 1, {"topics": []})
    assert not waiting.done()
    waiting.cancel()


async def test_a_consumer_over_its_quota_gets_its_records_and_waits(
    start: Start, connect: Connect
) -> None:
    broker = await start(quota_window_num="2", quota_window_size_seconds="1")
    create_topic(broker, "t", 1, {})
    client = await connect(broker)
    batch = bytes(build_batch([(1, None, bytes(15_000), ())]))
    await client.call(PRODUCE, 8, produce_body("t", batch))
    await limit(client, "consumer_byte_rate", 10_000, user=None)
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await client.call(FETCH, 11, fetch_body("t", 0))
    assert answer["responses"][0]["partitions"][0]["records"]
    assert answer["throttle_time_ms"] > 300
    await client.call(METADATA, 1, {"topics": []})
    assert loop.time() - began >= answer["throttle_time_ms"] / 1000 * 0.9


async def test_who_has_to_pause_has_no_turn_meanwhile(start: Start, connect: Connect) -> None:
    broker = await start(quota_window_num="2", quota_window_size_seconds="1")
    create_topic(broker, "t", 1, {})
    client, other = await connect(broker), await connect(broker)
    batch = bytes(build_batch([(1, None, bytes(15_000), ())]))
    await client.call(PRODUCE, 8, produce_body("t", batch))
    await limit(other, "consumer_byte_rate", 1, user=None)
    # A fetch that takes longer than a turn: what comes with it waits for the next one.
    fetch = fetch_body("t", 0)
    fetch["topics"] += [fetch_body(f"u{number}", 0)["topics"][0] for number in range(1_500)]
    client.writer.write(request_frame(FETCH, 11, fetch) + request_frame(API_VERSIONS, 0, {}))
    _, answer = await client.receive(FETCH, 11)
    assert answer["throttle_time_ms"] > 10_000
    following = asyncio.create_task(client.receive(API_VERSIONS, 0))
    for _ in range(20):
        await other.call(METADATA, 1, {"topics": []})
    assert not following.done()
    following.cancel()


async def test_only_partitions_that_are_added_are_charged(start: Start, connect: Connect) -> None:
    broker = await start(quota_window_num="2", quota_window_size_seconds="1")
    create_topic(broker, "t", 30, {})
    client = await connect(broker)
    await limit(client, "controller_mutation_rate", 10, user="ANONYMOUS")

    async def grow(name: str, count: int) -> tuple[int, int]:
        topics = [{"name": name, "count": count, "assignments": None}]
        body = {"topics": topics, "timeout_ms": 1000, "validate_only": False}
        answer = await client.call(CREATE_PARTITIONS, 3, body)
        return answer["results"][0]["error_code"], answer["throttle_time_ms"]

    assert await grow("t", 31) == (errors.NONE, 0)
    assert await grow("t", 31) == (errors.InvalidPartitions.code, 0)
    assert await grow("unknown", 100) == (errors.UnknownTopicOrPartition.code, 0)
    code, throttle_time_ms = await grow("t", 61)
    assert code == errors.NONE
    assert throttle_time_ms > 0


async def test_a_topic_is_charged_with_the_partitions_that_it_is_assigned(
    start: Start, connect: Connect
) -> None:
    broker = await start(quota_window_num="2", quota_window_size_seconds="1")
    client = await connect(broker)
    await limit(client, "controller_mutation_rate", 10, user="ANONYMOUS")
    assigned = [{"partition_index": index, "broker_ids": [0]} for index in range(30)]
    topic = {"name": "t", "num_partitions": -1, "replication_factor": -1, "configs": []}
    topics = [topic | {"assignments": assigned}]
    body = {"topics": topics, "timeout_ms": 1000, "validate_only": False}
    answer = await client.call(CREATE_TOPICS, 4, body)
    assert answer["topics"][0]["error_code"] == 0
    assert answer["throttle_time_ms"] > 0


async def test_a_deleted_topic_is_charged_with_its_partitions(
    start: Start, connect: Connect
) -> None:
    broker = await start(quota_window_num="2", quota_window_size_seconds="1")
    create_topic(broker, "one", 1, {})
    create_topic(broker, "many", 30, {})
    client = await connect(broker)
    await limit(client, "controller_mutation_rate", 10, user="ANONYMOUS")

    async def throttle_ms(name: str) -> int:
        body = {"topic_names": [name], "timeout_ms": 1000}
        return int((await client.call(DELETE_TOPICS, 4, body))["throttle_time_ms"])

    assert await throttle_ms("one") == 0
    assert await throttle_ms("unknown") == 0
    assert await throttle_ms("many") > 0


async def test_who_keeps_the_broker_busy_waits(start: Start, connect: Connect) -> None:
    broker = await start(quota_window_num="1", quota_window_size_seconds="1")
    client = await connect(broker)
    await limit(client, "request_percentage", 0.001, user="ANONYMOUS")
    loop = asyncio.get_running_loop()
    began = loop.time()
    # The first one costs more than the quota has for a second.
    await client.call(METADATA, 1, {"topics": None})
    await client.call(METADATA, 1, {"topics": []})
    assert loop.time() - began > 0.05


async def test_connections_of_one_address_are_counted(start: Start, connect: Connect) -> None:
    broker = await start(max_connections_per_ip="2")
    clients = [await connect(broker) for _ in range(3)]
    assert await clients[2].is_closed_by_peer()
    assert (await clients[0].call(API_VERSIONS, 0, {}))["error_code"] == 0
    await clients[0].close()
    while broker.network.limits.connections > 1:
        await asyncio.sleep(0.01)
    assert (await (await connect(broker)).call(API_VERSIONS, 0, {}))["error_code"] == 0


async def test_connections_that_come_too_fast_are_served_later(
    start: Start, connect: Connect
) -> None:
    broker = await start(max_connection_creation_rate="5")
    began = asyncio.get_running_loop().time()
    for _ in range(8):
        await (await connect(broker)).call(API_VERSIONS, 0, {})
    assert asyncio.get_running_loop().time() - began > 0.3


async def one_is_closed_by_peer(clients: list[RawClient]) -> None:
    """Wait until the broker has closed one of these: of those read at once any may be oldest."""
    closings = [asyncio.create_task(client.is_closed_by_peer()) for client in clients]
    done, waiting = await asyncio.wait(closings, return_when=asyncio.FIRST_COMPLETED)
    assert all(each.result() for each in done)
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_incomplete_requests_together_are_bounded(start: Start, connect: Connect) -> None:
    broker = await start(queued_max_request_bytes=str(4 * 1024 * 1024))
    clients = [await connect(broker) for _ in range(12)]
    for client in clients:
        client.writer.write((50 * 1024 * 1024).to_bytes(4, "big") + bytes(1024 * 1024))
        try:
            await client.writer.drain()
        except ConnectionError:
            continue
    await one_is_closed_by_peer(clients)
    limits = broker.network.limits
    async with asyncio.timeout(60):
        while limits.incomplete.bytes > limits.incomplete.bytes_max:
            await asyncio.sleep(0.01)
    for client in clients:
        await client.close()
    async with asyncio.timeout(60):
        while limits.incomplete.bytes:
            await asyncio.sleep(0.01)


async def test_who_occupies_most_with_incomplete_requests_loses_them(
    start: Start, connect: Connect
) -> None:
    broker = await start(
        queued_max_request_bytes=str(4 * 1024 * 1024),
        listeners="PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
    )

    endpoints = broker.network.endpoints
    small = await client_at("127.0.0.2", endpoints["PLAINTEXT"])
    frame = request_frame(API_VERSIONS, 0, {})
    small.writer.write(frame[:-1])  # the oldest of all
    incomplete = broker.network.limits.incomplete
    async with asyncio.timeout(60):
        while not incomplete.bytes:
            await asyncio.sleep(0.001)

    async def greedy() -> list[RawClient]:
        """Return clients of which the oldest ones are cut."""
        many = [await client_at("127.0.0.1", endpoints["PLAINTEXT"]) for _ in range(8)]
        for client in many:
            client.writer.write((50 * 1024 * 1024).to_bytes(4, "big") + bytes(900 * 1024))
        await one_is_closed_by_peer(many)
        return many

    many = await greedy()
    large = await client_at("127.0.0.2", endpoints["OTHER"])
    body = produce_body("t", bytes(build_batch([(1, None, bytes(900 * 1024), ())])))
    rest = request_frame(PRODUCE, 8, body)
    large.writer.write(rest[:-1])
    await large.writer.drain()
    many += await greedy()
    small.writer.write(frame[-1:])
    assert (await small.receive(API_VERSIONS, 0))[1]["error_code"] == 0
    large.writer.write(rest[-1:])
    await large.receive(PRODUCE, 8)
    for client in (small, large, *many):
        await client.close()
    async with asyncio.timeout(60):
        while incomplete.bytes:
            await asyncio.sleep(0.001)


def test_the_rate_of_an_address_is_its_own() -> None:
    limits = ConnectionLimits(10, creation_rate_of=lambda host: 1.0 if host == "a" else None)
    pauses = [limits.creation_pause_s("a", 100.0) for _ in range(4)]
    assert pauses[0] == 0.0 < pauses[-1]
    assert limits.creation_pause_s("b", 100.0) == 0.0
