"""Consumer groups: sharing, rebalancing, committing, resuming."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import IllegalStateError
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from broker_core.protocol.definitions import OFFSET_DELETE
from tests.broker_core.server.raw_client import RawClient
from tests.contract.reading import read
from waylog.config import parse_endpoint

Make = Callable[..., Any]


def fill(producer: Make, topic: str, count: int, start: int = 0) -> None:
    """Write numbered values to all partitions."""
    producing = producer()
    for i in range(start, start + count):
        producing.produce(topic, b"%d" % i, partition=i % 3)
    assert producing.flush(60) == 0


def poll_until(consumers: list[Any], condition: Callable[[], bool]) -> list[Any]:
    """Poll all members in turn until the condition holds; return what they read."""
    deadline = time.monotonic() + 60
    messages = []
    while not condition():
        assert time.monotonic() < deadline
        for each in consumers:
            message = each.poll(0.05)
            if message is not None and message.error() is None:
                messages.append(message)
    return messages


def test_a_group_resumes_where_it_committed(
    producer: Make, consumer: Make, topic: str, group_id: str
) -> None:
    fill(producer, topic, 60)
    first = consumer(group_id=group_id)
    first.subscribe([topic])
    read(first, 60)
    first.commit(asynchronous=False)
    first.close()
    fill(producer, topic, 9, start=60)
    second = consumer(group_id=group_id)
    second.subscribe([topic])
    assert sorted(int(message.value()) for message in read(second, 9)) == list(range(60, 69))
    places = [TopicPartition(topic, i) for i in range(3)]
    assert [each.offset for each in second.committed(places, 60)] == [20, 20, 20]


def test_metadata_of_a_commit_comes_back(consumer: Make, topic: str, group_id: str) -> None:
    consuming = consumer(group_id=group_id)
    consuming.commit(offsets=[TopicPartition(topic, 1, 7, metadata="note äß")], asynchronous=False)
    (committed,) = consuming.committed([TopicPartition(topic, 1)], 60)
    assert (committed.offset, committed.metadata) == (7, "note äß")
    (none,) = consuming.committed([TopicPartition(topic, 2)], 60)
    assert none.offset < 0


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_the_partitions_and_one_takes_over(
    producer: Make, consumer: Make, topic: str, group_id: str, strategy: str
) -> None:
    fill(producer, topic, 300)
    members = [
        consumer(group_id=group_id, partition_assignment_strategy=strategy) for _ in range(2)
    ]
    for member in members:
        member.subscribe([topic])

    def shared() -> bool:
        sizes = sorted(len(member.assignment()) for member in members)
        return sizes == [1, 2]

    messages = poll_until(members, shared)
    owned = [set(member.assignment()) for member in members]
    assert not owned[0] & owned[1]
    members[0].close()
    messages += poll_until([members[1]], lambda: len(members[1].assignment()) == 3)
    values = {message.value() for message in messages}

    def complete() -> bool:
        message = members[1].poll(0.05)
        if message is not None and message.error() is None:
            values.add(message.value())
        return len(values) == 300

    poll_until([], complete)


def test_a_member_that_dies_is_replaced_after_its_session(
    producer: Make, consumer: Make, topic: str, group_id: str
) -> None:
    # It is not closed in time but stops polling, so that its max.poll.interval.ms passes.
    silent = consumer(group_id=group_id, session_timeout_ms=6000, max_poll_interval_ms=6000)
    silent.subscribe([topic])
    poll_until([silent], lambda: len(silent.assignment()) == 3)
    other = consumer(group_id=group_id)
    other.subscribe([topic])
    poll_until([other], lambda: len(other.assignment()) == 3)


def test_a_static_member_comes_back_without_a_rebalance(
    consumer: Make, topic: str, group_id: str
) -> None:
    revoked: list[Any] = []
    watcher = consumer(group_id=group_id, group_instance_id="a")
    watcher.subscribe([topic], on_revoke=lambda _, places: revoked.extend(places))
    returning = consumer(group_id=group_id, group_instance_id="b")
    returning.subscribe([topic])
    poll_until(
        [watcher, returning],
        lambda: (
            len(watcher.assignment()) + len(returning.assignment()) == 3
            and bool(watcher.assignment())
            and bool(returning.assignment())
        ),
    )
    revoked.clear()
    before = set(returning.assignment())
    returning.close()
    again = consumer(group_id=group_id, group_instance_id="b")
    again.subscribe([topic])
    poll_until([watcher, again], lambda: bool(again.assignment()))
    assert set(again.assignment()) == before
    assert revoked == []


def test_a_zombie_cannot_commit(consumer: Make, topic: str, group_id: str) -> None:
    member = consumer(group_id=group_id)
    member.subscribe([topic])
    poll_until([member], lambda: len(member.assignment()) == 3)
    stranger = consumer(group_id=group_id)
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        stranger.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)


def test_groups_are_listed_described_and_deleted(
    admin: AdminClient, consumer: Make, topic: str, group_id: str
) -> None:
    member = consumer(group_id=group_id, client_id="the-client")
    member.subscribe([topic])
    poll_until([member], lambda: len(member.assignment()) == 3)
    member.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)

    listed = admin.list_consumer_groups().result(60).valid
    assert group_id in {each.group_id for each in listed}
    described = admin.describe_consumer_groups([group_id])[group_id].result(60)
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    assert [each.client_id for each in described.members] == ["the-client"]
    assert len(described.members[0].assignment.topic_partitions) == 3
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group_id])[group_id].result(60)

    member.close()
    asked = ConsumerGroupTopicPartitions(group_id)
    offsets = admin.list_consumer_group_offsets([asked])[group_id].result(60)
    assert {(each.partition, each.offset) for each in offsets.topic_partitions} == {(0, 5)}
    change = ConsumerGroupTopicPartitions(group_id, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([change])[group_id].result(60)
    (committed,) = consumer(group_id=group_id).committed([TopicPartition(topic, 0)], 60)
    assert committed.offset == 2
    admin.delete_consumer_groups([group_id])[group_id].result(60)
    listed = admin.list_consumer_groups().result(60).valid
    assert group_id not in {each.group_id for each in listed}


@pytest.mark.parametrize("has_member", [False, True])
def test_a_topic_that_is_made_again_is_read_from_its_beginning(
    admin: AdminClient,
    consumer: Make,
    producer: Make,
    topic: str,
    group_id: str,
    *,
    has_member: bool,
) -> None:
    kept = TopicPartition(f"{topic}-kept", 0)
    admin.create_topics([NewTopic(kept.topic, 1, 1)])[kept.topic].result(60)
    fill(producer, topic, 60)
    reading = consumer(group_id=group_id)
    reading.subscribe([topic, kept.topic])
    read(reading, 60)
    reading.commit(asynchronous=False)
    reading.commit(offsets=[TopicPartition(kept.topic, 0, 5)], asynchronous=False)
    if not has_member:
        reading.close()

    admin.delete_topics([topic])[topic].result(60)
    asked = ConsumerGroupTopicPartitions(group_id)

    def committed() -> set[tuple[str, int]]:
        offsets = admin.list_consumer_group_offsets([asked])[group_id].result(60)
        return {(each.topic, each.offset) for each in offsets.topic_partitions}

    # Of a topic that nobody has deleted they stay.
    poll_until([reading] if has_member else [], lambda: committed() == {(kept.topic, 5)})
    reading.close()
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(60)
    fill(producer, topic, 90)
    later = consumer(group_id=group_id)
    later.subscribe([topic])
    assert sorted(int(each.value()) for each in read(later, 90)) == list(range(90))


async def test_aiokafka_members_share_a_topic(
    bootstrap_servers: str, producer: Make, topic: str, group_id: str
) -> None:
    fill(producer, topic, 90)
    members = [
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            group_id=group_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            session_timeout_ms=30_000,
        )
        for _ in range(2)
    ]
    try:
        await asyncio.gather(*(member.start() for member in members))
        values: set[bytes | None] = set()
        async with asyncio.timeout(60):
            while sorted(len(member.assignment()) for member in members) != [1, 2] or not all(
                [await _is_at(member, 30) for member in members]
            ):
                for member in members:
                    batches = await member.getmany(timeout_ms=100)
                    values |= {record.value for batch in batches.values() for record in batch}
        assert len(values) == 90
        for member in members:
            await member.commit()
    finally:
        for member in members:
            await member.stop()
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=group_id) as reader:
        for partition in range(3):
            assert await reader.committed(AioTopicPartition(topic, partition)) == 30


async def _is_at(member: AIOKafkaConsumer, offset: int) -> bool:
    """Return whether a member has read its partitions up to there, also those it has got anew."""
    try:
        return all([await member.position(place) == offset for place in member.assignment()])
    except IllegalStateError:  # a partition has gone to another member
        return False


async def test_offsets_of_what_a_member_reads_are_not_deleted(
    bootstrap_servers: str, consumer: Make, producer: Make, topic: str, group_id: str
) -> None:
    fill(producer, topic, 3)
    reading = consumer(group_id=group_id)
    reading.subscribe([topic])
    poll_until([reading], lambda: bool(reading.assignment()))
    reading.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    asked = {"name": topic, "partitions": [{"partition_index": 0}]}
    client = await RawClient.connect(parse_endpoint(bootstrap_servers.split(",", maxsplit=1)[0]))
    answer = await client.call(OFFSET_DELETE, 0, {"group_id": group_id, "topics": [asked]})
    await client.close()
    assert answer["error_code"] == 0
    assert answer["topics"][0]["partitions"][0]["error_code"] == 86
