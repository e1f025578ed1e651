"""Throttled replicas catch up no faster than allowed, and delay no other replica."""

from __future__ import annotations

import asyncio

import pytest

from broker_core import errors
from broker_core.protocol.definitions import INCREMENTAL_ALTER_CONFIGS
from tests.broker_core.server.cluster.conftest import StartTrio
from tests.broker_core.server.cluster.test_cluster import (
    BROKER_RESOURCE,
    SET,
    TOPIC_RESOURCE,
    Connect,
    partitions,
)
from tests.broker_core.server.cluster.test_placement import create_on, reassign
from tests.broker_core.server.cluster.test_replication import batch, produce, replica, result_of
from tests.broker_core.server.raw_client import RawClient

RATE = 100_000
BATCH = 20_000


async def configure(client: RawClient, kind: int, name: str, **settings: str) -> None:
    answer = await client.call(
        INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [
                        {"name": key.replace("_", "."), "config_operation": SET, "value": value}
                        for key, value in settings.items()
                    ],
                }
            ],
            "validate_only": False,
        },
    )
    assert answer["responses"][0]["error_code"] == errors.NONE


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_replica_that_is_moved_takes_its_time(
    start_trio: StartTrio, connect: Connect, side: str
) -> None:
    trio = await start_trio(replica_fetch_max_bytes=str(BATCH))
    client = await connect(trio.brokers[1])
    await create_on(client, "t", [1, 2])
    await trio.until(lambda broker: broker.topics.get("t") is not None)
    for _ in range(10):
        answer = await produce(client, batch("x" * BATCH))
        assert result_of(answer)["error_code"] == errors.NONE
    throttled = "0:1" if side == "leader" else "0:3"
    await configure(
        client, TOPIC_RESOURCE, "t", **{f"{side}_replication_throttled_replicas": throttled}
    )
    await configure(
        client, BROKER_RESOURCE, "", **{f"{side}_replication_throttled_rate": str(RATE)}
    )
    await trio.until(
        lambda broker: (
            throttled in replica(broker).log.config.to_properties().values()
            if broker.node_id != 3
            else True
        )
    )
    began = asyncio.get_running_loop().time()
    assert await reassign(client, "t", 0, [1, 2, 3]) == errors.NONE
    # Replicas in sync continue as before.
    await trio.until(lambda broker: 3 in partitions(broker, "t")[0].replicas)
    assert result_of(await produce(client, batch("y")))["error_code"] == errors.NONE
    acknowledged = asyncio.get_running_loop().time() - began
    await trio.until(lambda broker: len(partitions(broker, "t")[0].isr) == 3)
    took = asyncio.get_running_loop().time() - began
    # 200 kB, of which one second's amount is not throttled.
    assert took > 0.8
    assert acknowledged < took / 2
