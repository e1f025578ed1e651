"""What a coordinator cannot store because it is too large ends with an error, not with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core import errors
from broker_core.protocol.definitions import (
    ADD_PARTITIONS_TO_TXN,
    CONSUMER_GROUP_HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    OFFSET_COMMIT,
    SHARE_GROUP_HEARTBEAT,
    SYNC_GROUP,
)
from broker_core.protocol.schema import AnyApi
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import create_topic, start_coordinators
from waylog.process.background import end_on_failure

TOO_LARGE = errors.UnknownServerError.code
LARGE = "x" * 2000
#: Topics with long names, whose names together are too large.
TOPICS = [f"{each}".ljust(249, "x") for each in range(10)]


@pytest.fixture
async def client(
    start: Callable[..., Awaitable[Broker]], connect: Callable[[Broker], Awaitable[RawClient]]
) -> RawClient:
    """A client of a broker whose topics take batches of two kilobytes at most."""
    broker = await start(message_max_bytes="2000")
    await start_coordinators(broker)
    for name in TOPICS:
        create_topic(broker, name, 1, {})
    return await connect(broker)


async def join(
    client: RawClient, metadata: bytes, instance_id: str | None, member_id: str = ""
) -> dict[str, Any]:
    """Join a group of the classic protocol as its only member."""
    return await client.call(
        JOIN_GROUP,
        5,
        {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": member_id,
            "group_instance_id": instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        },
    )


async def sync(
    client: RawClient, joined: dict[str, Any], assignment: bytes, instance_id: str | None = "i"
) -> int:
    """Send the group's assignment; return the error code."""
    answer = await client.call(
        SYNC_GROUP,
        3,
        {
            "group_id": "g",
            "generation_id": joined["generation_id"],
            "member_id": joined["member_id"],
            "group_instance_id": instance_id,
            "assignments": [{"member_id": joined["member_id"], "assignment": assignment}],
        },
    )
    return int(answer["error_code"])


async def test_a_group_with_too_large_metadata_is_told_when_it_syncs(client: RawClient) -> None:
    joined = await join(client, LARGE.encode(), "i")
    assert await sync(client, joined, b"") == TOO_LARGE
    joined = await join(client, b"", "i")
    assert await sync(client, joined, LARGE.encode()) == TOO_LARGE
    joined = await join(client, b"", "i")
    assert await sync(client, joined, b"small") == errors.NONE


async def test_a_member_with_too_many_topics_is_told_when_it_joins(client: RawClient) -> None:
    async def beat(topics: list[str]) -> dict[str, Any]:
        return await client.call(
            CONSUMER_GROUP_HEARTBEAT,
            1,
            {
                "group_id": "g",
                "member_id": "m",
                "member_epoch": 0,
                "instance_id": None,
                "rack_id": None,
                "rebalance_timeout_ms": 10_000,
                "subscribed_topic_names": topics,
                "subscribed_topic_regex": None,
                "server_assignor": None,
                "topic_partitions": [],
            },
        )

    assert (await beat(TOPICS))["error_code"] == TOO_LARGE
    while (answer := await beat(TOPICS[:1]))["error_code"] == errors.CoordinatorLoadInProgress.code:
        pass
    assert answer["error_code"] == errors.NONE


async def test_offsets_that_are_too_large_together_are_refused(client: RawClient) -> None:
    answer = await client.call(
        OFFSET_COMMIT,
        7,
        {
            "group_id": "g",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 0,
                            "committed_leader_epoch": -1,
                            "committed_metadata": LARGE[:500],
                        }
                    ],
                }
                for name in TOPICS
            ],
        },
    )
    codes = [each["error_code"] for topic in answer["topics"] for each in topic["partitions"]]
    assert codes == [TOO_LARGE] * len(TOPICS)


async def test_a_transaction_with_too_many_topics_is_refused(client: RawClient) -> None:
    producer = await client.call(
        INIT_PRODUCER_ID, 2, {"transactional_id": "x", "transaction_timeout_ms": 60_000}
    )
    answer = await client.call(
        ADD_PARTITIONS_TO_TXN,
        3,
        {
            "v3_and_below_transactional_id": "x",
            "v3_and_below_producer_id": producer["producer_id"],
            "v3_and_below_producer_epoch": producer["producer_epoch"],
            "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in TOPICS],
        },
    )
    codes = [
        each["partition_error_code"]
        for topic in answer["results_by_topic_v3_and_below"]
        for each in topic["results_by_partition"]
    ]
    assert codes == [TOO_LARGE] * len(TOPICS)


async def test_a_share_group_that_is_too_large_is_told_each_time(client: RawClient) -> None:
    async def beat(topics: list[str]) -> int:
        answer = await client.call(
            SHARE_GROUP_HEARTBEAT,
            1,
            {
                "group_id": "s",
                "member_id": "m",
                "member_epoch": 0,
                "rack_id": None,
                "subscribed_topic_names": topics,
            },
        )
        return int(answer["error_code"])

    assert await beat(TOPICS) == TOO_LARGE
    assert await beat(TOPICS) == TOO_LARGE
    assert await beat(TOPICS[:1]) == errors.NONE


async def test_other_groups_stay_where_a_subscription_is_too_large(
    start: Callable[..., Awaitable[Broker]], connect: Callable[[Broker], Awaitable[RawClient]]
) -> None:
    broker = await start(message_max_bytes="2000", offsets_topic_num_partitions="1")
    await start_coordinators(broker)
    for name in TOPICS:
        create_topic(broker, name, 1, {})
    client = await connect(broker)
    joined = await join(client, b"", "i")
    assert await sync(client, joined, b"") == errors.NONE
    groups = broker.groups.coordinator.groups
    other = groups["g"]
    for topics in (TOPICS, TOPICS[:5]):
        answer = await client.call(
            CONSUMER_GROUP_HEARTBEAT,
            0,
            {
                "group_id": "c",
                "member_id": "",
                "member_epoch": 0,
                "instance_id": None,
                "rack_id": None,
                "rebalance_timeout_ms": 30_000,
                "subscribed_topic_names": topics,
                "subscribed_topic_regex": None,
                "server_assignor": None,
                "topic_partitions": [],
            },
        )
        assert answer["error_code"] == TOO_LARGE
        assert await sync(client, joined, b"") == errors.NONE
        assert groups["g"] is other


LONG = "x" * 40_000


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        (INIT_PRODUCER_ID, 4, {"transactional_id": LONG, "transaction_timeout_ms": 1000}),
        (JOIN_GROUP, 9, {"group_id": LONG, "protocol_type": "consumer", "protocols": []}),
        (SHARE_GROUP_HEARTBEAT, 1, {"group_id": LONG, "member_id": "m"}),
        (CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": LONG, "member_id": "m"}),
    ],
    ids=lambda each: getattr(each, "name", None),
)
async def test_names_that_no_record_can_hold_cost_their_client_the_connection_alone(
    start: Callable[..., Awaitable[Broker]],
    connect: Callable[[Broker], Awaitable[RawClient]],
    api: AnyApi,
    version: int,
    body: dict[str, Any],
) -> None:
    broker = await start()
    await start_coordinators(broker)
    ended: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), ended.append)
    client = await connect(broker)
    client.send(api, version, body)
    assert await client.is_closed_by_peer()
    assert not ended


@pytest.mark.parametrize("client_id", [b"c" * 32_760, "\u20ac".encode() * 10_920])
async def test_a_client_with_the_longest_name_may_be_a_member(
    start: Callable[..., Awaitable[Broker]],
    connect: Callable[[Broker], Awaitable[RawClient]],
    client_id: bytes,
) -> None:
    broker = await start()
    await start_coordinators(broker)
    client = await connect(broker)
    client.client_id = client_id
    joined = await join(client, b"", None)
    if joined["error_code"] == errors.MemberIdRequired.code:
        joined = await join(client, b"", None, joined["member_id"])
    assert joined["error_code"] == errors.NONE
    assert await sync(client, joined, b"", None) == errors.NONE
