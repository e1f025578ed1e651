"""A broker that is alone takes the files of version 0.1 into its metadata log."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import INIT_PRODUCER_ID, PRODUCE
from broker_core.security.credentials import ScramUsers
from broker_core.security.scram import BY_NAME, credential_from_password
from broker_core.server.runtime import Broker
from broker_core.server.settings.settings_store import load_users, save_users
from tests.broker_core.server.raw_client import RawClient, produce_body
from tests.broker_core.server.topics import administer, create_topic

Start = Callable[..., Awaitable[Broker]]

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SECURED = {"authorizer_class_name": AUTHORIZER, "allow_everyone_if_no_acl_found": "true"}
RULE = [2, "t", 3, "User:anna", "*", 3, 3]
QUOTA = [[["user", "anna"]], {"producer_byte_rate": 10.0}]
FILES = ("topics.json", "settings.json", "producer_ids")


def users() -> ScramUsers:
    """One user."""
    found = ScramUsers()
    mechanism = BY_NAME["SCRAM-SHA-256"]
    found.put("anna", mechanism, credential_from_password(mechanism, "secret"))
    return found


def as_of_before(folder: Path, broker: Broker) -> None:
    """Turn the folder of a broker that has stopped into one of version 0.1."""
    topics: dict[str, Any] = {
        topic.name: {
            "id": str(uuid.UUID(bytes=topic.topic_id)),
            "partitions": topic.partition_count,
            "config": topic.overrides,
        }
        for topic in broker.topics
    }
    settings = {
        "version": 1,
        "scram": users().to_stored(),
        "acls": [RULE],
        "quotas": [QUOTA],
        "groups": {"g": {"share.auto.offset.reset": "earliest"}, "empty": {}},
        "broker": {
            "cluster": {"min.insync.replicas": "1", "log.retention.ms": "5000", "gone.by": "1"},
            "own": {"max.connections": "77"},
        },
    }
    (folder / "topics.json").write_text(json.dumps({"version": 1, "topics": topics}))
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "producer_ids").write_text("5000")
    shutil.rmtree(folder / "metadata")
    for path in folder.rglob("partition.metadata"):
        path.unlink()


async def produce(broker: Broker, topic: str) -> int:
    """Append a record; return its offset."""
    client = await RawClient.connect(broker.endpoint)
    batch = bytes(build_batch([(1, b"k", b"v", ())]))
    answer = await client.call(PRODUCE, 8, produce_body(topic, batch))
    await client.close()
    (result,) = answer["responses"][0]["partition_responses"]
    assert result["error_code"] == 0
    offset: int = result["base_offset"]
    return offset


async def test_everything_is_there_afterwards_and_the_files_are_not(
    start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    former = await start()
    create_topic(former, "t", 3, {"retention.bytes": "123456789"})
    create_topic(former, "u", 1, {})
    assert [await produce(former, "u") for _ in range(3)] == [0, 1, 2]
    await former.close()
    cluster_id, ids = former.cluster_id, {each.name: each.topic_id for each in former.topics}
    as_of_before(folder, former)
    for _ in range(2):
        # The second start has the metadata log alone.
        broker = await start(**SECURED)
        assert broker.cluster_id == cluster_id
        assert {each.name: each.topic_id for each in broker.topics} == ids
        topic = broker.topics.get("t")
        assert topic is not None
        assert len(topic.partitions) == 3
        assert topic.config.retention_bytes == 123456789
        assert topic.config.retention_ms == 5000
        assert broker.group_settings.groups() == ["g"]
        assert broker.network.limits.connections_max == 77
        assert list(broker.scram_users) == ["anna"]
        assert broker.authorizer is not None
        assert broker.authorizer.to_stored() == [RULE]
        assert broker.quotas.to_stored() == [QUOTA]
        assert not [name for name in FILES if (folder / name).exists()]
        assert not list(folder.glob("*-stray"))
        offset = await produce(broker, "u")
        assert offset >= 3
        client = await RawClient.connect(broker.endpoint)
        body = {"transactional_id": None, "transaction_timeout_ms": 1000}
        answer = await client.call(INIT_PRODUCER_ID, 4, body)
        await client.close()
        assert answer["producer_id"] >= 5000
        await broker.close()


async def test_what_was_not_removed_in_time_changes_nothing(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    former = await start()
    create_topic(former, "t", 1, {})
    await former.close()
    as_of_before(folder, former)
    kept = {name: (folder / name).read_bytes() for name in FILES}
    broker = await start(**SECURED)
    administer(broker, lambda operations: operations.change_topic("t", {}, validate_only=False))
    offset = broker.cluster.image.offset
    await broker.close()
    # As after a crash between the last entry and the removal.
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    again = await start(**SECURED)
    assert list(again.scram_users) == ["anna"]
    assert [topic.name for topic in again.topics] == ["t"]
    # A new start takes a few entries: the vote, the registration, the unfencing.
    assert again.cluster.image.offset - offset < 8
    assert not [name for name in FILES if (folder / name).exists()]


async def test_users_may_be_stored_whenever_the_broker_is_stopped(
    start: Start, tmp_path: Path
) -> None:
    broker = await start()
    environment = broker._environment
    await broker.close()
    for name in ("bert", "carl"):
        stored = load_users(tmp_path / "logs", environment)
        mechanism = BY_NAME["SCRAM-SHA-512"]
        stored.put(name, mechanism, credential_from_password(mechanism, "secret"))
        save_users(tmp_path / "logs", environment, stored)
        again = await start()
        assert name in again.scram_users
        await again.close()
    last = await start()
    assert sorted(last.scram_users) == ["bert", "carl"]


@pytest.mark.parametrize("name", ["settings.json"])
async def test_settings_that_cannot_be_read_let_nobody_in(
    start: Start, tmp_path: Path, name: str
) -> None:
    from waylog.config import ConfigError

    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / name).write_text("{")
    with pytest.raises(ConfigError, match=name):
        await start()
