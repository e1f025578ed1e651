"""Ranges of partitions against brokers of this package, on the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker_core.server.runtime import Broker
from tests.broker_core.server.cluster.conftest import StartTrio, Trio, start_trio
from tests.waylog.kafka.test_batch_producer import PARTITIONS, create_topic, started
from tests.waylog.kafka.test_batch_reader import damage_second_batch, in_thread, produce
from waylog.kafka.partition_fetcher import NotFetched, PartitionFetcher
from waylog.kafka.protocol.cluster_requests import Place
from waylog.kafka.protocol.requests import MalformedAnswer

__all__ = ["start_trio"]

Numbers = dict[Place, list[int]]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = await started(tmp_path)
    await create_topic(str(broker.endpoint), "four")
    yield broker
    await broker.close()


@asynccontextmanager
async def fetching(servers: str) -> AsyncIterator[PartitionFetcher]:
    fetcher = PartitionFetcher(servers, "test", answer_timeout_s=10.0)
    try:
        yield fetcher
    finally:
        await fetcher.close()


def ends_of(broker: Broker) -> dict[Place, int]:
    """Return the offset after the last committed record of each partition."""
    topic = broker.topics.get("four")
    assert topic is not None
    return {("four", each.index): each.high_watermark for each in topic.partitions}


async def read(
    fetcher: PartitionFetcher, ends: dict[Place, int], start: int = 0, failures_max: int = 0
) -> Numbers:
    """Return the values in the range, by partition."""
    found: Numbers = {}
    remaining = {place: start for place, end in ends.items() if start < end}
    async with asyncio.timeout(60):
        while remaining:
            try:
                records, remaining = await fetcher.fetch(remaining, ends)
            except NotFetched:
                if not failures_max:
                    raise
                failures_max -= 1
                await asyncio.sleep(0.05)
                continue
            for each in records:
                value = int(each.value() or b"-1")
                found.setdefault((each.topic(), each.partition()), []).append(value)
    return found


@pytest.mark.parametrize("codec", ["none", "lz4", "gzip", "snappy", "zstd"])
async def test_a_range_is_read_whatever_it_is_compressed_with(broker: Broker, codec: str) -> None:
    servers = str(broker.endpoint)
    await in_thread(lambda: produce(servers, range(3000), b"one-key", codec))
    async with fetching(servers) as fetcher:
        (found,) = (await read(fetcher, ends_of(broker))).values()
        assert found == list(range(3000))
        (found,) = (await read(fetcher, dict.fromkeys(ends_of(broker), 1234), 100)).values()
        assert found == list(range(100, 1234))


async def test_what_was_never_committed_is_not_read(broker: Broker) -> None:
    servers = str(broker.endpoint)

    def transactions() -> None:
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "t"})
        producer.init_transactions(30)
        for number in range(4):
            producer.begin_transaction()
            for each in range(10):
                producer.produce("four", b"%d" % (number * 10 + each), b"key")
            producer.flush()
            if number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    await in_thread(transactions)
    async with fetching(servers) as fetcher:
        (found,) = (await read(fetcher, ends_of(broker))).values()
    assert found == [*range(10), *range(20, 30)]


async def test_what_retention_has_taken_is_passed_over(broker: Broker) -> None:
    servers = str(broker.endpoint)
    await in_thread(lambda: produce(servers, range(100), b"one-key"))
    (place,) = (place for place, end in ends_of(broker).items() if end)

    def delete_records() -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.delete_records([TopicPartition(*place, 60)]).values():
            future.result(30)

    await in_thread(delete_records)
    async with fetching(servers) as fetcher:
        assert await read(fetcher, {place: 100}, 10) == {place: list(range(60, 100))}
        assert await read(fetcher, {place: 50}, 10) == {}


async def test_damage_in_the_log_is_told(tmp_path: Path) -> None:
    broker = await started(tmp_path)
    port = broker.endpoint.port
    await create_topic(str(broker.endpoint), "four")
    for value in range(3):
        await in_thread(produce, str(broker.endpoint), range(value, value + 1), b"one-key")
    await broker.close()
    place = ("four", damage_second_batch(tmp_path))
    broker = await started(tmp_path, port)
    async with fetching(str(broker.endpoint)) as fetcher:
        with pytest.raises(MalformedAnswer, match=f"four-{place[1]} is damaged behind offset 1"):
            await read(fetcher, {place: 3})
    await broker.close()


async def test_a_broker_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    broker = await started(tmp_path)
    port = broker.endpoint.port
    await create_topic(str(broker.endpoint), "four")
    await in_thread(produce, str(broker.endpoint), range(100), b"one-key")
    ends = ends_of(broker)
    async with fetching(str(broker.endpoint)) as fetcher:
        await read(fetcher, ends)
        await broker.close()
        with pytest.raises(NotFetched, match=f"127.0.0.1:{port}: "):
            await read(fetcher, ends)
        broker = await started(tmp_path, port)
        (found,) = (await read(fetcher, ends)).values()
        assert found == list(range(100))
    await broker.close()


async def led(trio: Trio, condition: Callable[[list[int]], bool]) -> None:
    """Wait until the leaders of the partitions are as wanted, and all brokers know it."""

    def is_so(broker: Broker) -> bool:
        topic = broker.cluster.image.topics.get("four")
        return topic is not None and condition([each.leader for each in topic.partitions])

    await trio.until(is_so)


async def test_a_range_is_read_on_from_whoever_leads_now(start_trio: StartTrio) -> None:
    trio = await start_trio(auto_leader_rebalance_enable="false")
    servers = ",".join(f"127.0.0.1:{port}" for port in trio.ports.values())
    await create_topic(servers, "four")
    await in_thread(produce, servers, range(400))
    ends = dict.fromkeys((("four", index) for index in range(PARTITIONS)), 0)
    for broker in trio.brokers.values():
        ends = {place: max(end, ends_of(broker)[place]) for place, end in ends.items()}
    assert sum(ends.values()) == 400
    async with fetching(servers) as fetcher:

        async def read_all() -> list[int]:
            found = await read(fetcher, ends, failures_max=200)
            return sorted(value for values in found.values() for value in values)

        assert await read_all() == list(range(400))
        # One that leads is gone.
        await trio.stop(1)
        await led(trio, lambda leaders: 1 not in leaders)
        assert await read_all() == list(range(400))
        # One that has led is still there, and says that it does not lead.
        await trio.start(1)
        admin = AdminClient({"bootstrap.servers": servers})

        async def elect() -> None:
            await in_thread(lambda: admin.elect_leaders(ElectionType.PREFERRED, None).result(30))

        async with asyncio.timeout(60):
            while 1 not in {
                each.leader for each in trio.brokers[2].cluster.image.topics["four"].partitions
            }:
                await elect()
        await led(trio, lambda leaders: 1 in leaders)
        assert await read_all() == list(range(400))
