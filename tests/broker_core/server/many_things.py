"""Requests about many things for tests, and a broker with topics that they name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from broker_core.protocol import definitions as api
from broker_core.protocol.schema import AnyApi
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import create_topic

Connect = Callable[[Broker], Awaitable[RawClient]]

NAMES = [f"t{number}" for number in range(130)]
#: Every third topic exists.
THERE = NAMES[::3]


async def client_of_topics(broker: Broker, connect: Connect) -> RawClient:
    """Create the topics, wait until groups and transactions are coordinated, and connect."""
    for number, name in enumerate(THERE):
        create_topic(broker, name, 1 + number % 3, {})
    client = await connect(broker)
    async with asyncio.timeout(60):
        for kind in (0, 1):
            body = {"key_type": kind, "coordinator_keys": ["t0"]}
            while any(
                each["error_code"]
                for each in (await client.call(api.FIND_COORDINATOR, 4, body))["coordinators"]
            ):
                await asyncio.sleep(0.01)
    return client


def new_topics(names: list[str]) -> dict[str, Any]:
    """Return a request that creates topics of one partition."""
    more = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [{"name": each, **more} for each in names], "timeout_ms": 60_000}


def changed_settings(names: list[str], *, operation: bool = True) -> dict[str, Any]:
    """Return a request that validates a setting of topics; `operation`: for the incremental API."""
    setting = {"name": "retention.ms", "value": "1000"}
    configs = [setting | {"config_operation": 0} if operation else setting]
    resources = [{"resource_type": 2, "resource_name": each, "configs": configs} for each in names]
    return {"resources": resources, "validate_only": True}


def of_partitions(indexes: list[int], **fields: Any) -> dict[str, Any]:
    """Return a request about these partitions of a topic that exists, and of one that does not."""
    partitions = [
        {
            "partition_index": index, "partition": index, "timestamp": -1, "leader_epoch": 0,
            "offset": 0, "committed_offset": index, "committed_metadata": "",
        }
        for index in indexes
    ]  # fmt: skip
    names = ("t0", "nowhere")
    return {
        "topics": [{"name": each, "topic": each, "partitions": partitions} for each in names]
    } | fields


#: APIs, versions, and the other fields of a request that `of_partitions` makes.
PARTITIONS_ASKED: list[tuple[AnyApi, int, dict[str, Any]]] = [
    (api.LIST_OFFSETS, 6, {}),
    (api.OFFSET_FOR_LEADER_EPOCH, 4, {}),
    (api.DELETE_RECORDS, 2, {"timeout_ms": 10_000}),
    (
        api.OFFSET_COMMIT,
        8,
        {"group_id": "t0", "generation_id_or_member_epoch": -1, "member_id": ""},
    ),
    (
        api.TXN_OFFSET_COMMIT,
        3,
        {
            "transactional_id": "t0", "group_id": "t0", "producer_id": 9, "producer_epoch": 0,
            "generation_id": -1, "member_id": "",
        },
    ),
]  # fmt: skip
