"""Share groups (KIP-932), with librdkafka's share consumer."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from broker_core.protocol.definitions import LIST_GROUPS
from tests.broker_core.server.raw_client import RawClient
from waylog.config import parse_endpoint

_LOGGER = logging.getLogger("librdkafka")
_TIMEOUT_S = 60.0


@pytest.fixture
def group(admin: AdminClient) -> str:
    """Give the name of a share group that reads from the beginning."""
    name = f"share-{uuid.uuid4().hex[:12]}"
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
    return name


@pytest.fixture
def member(bootstrap_servers: str, group: str) -> Iterator[Callable[[str], Any]]:
    """Give a function that creates members with explicit acknowledgement; close them at the end."""
    made: list[Any] = []

    def make(topic: str) -> Any:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "logger": _LOGGER,
            }
        )
        made.append(consumer)
        consumer.subscribe([topic])
        return consumer

    yield make
    for each in made:
        each.close()


def read(consumer: Any, count: int, answer: Any = AcknowledgeType.ACCEPT) -> list[bytes]:
    """Poll until this many records have come; acknowledge each with `answer`."""
    found: list[bytes] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.poll(1.0) or ():
            assert message.error() is None
            found.append(message.value())
            consumer.acknowledge(message, answer)
    consumer.commit_sync(_TIMEOUT_S)
    return found


def fill(producer: Producer, topic: str, count: int, partitions: int = 3) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(60) == 0
    return values


def test_every_record_goes_to_one_member_of_the_group(
    member: Callable[[str], Any], producer: Callable[..., Producer], topic: str
) -> None:
    values = fill(producer(), topic, 60)
    first = member(topic)
    some = read(first, 20)
    second = member(topic)
    more = fill(producer(), topic, 60)
    rest: list[bytes] = []
    deadline = time.monotonic() + _TIMEOUT_S
    while len(some) + len(rest) < 120 and time.monotonic() < deadline:
        for each in (first, second):
            for message in each.poll(0.5) or ():
                rest.append(message.value())
                each.acknowledge(message, AcknowledgeType.ACCEPT)
    assert sorted(some + rest) == sorted(values + more)


def test_what_is_released_comes_again_and_what_is_accepted_does_not(
    member: Callable[[str], Any],
    producer: Callable[..., Producer],
    make_topic: Callable[..., str],
) -> None:
    topic = make_topic(1)
    values = fill(producer(), topic, 3, 1)
    consumer = member(topic)
    assert sorted(read(consumer, 3, AcknowledgeType.RELEASE)) == values
    assert sorted(read(consumer, 3)) == values
    assert not consumer.poll(1.0)


def test_what_a_member_has_when_it_goes_counts_as_delivered(
    member: Callable[[str], Any], producer: Callable[..., Producer], make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1)
    fill(producer(), topic, 1, 1)
    counts = []
    for _ in range(2):
        consumer = member(topic)
        deadline = time.monotonic() + _TIMEOUT_S
        while not (messages := consumer.poll(1.0)):
            assert time.monotonic() < deadline
        counts += [message.delivery_count() for message in messages]
        consumer.close()
    assert counts == [1, 2]


async def test_a_share_group_is_listed_as_one(
    bootstrap_servers: str,
    member: Callable[[str], Any],
    producer: Callable[..., Producer],
    topic: str,
    group: str,
) -> None:
    fill(producer(), topic, 3)
    read(member(topic), 3)
    client = await RawClient.connect(parse_endpoint(bootstrap_servers.split(",", maxsplit=1)[0]))
    answer = await client.call(LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["share"]})
    await client.close()
    [listed] = [each for each in answer["groups"] if each["group_id"] == group]
    assert (listed["group_type"], listed["group_state"]) == ("share", "Stable")


def test_records_of_an_aborted_transaction_are_not_delivered(
    admin: AdminClient,
    member: Callable[[str], Any],
    producer: Callable[..., Producer],
    topic: str,
    group: str,
) -> None:
    entry = ConfigEntry(
        "share.isolation.level", "read_committed", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
    writer = producer(transactional_id=f"tx-{uuid.uuid4().hex}")
    writer.init_transactions(30)
    for ending, value in (("abort", b"gone"), ("commit", b"kept")):
        writer.begin_transaction()
        for partition in range(3):
            writer.produce(topic, value, partition=partition)
        writer.flush(60)
        getattr(writer, f"{ending}_transaction")(30)
    consumer = member(topic)
    assert read(consumer, 3) == [b"kept"] * 3
    assert not consumer.poll(1.0)
