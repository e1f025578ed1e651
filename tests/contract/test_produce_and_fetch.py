"""Guarantees to producers and consumers, with confluent-kafka and aiokafka."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.contract.reading import await_leader, read, read_topic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

Make = Callable[..., Any]


def send(producer: Producer, topic: str, values: list[bytes], **more: Any) -> list[Any]:
    """Produce and wait; return the delivered messages in the order of acknowledgement."""
    delivered: list[Any] = []
    errors: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        (delivered if error is None else errors).append(error or message)

    for value in values:
        producer.produce(topic, value, on_delivery=on_delivery, **more)
    assert producer.flush(60) == 0
    assert not errors, errors
    return delivered


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_come_back_in_order_with_every_codec_and_acks(
    producer: Make, consumer: Make, topic: str, codec: str, acks: str
) -> None:
    values = [b"value %d " % i * 10 for i in range(500)]
    consuming = consumer()
    # With acks=0 the producer does not notice a leader that is not ready: wait for it first.
    await_leader(consuming, topic, 1)
    producing = producer(acks=acks, compression_type=codec)
    for value in values:
        producing.produce(topic, value, b"key", partition=1)
    assert producing.flush(60) == 0
    consuming.assign([TopicPartition(topic, 1, 0)])
    messages = read(consuming, len(values))
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(len(values)))


@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka_reads_what_it_wrote(bootstrap_servers: str, topic: str, codec: str) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
    ) as producing:
        for i in range(100):
            await producing.send(topic, b"v%d" % i * 20, key=b"k", partition=0)
        await producing.flush()
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers) as consuming:
        place = AioTopicPartition(topic, 0)
        consuming.assign([place])
        await consuming.seek_to_beginning(place)
        values: list[bytes | None] = []
        while len(values) < 100:
            batches = await consuming.getmany(timeout_ms=60_000)
            assert batches, f"{len(values)} of 100 records"
            values += [record.value for records in batches.values() for record in records]
    assert values == [b"v%d" % i * 20 for i in range(100)]


def test_idempotent_records_have_consecutive_offsets(producer: Make, topic: str) -> None:
    producing = producer(enable_idempotence=True, max_in_flight=5, batch_num_messages=10)
    delivered = send(producing, topic, [b"%d" % i for i in range(1000)], partition=2)
    assert [message.offset() for message in delivered] == list(range(1000))
    assert [message.value() for message in delivered] == [b"%d" % i for i in range(1000)]


def test_every_client_puts_a_key_into_the_same_partition(
    producer: Make, consumer: Make, make_topic: Make
) -> None:
    topic = make_topic(partitions=7)
    keys = [b"demo/phone%d" % i for i in range(200)]
    producing = producer(partitioner="murmur2_random")
    first = {}
    for key in keys:
        (message,) = send(producing, topic, [b""], key=key)
        first[key] = message.partition()
    assert len(set(first.values())) == 7
    for message in read_topic(consumer(), topic, 7, len(keys)):
        assert message.partition() == first[message.key()]


def test_records_without_a_key_use_all_partitions(producer: Make, topic: str) -> None:
    producing = producer(sticky_partitioning_linger_ms=0)
    delivered = [send(producing, topic, [b"x"])[0] for _ in range(60)]
    assert {message.partition() for message in delivered} == {0, 1, 2}


def test_headers_nulls_and_empty_values_come_back_as_they_were(
    producer: Make, consumer: Make, topic: str
) -> None:
    records: list[dict[str, Any]] = [
        {"value": None, "key": None},
        {"value": b"", "key": b""},
        {"value": None, "key": b"tombstone"},
        {"value": b"v", "key": None, "headers": [("a", b"1"), ("a", b"2"), ("b", None)]},
        {"value": b"v", "headers": [("traceparent", b"00-aa-bb-01"), ("", b"")]},
    ]
    producing = producer()
    for record in records:
        producing.produce(topic, partition=0, **record)
    assert producing.flush(60) == 0
    consuming = consumer()
    consuming.assign([TopicPartition(topic, 0, 0)])
    for record, message in zip(records, read(consuming, len(records)), strict=True):
        assert message.value() == record["value"]
        assert message.key() == record.get("key")
        assert message.headers() == record.get("headers")


def test_large_messages_pass_and_larger_ones_are_refused(
    producer: Make, consumer: Make, make_topic: Make
) -> None:
    topic = make_topic(partitions=1, max_message_bytes="3000000")
    large = os.urandom(2_900_000)
    producing = producer(message_max_bytes=10_000_000)
    send(producing, topic, [large, b"small"])
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        send(producing, topic, [os.urandom(3_100_000)])
    # A consumer with a small fetch limit gets the large message all the same.
    consuming = consumer(fetch_message_max_bytes=1000)
    messages = read_topic(consuming, topic, 1, 2)
    assert [message.value() for message in messages] == [large, b"small"]


def test_a_consumer_that_waits_gets_a_record_at_once(
    producer: Make, consumer: Make, topic: str
) -> None:
    consuming = consumer(fetch_wait_max_ms=10_000)
    consuming.assign([TopicPartition(topic, 0, 0)])
    producing = producer(linger_ms=0)
    send(producing, topic, [b"first"], partition=0)
    read(consuming, 1)
    # Its fetch now waits at the broker; far less than fetch.wait.max.ms may pass.
    delays = []
    for _ in range(20):
        started = time.perf_counter()
        send(producing, topic, [b"next"], partition=0)
        read(consuming, 1)
        delays.append(time.perf_counter() - started)
    assert sorted(delays)[len(delays) // 2] < 3


async def test_a_fetch_waits_no_longer_than_it_was_asked_to(
    bootstrap_servers: str, topic: str
) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, fetch_max_wait_ms=200
    ) as consuming:
        consuming.assign([AioTopicPartition(topic, 0)])
        async with asyncio.timeout(60):
            assert await consuming.getmany(timeout_ms=600) == {}


def test_what_is_read_can_be_limited_by_bytes(producer: Make, consumer: Make, topic: str) -> None:
    send(producer(batch_num_messages=1), topic, [bytes(10_000)] * 50, partition=0)
    consuming = consumer(fetch_max_bytes=30_000, message_max_bytes=30_000)
    assert len(read_topic(consuming, topic, 3, 50)) == 50


def test_producing_to_a_topic_that_does_not_exist_fails(producer: Make) -> None:
    producing = producer(topic_metadata_propagation_max_ms=500)
    with pytest.raises(AssertionError, match="UNKNOWN_TOPIC_OR_PART"):
        send(producing, "no-such-topic", [b"x"])


def test_reading_beyond_the_end_is_out_of_range(consumer: Make, topic: str) -> None:
    consuming = consumer(auto_offset_reset="error")
    consuming.assign([TopicPartition(topic, 0, 1000)])
    (message,) = consuming.consume(1, 60)
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_many_producers_at_once_lose_nothing(producer: Make, consumer: Make, topic: str) -> None:
    producers = [producer(compression_type="lz4") for _ in range(5)]
    for i in range(200):
        for number, each in enumerate(producers):
            each.produce(topic, b"%d-%d" % (number, i), b"k%d" % (i % 9))
    for each in producers:
        assert each.flush(60) == 0
    consuming: Consumer = consumer()
    values = [message.value() for message in read_topic(consuming, topic, 3, 1000)]
    assert sorted(values) == sorted(b"%d-%d" % (n, i) for n in range(5) for i in range(200))
