"""Topics: created, described, altered, extended and deleted by clients."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.contract.reading import await_leader
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import Topic

Make = Callable[..., Any]


def create(admin: AdminClient, name: str, partitions: int = 1, **more: Any) -> None:
    """Create one topic, or raise the broker's error."""
    more.setdefault("replication_factor", 1)
    admin.create_topics([NewTopic(name, partitions, **more)])[name].result(60)


def code_of(raised: pytest.ExceptionInfo[KafkaException]) -> int:
    """Return the error code inside an exception."""
    code: int = raised.value.args[0].code()
    return code


@pytest.mark.parametrize(
    ("name", "partitions", "more", "code"),
    [
        ("bad name", 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("..", 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("x" * 250, 1, {}, KafkaError.TOPIC_EXCEPTION),
        ("no-partitions", 0, {}, KafkaError.INVALID_PARTITIONS),
        ("replicated", 1, {"replication_factor": 99}, KafkaError.INVALID_REPLICATION_FACTOR),
        ("odd-config", 1, {"config": {"retention.ms": "soon"}}, KafkaError.INVALID_CONFIG),
        ("no-config", 1, {"config": {"no.such.config": "1"}}, KafkaError.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_kafkas_code(
    admin: AdminClient, name: str, partitions: int, more: dict[str, Any], code: int
) -> None:
    with pytest.raises(KafkaException) as raised:
        create(admin, name, partitions, **more)
    assert code_of(raised) == code


def test_a_topic_exists_once(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as raised:
        create(admin, topic)
    assert code_of(raised) == KafkaError.TOPIC_ALREADY_EXISTS


def test_the_default_replication_factor_may_be_asked_for(admin: AdminClient) -> None:
    create(admin, f"test-{uuid.uuid4().hex}", replication_factor=-1)


def test_a_topic_is_described_and_listed(admin: AdminClient, topic: str) -> None:
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(60)
    assert described.name == topic
    assert [each.id for each in described.partitions] == [0, 1, 2]
    assert all(each.leader is not None for each in described.partitions)
    assert topic in admin.list_topics(timeout=60).topics
    cluster = admin.describe_cluster().result(60)
    assert cluster.cluster_id
    assert cluster.controller is not None


def test_a_topic_that_is_not_there_is_unknown(admin: AdminClient) -> None:
    missing = admin.list_topics("no-such-topic", timeout=60).topics["no-such-topic"]
    assert missing.error is not None
    assert missing.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_settings_are_described_and_changed(admin: AdminClient, make_topic: Make) -> None:
    topic = make_topic(partitions=1, retention_ms="1234567")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(60)
    assert entries["retention.ms"].value == "1234567"
    assert not entries["retention.ms"].is_default
    assert entries["cleanup.policy"].value == "delete"

    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "999", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND
            ),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(60)
    deadline = time.monotonic() + 60
    while entries["retention.ms"].value != "999":
        assert time.monotonic() < deadline
        entries = admin.describe_configs([resource])[resource].result(60)
    assert entries["cleanup.policy"].value == "delete,compact"

    undo = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
        ],
    )
    admin.incremental_alter_configs([undo])[undo].result(60)
    while entries["retention.ms"].value == "999":
        assert time.monotonic() < deadline
        entries = admin.describe_configs([resource])[resource].result(60)


def test_a_topic_grows_but_never_shrinks(admin: AdminClient, producer: Make, topic: str) -> None:
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
    with pytest.raises(KafkaException) as raised:
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    assert code_of(raised) == KafkaError.INVALID_PARTITIONS
    deadline = time.monotonic() + 60
    while len(admin.list_topics(topic, 60).topics[topic].partitions) < 5:
        assert time.monotonic() < deadline
    delivered: list[Any] = []
    producing = producer()
    producing.produce(
        topic, b"x", partition=4, on_delivery=lambda error, _: delivered.append(error)
    )
    assert producing.flush(60) == 0
    assert delivered == [None]


def test_a_deleted_topic_is_gone_and_can_come_again_empty(
    admin: AdminClient, producer: Make, consumer: Make, topic: str
) -> None:
    producing = producer()
    producing.produce(topic, b"old", partition=0)
    assert producing.flush(60) == 0
    admin.delete_topics([topic])[topic].result(60)
    with pytest.raises(KafkaException) as raised:
        admin.delete_topics([topic])[topic].result(60)
    assert code_of(raised) == KafkaError.UNKNOWN_TOPIC_OR_PART
    deadline = time.monotonic() + 60
    while topic in admin.list_topics(timeout=60).topics:
        assert time.monotonic() < deadline
    create(admin, topic, 3)
    assert await_leader(consumer(), topic, 0) == (0, 0)


async def test_aiokafka_creates_and_deletes(bootstrap_servers: str) -> None:
    name = f"test-{uuid.uuid4().hex}"
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await client.start()
    try:
        await client.create_topics([AioNewTopic(name, 2, 1)])
        deadline = time.monotonic() + 60
        # The controller knows the topic now; a broker learns of it a moment later.
        while name not in await client.list_topics():
            assert time.monotonic() < deadline
        await client.delete_topics([name])
        while name in await client.list_topics():
            assert time.monotonic() < deadline
    finally:
        await client.close()


def test_the_platforms_topics_are_created_once(bootstrap_servers: str) -> None:
    topics = (
        Topic(f"test-{uuid.uuid4().hex}", 4, {"retention.ms": "1000"}),
        Topic(f"test-{uuid.uuid4().hex}", 4, {"cleanup.policy": "compact,delete"}),
    )
    assert set(ensure_topics(bootstrap_servers, topics)) == {topic.name for topic in topics}
    assert ensure_topics(bootstrap_servers, topics) == []
