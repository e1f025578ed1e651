"""Leaving a consumer group of a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.closed_consumers import observed_consumers
from tests.consumers.running import await_condition
from tests.contract.broker_process import BrokerProcess
from waylog.administration import log_access
from waylog.cli import main
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.group_membership import leave_group
from waylog.kafka.topics import Topic

PARTITIONS = 4


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    yield broker.start()
    broker.stop()


@pytest.fixture
def topic(servers: str) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    ensure_topics(servers, [Topic(name, PARTITIONS)])
    return name


def config(servers: str, topic: str, **more: Any) -> dict[str, Any]:
    """Return the configuration of a member of the group that has the topic's name."""
    return consumer_config(servers, "test", topic, heartbeat_interval_ms=200, **more)


def await_assigned_by(servers: str, topic: str, member: Consumer) -> None:
    """Wait until the group has assigned everything to the member, and the member has been told.

    The member is not polled. Its request to the coordinator is answered after the assignment.
    """
    admin = AdminClient({"bootstrap.servers": servers})
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline
        members = admin.describe_consumer_groups([topic])[topic].result(60).members
        if len(members) == 1 and len(members[0].assignment.topic_partitions) == PARTITIONS:
            break
        time.sleep(0.02)
    member.committed([TopicPartition(topic, 0)], timeout=60)


def test_what_was_assigned_since_the_last_poll_is_given_back_before_the_close(
    servers: str, topic: str
) -> None:
    observed = observed_consumers()
    told: list[tuple[str, int, bool]] = []
    member = observed(config(servers, topic))

    def on_assign(_: Consumer, partitions: list[TopicPartition]) -> None:
        told.append(("assigned", len(partitions), bool(observed.held)))
        member.incremental_assign(partitions)

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        told.append(("revoked", len(partitions), bool(observed.held)))
        member.incremental_unassign(partitions)

    member.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    await_assigned_by(servers, topic, member)
    leave_group(member)
    assert told == [("assigned", PARTITIONS, False), ("revoked", PARTITIONS, False)]
    assert observed.held == [[]]
    with pytest.raises(RuntimeError):
        member.poll(0)


@pytest.mark.parametrize("is_assigned_by_hand", [False, True])
def test_records_that_were_not_polled_are_left_to_the_next_member(
    servers: str, topic: str, is_assigned_by_hand: bool
) -> None:
    producer = Producer(producer_config(servers, "test"))
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0
    member = Consumer(
        config(servers, topic, enable_auto_commit=True, enable_auto_offset_store=True)
    )
    if is_assigned_by_hand:
        member.assign([TopicPartition(topic, 0, 0)])
    else:
        member.subscribe([topic])
    polled: list[bytes | None] = []

    def has_polled() -> bool:
        message = member.poll(0.05)
        if message is not None:
            polled.append(message.value())
        return bool(polled)

    await_condition(has_polled, 60, "a record")
    leave_group(member)
    asking = Consumer(config(servers, topic))
    assert [each.offset for each in asking.committed([TopicPartition(topic, 0)], timeout=60)] == [1]
    asking.close()


def test_a_callback_that_fails_does_not_keep_the_consumer_open(servers: str, topic: str) -> None:
    observed = observed_consumers()
    member = observed(config(servers, topic))

    def on_revoke(_: Consumer, partitions: list[TopicPartition]) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))

    member.subscribe([topic], on_revoke=on_revoke)
    await_condition(lambda: member.poll(0.05) is None and member.assignment(), 30, "an assignment")
    leave_group(member)
    assert observed.held == [[]]


def test_a_console_that_reads_for_a_group_leaves_it_before_it_closes(
    servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = observed_consumers()
    monkeypatch.setattr(log_access, "Consumer", observed)
    producer = Producer(producer_config(servers, "test"))
    producer.produce(topic, b"a", partition=0)
    assert producer.flush(60) == 0
    command = ["consume", topic, "--group", topic, "--max", "1"]
    assert main([*command, "--bootstrap-servers", servers]) == 0
    assert observed.held == [[]]
