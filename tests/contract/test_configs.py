"""Settings of topics and of the broker: their sources, and how they change."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from broker_core.protocol.definitions import INCREMENTAL_ALTER_CONFIGS
from tests.broker_core.server.raw_client import RawClient
from waylog.config import parse_endpoint

Make = Callable[..., Any]


def describe(admin: AdminClient, kind: Any, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    return dict(admin.describe_configs([resource])[resource].result(60))


def alter(
    admin: AdminClient,
    kind: Any,
    name: str,
    operation: Any = AlterConfigOpType.SET,
    **changes: str | None,
) -> None:
    """Change settings, or raise the broker's error."""
    resource = ConfigResource(
        kind,
        name,
        incremental_configs=[
            ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
            for key, value in changes.items()
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result(60)


def source(entry: Any) -> ConfigSource:
    return ConfigSource(entry.source)


def alter_all(bootstrap_servers: str, operation: Any, **changes: str | None) -> None:
    """Change settings of all brokers, for which librdkafka offers no resource name."""

    async def send() -> dict[str, Any]:
        client = await RawClient.connect(
            parse_endpoint(bootstrap_servers.split(",", maxsplit=1)[0])
        )
        configs = [
            {"name": key.replace("_", "."), "config_operation": operation.value, "value": value}
            for key, value in changes.items()
        ]
        resource = {"resource_type": 4, "resource_name": "", "configs": configs}
        body = {"resources": [resource], "validate_only": False}
        answer = await client.call(INCREMENTAL_ALTER_CONFIGS, 1, body)
        await client.close()
        return answer

    assert asyncio.run(send())["responses"][0]["error_code"] == 0


def await_value(admin: AdminClient, kind: Any, name: str, setting: str, value: str) -> Any:
    """Wait for a value and return its entry: Apache Kafka's brokers learn of changes later."""
    deadline = time.monotonic() + 60
    while True:
        entry = describe(admin, kind, name).get(setting)
        if entry is not None and entry.value == value:
            return entry
        assert time.monotonic() < deadline, entry
        time.sleep(0.05)


@pytest.fixture
def set_for_all(bootstrap_servers: str) -> Iterator[Callable[..., None]]:
    """Give a function that changes settings of all brokers; they are reset after the test."""
    changed: dict[str, None] = {}

    def change(**changes: str) -> None:
        changed.update(dict.fromkeys(changes))
        alter_all(bootstrap_servers, AlterConfigOpType.SET, **changes)

    yield change
    alter_all(bootstrap_servers, AlterConfigOpType.DELETE, **changed)


@pytest.fixture
def broker_id(admin: AdminClient) -> str:
    return str(next(iter(admin.list_topics(timeout=60).brokers)))


def test_a_setting_says_where_it_comes_from(
    admin: AdminClient, make_topic: Make, set_for_all: Make
) -> None:
    topic = make_topic(retention_ms="1000000")
    set_for_all(log_segment_bytes="2000000")
    entry = await_value(admin, ResourceType.TOPIC, topic, "segment.bytes", "2000000")
    assert source(entry) is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = describe(admin, ResourceType.TOPIC, topic)
    assert entries["retention.ms"].value == "1000000"
    assert source(entries["retention.ms"]) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert source(entries["index.interval.bytes"]) is ConfigSource.DEFAULT_CONFIG
    assert not entries["retention.ms"].is_read_only


def test_a_setting_of_all_brokers_holds_for_topics_and_can_be_taken_back(
    admin: AdminClient, make_topic: Make, bootstrap_servers: str
) -> None:
    topic = make_topic()
    alter_all(bootstrap_servers, AlterConfigOpType.SET, message_max_bytes="12345")
    await_value(admin, ResourceType.TOPIC, topic, "max.message.bytes", "12345")
    alter_all(bootstrap_servers, AlterConfigOpType.DELETE, message_max_bytes=None)
    await_value(admin, ResourceType.TOPIC, topic, "max.message.bytes", "1048588")


def test_a_setting_of_one_broker_stands_above_that_of_all(
    admin: AdminClient, set_for_all: Make, broker_id: str
) -> None:
    set_for_all(log_retention_ms="5000000")
    alter(admin, ResourceType.BROKER, broker_id, log_retention_ms="6000000")
    try:
        entry = await_value(admin, ResourceType.BROKER, broker_id, "log.retention.ms", "6000000")
        assert source(entry) is ConfigSource.DYNAMIC_BROKER_CONFIG
        assert not entry.is_read_only
    finally:
        alter(
            admin, ResourceType.BROKER, broker_id, AlterConfigOpType.DELETE, log_retention_ms=None
        )


def test_the_limits_of_connections_change_while_the_broker_runs(
    admin: AdminClient, broker_id: str
) -> None:
    alter(admin, ResourceType.BROKER, broker_id, max_connections="1000")
    await_value(admin, ResourceType.BROKER, broker_id, "max.connections", "1000")
    alter(admin, ResourceType.BROKER, broker_id, AlterConfigOpType.DELETE, max_connections=None)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"log_dirs": "/elsewhere"}, KafkaError.INVALID_REQUEST),
        ({"node_id": "7"}, KafkaError.INVALID_REQUEST),
        ({"message_max_bytes": "many"}, KafkaError.INVALID_REQUEST),
    ],
    ids=str,
)
def test_what_a_broker_is_started_with_cannot_change(
    admin: AdminClient, broker_id: str, changes: dict[str, str], code: int
) -> None:
    with pytest.raises(KafkaException) as raised:
        alter(admin, ResourceType.BROKER, broker_id, **changes)
    assert raised.value.args[0].code() == code


def test_a_list_is_added_to_and_taken_from(admin: AdminClient, topic: str) -> None:
    alter(admin, ResourceType.TOPIC, topic, AlterConfigOpType.APPEND, cleanup_policy="compact")
    await_value(admin, ResourceType.TOPIC, topic, "cleanup.policy", "delete,compact")
    alter(admin, ResourceType.TOPIC, topic, AlterConfigOpType.SUBTRACT, cleanup_policy="delete")
    await_value(admin, ResourceType.TOPIC, topic, "cleanup.policy", "compact")


@pytest.mark.parametrize(
    ("operation", "changes", "code"),
    [
        (AlterConfigOpType.APPEND, {"retention_ms": "1"}, KafkaError.INVALID_CONFIG),
        (AlterConfigOpType.SET, {"no_such": "1"}, KafkaError.INVALID_CONFIG),
        (AlterConfigOpType.SET, {"retention_ms": "soon"}, KafkaError.INVALID_CONFIG),
        (AlterConfigOpType.SET, {"segment_bytes": "1"}, KafkaError.INVALID_CONFIG),
        (AlterConfigOpType.SET, {"min_insync_replicas": "0"}, KafkaError.INVALID_CONFIG),
        (AlterConfigOpType.SET, {"cleanup_policy": "burn"}, KafkaError.INVALID_CONFIG),
        (AlterConfigOpType.SET, {"compression_type": "zip"}, KafkaError.INVALID_CONFIG),
        (AlterConfigOpType.SET, {"min_cleanable_dirty_ratio": "2"}, KafkaError.INVALID_CONFIG),
        (AlterConfigOpType.SET, {"message_timestamp_type": "Now"}, KafkaError.INVALID_CONFIG),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_is_refused(
    admin: AdminClient, topic: str, operation: Any, changes: dict[str, str], code: int
) -> None:
    with pytest.raises(KafkaException) as raised:
        alter(admin, ResourceType.TOPIC, topic, operation, **changes)
    assert raised.value.args[0].code() == code


def test_settings_of_what_does_not_exist(admin: AdminClient) -> None:
    with pytest.raises(KafkaException) as raised:
        describe(admin, ResourceType.TOPIC, "no-such-topic")
    assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_min_insync_replicas_is_set_for_all_brokers_from_the_start(
    admin: AdminClient, topic: str, make_topic: Make
) -> None:
    entry = describe(admin, ResourceType.TOPIC, topic)["min.insync.replicas"]
    assert entry.value == "1"
    assert source(entry) is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    own = describe(admin, ResourceType.TOPIC, make_topic(min_insync_replicas="1"))
    assert source(own["min.insync.replicas"]) is ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_clients_learn_when_they_have_to_log_in_again(admin: AdminClient, broker_id: str) -> None:
    entry = describe(admin, ResourceType.BROKER, broker_id)["connections.max.reauth.ms"]
    assert entry.value == "0"
    assert entry.is_read_only


def test_what_means_nothing_to_a_broker_is_kept_and_shown(
    admin: AdminClient, broker_id: str
) -> None:
    name = "sasl.kerberos.min.time.before.relogin"
    alter(admin, ResourceType.BROKER, broker_id, **{name: "58000"})
    await_value(admin, ResourceType.BROKER, broker_id, name, "58000")
    alter(admin, ResourceType.BROKER, broker_id, AlterConfigOpType.DELETE, **{name: None})


def test_a_group_has_settings_of_its_own(admin: AdminClient) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    alter(admin, ResourceType.GROUP, group, **{"consumer.session.timeout.ms": "50000"})
    await_value(admin, ResourceType.GROUP, group, "consumer.session.timeout.ms", "50000")
    shown = describe(admin, ResourceType.GROUP, group)
    assert shown["share.auto.offset.reset"].value == "latest"
    with pytest.raises(KafkaException) as refused:
        alter(admin, ResourceType.GROUP, group, **{"share.auto.offset.reset": "nowhere"})
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
