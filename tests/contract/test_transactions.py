"""Transactions: atomicity, also of offsets; fencing; the fate of unfinished transactions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.contract.reading import read, read_topic

Make = Callable[..., Any]
TIMEOUT_S = 60


@pytest.fixture
def transactional_id() -> str:
    """Give a transactional id that was not used before."""
    return f"transactional-{uuid.uuid4().hex[:12]}"


def start(producer: Make, transactional_id: str, **options: Any) -> Producer:
    """Create a producer and initialise its transactional id."""
    producing: Producer = producer(transactional_id=transactional_id, **options)
    producing.init_transactions(TIMEOUT_S)
    return producing


def write(producing: Producer, topic: str, *values: str, partition: int = 0) -> None:
    """Write in the open transaction."""
    for value in values:
        producing.produce(topic, value, partition=partition)
    assert producing.flush(TIMEOUT_S) == 0


def values(messages: list[Any]) -> list[str]:
    """Return the values of messages as text."""
    return [message.value().decode() for message in messages]


def end_offset(admin: AdminClient, topic: str, level: IsolationLevel, partition: int = 0) -> int:
    """Return the offset up to which readers of an isolation level can read."""
    place = TopicPartition(topic, partition)
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    result = admin.list_offsets({place: latest}, isolation_level=level)
    offset: int = result[place].result(TIMEOUT_S).offset
    return offset


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    producer: Make, consumer: Make, topic: str, transactional_id: str
) -> None:
    producing = start(producer, transactional_id)
    for number in range(6):
        producing.begin_transaction()
        for partition in range(3):
            write(producing, topic, f"{number}", partition=partition)
        if number % 2:
            producing.abort_transaction(TIMEOUT_S)
        else:
            producing.commit_transaction(TIMEOUT_S)
    committed = consumer(isolation_level="read_committed")
    assert sorted(values(read_topic(committed, topic, 3, 9))) == ["0"] * 3 + ["2"] * 3 + ["4"] * 3
    everything = consumer(isolation_level="read_uncommitted")
    assert len(read_topic(everything, topic, 3, 18)) == 18


def test_an_open_transaction_holds_back_readers_of_committed_records(
    producer: Make, consumer: Make, admin: AdminClient, topic: str, transactional_id: str
) -> None:
    plain = producer()
    write(plain, topic, "before")
    producing = start(producer, transactional_id)
    producing.begin_transaction()
    write(producing, topic, "inside")
    write(plain, topic, "after")
    assert end_offset(admin, topic, IsolationLevel.READ_COMMITTED) == 1
    assert end_offset(admin, topic, IsolationLevel.READ_UNCOMMITTED) == 3
    reading: Consumer = consumer(isolation_level="read_committed")
    reading.assign([TopicPartition(topic, 0, 0)])
    assert values(read(reading, 1)) == ["before"]
    assert reading.poll(0.5) is None
    producing.commit_transaction(TIMEOUT_S)
    assert values(read(reading, 2)) == ["inside", "after"]
    assert end_offset(admin, topic, IsolationLevel.READ_COMMITTED) == 4


def test_a_second_producer_fences_the_first(
    producer: Make, consumer: Make, topic: str, transactional_id: str
) -> None:
    first = start(producer, transactional_id)
    first.begin_transaction()
    write(first, topic, "of the first")
    second = start(producer, transactional_id)
    second.begin_transaction()
    write(second, topic, "of the second")
    second.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].fatal()
    assert raised.value.args[0].code() in {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
    assert values(read_topic(consumer(isolation_level="read_committed"), topic, 1, 1)) == [
        "of the second"
    ]


def test_a_transaction_that_takes_too_long_is_aborted(
    producer: Make, consumer: Make, topic: str, transactional_id: str
) -> None:
    producing = start(producer, transactional_id, transaction_timeout_ms=1000)
    producing.begin_transaction()
    write(producing, topic, "too late")
    plain = producer()
    write(plain, topic, "plain")
    # Apache Kafka looks for expired transactions every 10 s.
    reading = consumer(isolation_level="read_committed")
    assert values(read_topic(reading, topic, 1, 1)) == ["plain"]
    with pytest.raises(KafkaException):
        producing.commit_transaction(TIMEOUT_S)


def test_offsets_of_a_transaction_count_when_it_commits(
    producer: Make, consumer: Make, topic: str, transactional_id: str
) -> None:
    write(producer(), topic, *"abcd")
    group_id = f"group-{uuid.uuid4().hex[:12]}"
    reading: Consumer = consumer(group_id=group_id)
    reading.subscribe([topic])
    read(reading, 4)
    producing = start(producer, transactional_id)
    place = TopicPartition(topic, 0)

    def send(offset: int) -> None:
        producing.begin_transaction()
        write(producing, topic, f"up to {offset}", partition=1)
        producing.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], reading.consumer_group_metadata(), TIMEOUT_S
        )

    send(2)
    producing.abort_transaction(TIMEOUT_S)
    assert reading.committed([place], TIMEOUT_S)[0].offset < 0
    send(3)
    producing.commit_transaction(TIMEOUT_S)
    assert reading.committed([place], TIMEOUT_S)[0].offset == 3


def test_offsets_that_are_not_decided_are_unstable(
    producer: Make, consumer: Make, topic: str, transactional_id: str
) -> None:
    group_id = f"group-{uuid.uuid4().hex[:12]}"
    owner: Consumer = consumer(group_id=group_id)
    producing = start(producer, transactional_id)
    producing.begin_transaction()
    producing.send_offsets_to_transaction(
        [TopicPartition(topic, 0, 7)], owner.consumer_group_metadata(), TIMEOUT_S
    )
    other: Consumer = consumer(group_id=group_id, isolation_level="read_committed")
    with pytest.raises(KafkaException):
        other.committed([TopicPartition(topic, 0)], 1.0)
    producing.commit_transaction(TIMEOUT_S)
    assert other.committed([TopicPartition(topic, 0)], TIMEOUT_S)[0].offset == 7


def test_a_zombies_offsets_are_refused(
    producer: Make, consumer: Make, topic: str, transactional_id: str
) -> None:
    group_id = f"group-{uuid.uuid4().hex[:12]}"
    member: Consumer = consumer(group_id=group_id)
    member.subscribe([topic])
    deadline = time.monotonic() + TIMEOUT_S
    while not member.assignment():
        assert time.monotonic() < deadline
        member.poll(0.1)
    metadata = member.consumer_group_metadata()
    member.close()
    producing = start(producer, transactional_id)
    producing.begin_transaction()
    with pytest.raises(KafkaException):
        producing.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], metadata, TIMEOUT_S)
    producing.abort_transaction(TIMEOUT_S)


def test_a_transaction_without_records_ends(producer: Make, transactional_id: str) -> None:
    producing = start(producer, transactional_id)
    for _ in range(3):
        producing.begin_transaction()
        producing.commit_transaction(TIMEOUT_S)
        producing.begin_transaction()
        producing.abort_transaction(TIMEOUT_S)


def test_a_timeout_beyond_the_limit_is_refused(producer: Make, transactional_id: str) -> None:
    producing = producer(
        transactional_id=transactional_id, transaction_timeout_ms=16 * 60_000,
        message_timeout_ms=16 * 60_000,
    )  # fmt: skip
    with pytest.raises(KafkaException) as raised:
        producing.init_transactions(TIMEOUT_S)
    assert raised.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
