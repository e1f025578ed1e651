"""First and end offsets of logs, and offsets by time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

Make = Callable[..., Any]

START_MS = 1_700_000_000_000


@pytest.fixture
def timed_topic(producer: Make, make_topic: Make) -> str:
    """Create a topic of one partition with 100 records, ten seconds apart."""
    topic: str = make_topic(partitions=1, retention_ms="-1")
    producing: Producer = producer(batch_num_messages=7)
    for i in range(100):
        producing.produce(topic, b"%d" % i, timestamp=START_MS + i * 10_000)
    assert producing.flush(60) == 0
    return topic


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        (0, 0),
        (START_MS, 0),
        (START_MS + 1, 1),
        (START_MS + 10_000, 1),
        (START_MS + 505_000, 51),
        (START_MS + 990_000, 99),
    ],
)
def test_a_time_leads_to_the_first_record_at_it_or_after(
    consumer: Make, timed_topic: str, timestamp: int, offset: int
) -> None:
    (found,) = consumer().offsets_for_times([TopicPartition(timed_topic, 0, timestamp)], 60)
    assert found.offset == offset


def test_a_time_after_all_records_leads_to_the_end(consumer: Make, timed_topic: str) -> None:
    (found,) = consumer().offsets_for_times([TopicPartition(timed_topic, 0, 2**42)], 60)
    assert found.offset == -1


def test_the_ends_of_a_log_are_told(consumer: Make, timed_topic: str) -> None:
    assert consumer().get_watermark_offsets(TopicPartition(timed_topic, 0), 60) == (0, 100)


def test_the_newest_timestamp_is_found(admin: AdminClient, timed_topic: str) -> None:
    place = TopicPartition(timed_topic, 0)
    newest = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
    result = admin.list_offsets({place: newest})[place].result(60)
    assert (result.offset, result.timestamp) == (99, START_MS + 990_000)


async def test_aiokafka_finds_offsets_too(bootstrap_servers: str, timed_topic: str) -> None:
    place = AioTopicPartition(timed_topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers) as consuming:
        assert await consuming.beginning_offsets([place]) == {place: 0}
        assert await consuming.end_offsets([place]) == {place: 100}
        found = await consuming.offsets_for_times({place: START_MS + 15_000})
        assert found[place].offset == 2
        assert found[place].timestamp == START_MS + 20_000


def test_deleted_records_are_gone_and_the_rest_stays(
    admin: AdminClient, consumer: Make, timed_topic: str
) -> None:
    place = TopicPartition(timed_topic, 0, 40)
    assert admin.delete_records([place])[place].result(60).low_watermark == 40
    consuming = consumer()
    assert consuming.get_watermark_offsets(TopicPartition(timed_topic, 0), 60) == (40, 100)
    consuming.assign([TopicPartition(timed_topic, 0, 0)])
    message = consuming.poll(60)
    assert message is not None
    assert message.offset() == 40
