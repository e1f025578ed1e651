"""Groups of the consumer protocol (KIP-848), in which the broker assigns partitions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.contract.reading import read
from tests.contract.test_groups import fill, poll_until

Make = Callable[..., Any]


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_the_partitions_and_one_takes_over(
    producer: Make, member: Make, topic: str, group_id: str, assignor: str
) -> None:
    fill(producer, topic, 300)
    members = [member(group_id=group_id, group_remote_assignor=assignor) for _ in range(2)]
    for each in members:
        each.subscribe([topic])
    messages = poll_until(
        members, lambda: sorted(len(each.assignment()) for each in members) == [1, 2]
    )
    assert not set(members[0].assignment()) & set(members[1].assignment())
    members[0].close()
    messages += poll_until([members[1]], lambda: len(members[1].assignment()) == 3)
    values = {message.value() for message in messages}

    def complete() -> bool:
        message = members[1].poll(0.05)
        if message is not None and message.error() is None:
            values.add(message.value())
        return len(values) == 300

    poll_until([], complete)


def test_a_group_resumes_where_it_committed(
    producer: Make, member: Make, topic: str, group_id: str
) -> None:
    fill(producer, topic, 60)
    first = member(group_id=group_id)
    first.subscribe([topic])
    read(first, 60)
    first.commit(asynchronous=False)
    first.close()
    fill(producer, topic, 9, start=60)
    second = member(group_id=group_id)
    second.subscribe([topic])
    assert sorted(int(message.value()) for message in read(second, 9)) == list(range(60, 69))


def test_topics_that_come_later_match_a_regular_expression(
    member: Make, make_topic: Make, producer: Make, group_id: str
) -> None:
    first = make_topic(1)
    each = member(group_id=group_id)
    each.subscribe(["^test-[0-9a-f]+$"])
    poll_until([each], lambda: TopicPartition(first, 0) in each.assignment())
    # Apache Kafka looks for new topics that match a regular expression only now and then; names of
    # existing topics are resolved at once.
    other = member(group_id=f"{group_id}-other")
    second = make_topic(1)
    other.subscribe(["^test-[0-9a-f]+$"])
    poll_until([other], lambda: TopicPartition(second, 0) in other.assignment())


def test_a_static_member_comes_back_to_its_partitions(
    member: Make, topic: str, group_id: str
) -> None:
    watcher = member(group_id=group_id, group_instance_id="a")
    returning = member(group_id=group_id, group_instance_id="b")
    for each in (watcher, returning):
        each.subscribe([topic])
    poll_until(
        [watcher, returning],
        lambda: sorted(len(each.assignment()) for each in (watcher, returning)) == [1, 2],
    )
    before, others = set(returning.assignment()), set(watcher.assignment())
    returning.close()
    again = member(group_id=group_id, group_instance_id="b")
    again.subscribe([topic])
    poll_until([watcher, again], lambda: set(again.assignment()) == before)
    assert set(watcher.assignment()) == others


def test_groups_are_listed_described_and_deleted(
    admin: AdminClient, member: Make, topic: str, group_id: str
) -> None:
    each = member(group_id=group_id, client_id="the-client")
    each.subscribe([topic])
    poll_until([each], lambda: len(each.assignment()) == 3)
    each.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    listed = admin.list_consumer_groups().result(60).valid
    (found,) = [one for one in listed if one.group_id == group_id]
    assert found.type == ConsumerGroupType.CONSUMER
    described = admin.describe_consumer_groups([group_id])[group_id].result(60)
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == "uniform"
    assert [one.client_id for one in described.members] == ["the-client"]
    assert len(described.members[0].assignment.topic_partitions) == 3
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group_id])[group_id].result(60)
    each.close()
    deadline = time.monotonic() + 60
    while True:
        try:
            admin.delete_consumer_groups([group_id])[group_id].result(60)
            break
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_zombie_cannot_commit(member: Make, topic: str, group_id: str) -> None:
    each = member(group_id=group_id)
    each.subscribe([topic])
    poll_until([each], lambda: len(each.assignment()) == 3)
    stranger = member(group_id=group_id)
    with pytest.raises(KafkaException, match="UNKNOWN_MEMBER_ID"):
        stranger.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
