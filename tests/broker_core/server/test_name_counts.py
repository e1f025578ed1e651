"""Requests that name more partitions, topics or members than there can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_core.protocol import definitions as api
from broker_core.protocol.schema import AnyApi
from broker_core.server.runtime import Broker
from tests.broker_core.server.many_things import (
    PARTITIONS_ASKED,
    Connect,
    client_of_topics,
    of_partitions,
)
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import create_topic


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> RawClient:
    return await client_of_topics(broker, connect)


@pytest.mark.parametrize(
    ("asked", "version", "fields"), [*PARTITIONS_ASKED, (api.OFFSET_DELETE, 0, {"group_id": "g"})]
)
async def test_who_names_more_partitions_than_there_can_be_is_disconnected(
    client: RawClient,
    broker: Broker,
    connect: Connect,
    asked: AnyApi,
    version: int,
    fields: dict[str, Any],
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    body = of_partitions(list(range(most // 2)), **fields)
    await client.call(asked, version, body)
    greedy = await connect(broker)
    greedy.send(asked, version, of_partitions(list(range(most // 2 + 1)), **fields))
    assert await greedy.is_closed_by_peer()


async def test_partitions_of_each_group_are_counted_for_themselves(
    client: RawClient, broker: Broker, connect: Connect
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    indexes = list(range(most))
    topics = [{"name": "t0", "partition_indexes": indexes}]
    groups = [{"group_id": f"g{number}", "topics": topics} for number in range(3)]
    answer = await client.call(api.OFFSET_FETCH, 8, {"groups": groups, "require_stable": False})
    assert [len(each["topics"][0]["partitions"]) for each in answer["groups"]] == [most] * 3
    greedy = await connect(broker)
    topics = [{"name": "t0", "partition_indexes": [*indexes, most]}]
    greedy.send(
        api.OFFSET_FETCH,
        8,
        {"groups": [{"group_id": "g", "topics": topics}], "require_stable": False},
    )
    assert await greedy.is_closed_by_peer()


async def test_produce_and_fetch_name_no_more_partitions_than_there_can_be(
    client: RawClient, broker: Broker, connect: Connect
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    for more in (0, 1):
        fetch = {
            "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20,
            "topics": [
                {
                    "topic": "t0",
                    "partitions": [
                        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1}
                        for index in range(most + more)
                    ],
                }
            ],
        }  # fmt: skip
        produce = {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [
                {"name": f"nowhere{number}", "partition_data": [{"index": 0, "records": b""}]}
                for number in range(most + more)
            ],
        }
        for asked, version, body in ((api.FETCH, 11, fetch), (api.PRODUCE, 8, produce)):
            one = await connect(broker)
            if more:
                one.send(asked, version, body)
                assert await one.is_closed_by_peer()
            else:
                await one.call(asked, version, body)


async def test_topics_without_partitions_count_too(
    client: RawClient, broker: Broker, connect: Connect
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    topics = [{"name": f"nowhere{number}", "partition_data": []} for number in range(most + 1)]
    body = {"acks": -1, "timeout_ms": 1000, "topic_data": topics[:-1]}
    assert len((await client.call(api.PRODUCE, 8, body))["responses"]) == most
    greedy = await connect(broker)
    greedy.send(api.PRODUCE, 8, {**body, "topic_data": topics})
    assert await greedy.is_closed_by_peer()


_NAMES_ASKED: list[tuple[AnyApi, int, str, Callable[[str], object], dict[str, Any]]] = [
    (
        api.CONSUMER_GROUP_HEARTBEAT,
        0,
        "subscribed_topic_names",
        lambda name: name,
        {
            "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": None,
            "rack_id": None, "rebalance_timeout_ms": 30_000, "server_assignor": None,
            "topic_partitions": [],
        },
    ),
    (
        api.SHARE_GROUP_HEARTBEAT,
        1,
        "subscribed_topic_names",
        lambda name: name,
        {
            "group_id": "s", "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": 0,
            "rack_id": None,
        },
    ),
    (api.DELETE_TOPICS, 4, "topic_names", lambda name: name, {"timeout_ms": 1000}),
    (
        api.DELETE_TOPICS,
        6,
        "topics",
        lambda name: {"name": name, "topic_id": bytes(16)},
        {"timeout_ms": 1000},
    ),
    (
        api.JOIN_GROUP,
        5,
        "protocols",
        lambda name: {"name": name, "metadata": b""},
        {
            "group_id": "j", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
            "member_id": "", "group_instance_id": None, "protocol_type": "consumer",
        },
    ),
    (
        api.LEAVE_GROUP,
        4,
        "members",
        lambda name: {"member_id": name, "group_instance_id": None},
        {"group_id": "g"},
    ),
    (
        api.CREATE_PARTITIONS,
        3,
        "topics",
        lambda name: {"name": name, "count": 2, "assignments": None},
        {"timeout_ms": 1000, "validate_only": True},
    ),
    (
        api.INCREMENTAL_ALTER_CONFIGS,
        1,
        "resources",
        lambda name: {"resource_type": 2, "resource_name": name, "configs": []},
        {"validate_only": True},
    ),
    (
        api.ALTER_CONFIGS,
        2,
        "resources",
        lambda name: {"resource_type": 2, "resource_name": name, "configs": []},
        {"validate_only": True},
    ),
    (api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, "users", lambda name: {"name": name}, {}),
    (
        api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        "deletions",
        lambda name: {"name": name, "mechanism": 1},
        {"upsertions": []},
    ),
    (
        api.CREATE_ACLS,
        2,
        "creations",
        lambda name: {
            "resource_type": 2, "resource_name": name, "resource_pattern_type": 3,
            "principal": "User:u", "host": "*", "operation": 3, "permission_type": 3,
        },
        {},
    ),
    (
        api.WRITE_TXN_MARKERS,
        1,
        "markers",
        lambda name: {
            "producer_id": 1, "producer_epoch": 0, "transaction_result": True, "topics": [],
            "coordinator_epoch": 0,
        },
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "version", "listed", "entry", "fields"), _NAMES_ASKED)
async def test_who_names_more_than_there_can_be_is_disconnected(
    client: RawClient,
    broker: Broker,
    connect: Connect,
    asked: AnyApi,
    version: int,
    listed: str,
    entry: Callable[[str], object],
    fields: dict[str, Any],
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    names = [entry(f"nowhere{number}") for number in range(most + 1)]
    await client.call(asked, version, {**fields, listed: names[:-1]})
    greedy = await connect(broker)
    greedy.send(asked, version, {**fields, listed: names})
    assert await greedy.is_closed_by_peer()


def _of_topic(
    topics: str = "topics", name: str = "name", partitions: str = "partitions"
) -> Callable[[list[int]], dict[str, Any]]:
    """Return a function that makes a request about partitions that are named by numbers alone."""
    return lambda indexes: {topics: [{name: "t0", partitions: indexes}]}


def _shared(indexes: list[int]) -> dict[str, Any]:
    partitions = [{"partition_index": each, "acknowledgement_batches": []} for each in indexes]
    return {
        "group_id": "s", "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "share_session_epoch": 0,
        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "max_records": 1, "batch_size": 1,
        "topics": [{"topic_id": bytes(16), "partitions": partitions}],
        "forgotten_topics_data": [],
    }  # fmt: skip


def _owned(indexes: list[int]) -> dict[str, Any]:
    return {
        "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": None,
        "rack_id": None, "rebalance_timeout_ms": 30_000, "server_assignor": None,
        "subscribed_topic_names": [],
        "topic_partitions": [
            {"topic_id": each.to_bytes(16, "big"), "partitions": []} for each in indexes
        ],
    }  # fmt: skip


def _in_batches(indexes: list[int]) -> dict[str, Any]:
    return {
        "transactions": [
            {
                "transactional_id": f"t{parity}", "producer_id": 9, "producer_epoch": 0,
                "verify_only": True, "topics": [{"name": "t0", "partitions": indexes[parity::2]}],
            }
            for parity in range(2)
        ],
    }  # fmt: skip


def _moved(indexes: list[int]) -> dict[str, Any]:
    partitions = [{"partition_index": each, "replicas": None} for each in indexes]
    return {"timeout_ms": 1000, "topics": [{"name": "t0", "partitions": partitions}]}


@pytest.mark.parametrize(
    ("asked", "version", "body", "fields"),
    [
        (
            api.ADD_PARTITIONS_TO_TXN,
            3,
            _of_topic("v3_and_below_topics"),
            {
                "v3_and_below_transactional_id": "t0",
                "v3_and_below_producer_id": 9,
                "v3_and_below_producer_epoch": 0,
            },
        ),
        (api.ADD_PARTITIONS_TO_TXN, 5, _in_batches, {}),
        (api.ALTER_PARTITION_REASSIGNMENTS, 0, _moved, {}),
        (api.CONSUMER_GROUP_HEARTBEAT, 0, _owned, {}),
        (api.DESCRIBE_LOG_DIRS, 1, _of_topic(name="topic"), {}),
        (api.DESCRIBE_PRODUCERS, 0, _of_topic(partitions="partition_indexes"), {}),
        (
            api.ELECT_LEADERS,
            2,
            _of_topic("topic_partitions", "topic"),
            {"election_type": 0, "timeout_ms": 1000},
        ),
        (
            api.LIST_PARTITION_REASSIGNMENTS,
            0,
            _of_topic(partitions="partition_indexes"),
            {"timeout_ms": 1000},
        ),
        (api.SHARE_ACKNOWLEDGE, 1, _shared, {}),
        (api.SHARE_FETCH, 1, _shared, {}),
    ],
)
async def test_other_requests_name_no_more_partitions_than_there_can_be(
    broker: Broker,
    connect: Connect,
    asked: AnyApi,
    version: int,
    body: Callable[[list[int]], dict[str, Any]],
    fields: dict[str, Any],
) -> None:
    create_topic(broker, "t0", 3, {})
    client = await connect(broker)
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    await client.call(asked, version, body(list(range(most))) | fields)
    greedy = await connect(broker)
    greedy.send(asked, version, body(list(range(most + 1))) | fields)
    assert await greedy.is_closed_by_peer()
