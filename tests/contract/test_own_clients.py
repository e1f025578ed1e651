"""The gateway's own producer and reader, on any Kafka."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from waylog.kafka.append_watch import AppendWatch
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.batch_reader import BatchReader


async def _read(bootstrap_servers: str, topic: str, tail: int | None = None) -> list[Any]:
    caught_up = asyncio.Event()
    records: list[Any] = []
    reader = BatchReader(
        *(bootstrap_servers, "reader", topic, asyncio.get_running_loop()),
        on_records=records.extend,
        on_caught_up=caught_up.set,
        tail=tail,
    )
    reader.start()
    await asyncio.wait_for(caught_up.wait(), 60)
    await reader.close()
    return records


async def test_what_was_acknowledged_is_read_where_it_was_said_to_be(
    bootstrap_servers: str, topic: str
) -> None:
    producer = BatchProducer(bootstrap_servers, "writer", asyncio.get_running_loop())
    futures = [
        producer.append(
            topic, b"value %d" % number, b"key %d" % (number % 40), [("number", b"%d" % number)]
        )
        for number in range(5000)
    ]
    positions = await asyncio.wait_for(asyncio.gather(*futures), 60)
    assert await producer.close() == 0
    stored = {
        (each.partition(), each.offset()): each for each in await _read(bootstrap_servers, topic)
    }
    assert len(stored) == len(positions) == len(set(positions))
    for number, position in enumerate(positions):
        record = stored[position.partition, position.offset]
        assert record.value() == b"value %d" % number
        assert record.key() == b"key %d" % (number % 40)


async def test_keys_go_where_other_clients_put_them(
    bootstrap_servers: str, topic: str, producer: Callable[..., Producer]
) -> None:
    theirs: dict[bytes, int] = {}
    other = producer(partitioner="murmur2_random")
    for number in range(200):
        key = b"k" * (number % 9) + b"%d" % number
        other.produce(
            topic,
            b"",
            key,
            on_delivery=lambda _, each: theirs.update({each.key() or b"": each.partition() or 0}),
        )
    assert other.flush(30) == 0
    own = BatchProducer(bootstrap_servers, "writer", asyncio.get_running_loop())
    futures = {key: own.append(topic, b"", key) for key in theirs}
    ours = {key: (await future).partition for key, future in futures.items()}
    await own.close()
    assert ours == theirs


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_other_clients_have_compressed_is_read(
    bootstrap_servers: str, topic: str, producer: Callable[..., Producer], codec: str
) -> None:
    other = producer(compression_type=codec, linger_ms=50)
    for number in range(2000):
        other.produce(topic, b"some text that can be made smaller %d" % number, b"key")
    assert await asyncio.get_running_loop().run_in_executor(None, other.flush, 30) == 0
    values = [each.value() for each in await _read(bootstrap_servers, topic)]
    assert values == [b"some text that can be made smaller %d" % each for each in range(2000)]
    assert len(await _read(bootstrap_servers, topic, tail=10)) == 10


async def test_transactions_that_were_aborted_are_left_out(
    bootstrap_servers: str, topic: str, producer: Callable[..., Producer]
) -> None:
    def transactions() -> None:
        other = producer(transactional_id=topic)
        other.init_transactions(30)
        for number in range(4):
            other.begin_transaction()
            other.produce(topic, b"%d" % number, b"key")
            other.flush()
            if number % 2:
                other.abort_transaction(30)
            else:
                other.commit_transaction(30)

    await asyncio.get_running_loop().run_in_executor(None, transactions)
    assert [each.value() for each in await _read(bootstrap_servers, topic)] == [b"0", b"2"]


@pytest.mark.parametrize("wanted", ["1", "2"])
async def test_no_more_replicas_are_missed_than_a_topic_has(
    bootstrap_servers: str, admin: AdminClient, wanted: str
) -> None:
    name = f"of-{wanted}-replicas"
    new = NewTopic(name, 2, 1, config={"min.insync.replicas": wanted})
    await asyncio.to_thread(admin.create_topics([new])[name].result, 60)
    loop = asyncio.get_running_loop()
    watch = AppendWatch(bootstrap_servers, "watch", loop, [name], lambda: -math.inf)
    producer = BatchProducer(bootstrap_servers, "watch", loop)
    try:
        async with asyncio.timeout(60):
            assert await watch.look() is None
            # The log stores with what there is, too.
            await producer.append(name, b"a record")
            assert await watch.look() is None
    finally:
        await producer.close()
        await watch.close()
        await asyncio.to_thread(admin.delete_topics([name])[name].result, 60)
