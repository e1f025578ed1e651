"""Brokers that are stopped in order under load have nothing to repair at the next start."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from broker_core.server.runtime import Broker
from tests.broker_core.server.cluster.conftest import StartTrio, Trio
from tests.broker_core.server.cluster.test_cluster import Connect, create
from waylog.kafka.batch_producer import BatchProducer

STOPS = 4


def appended(broker: Broker, topic: str) -> int:
    partitions = broker.topics.partitions()
    return sum(each.log.log_end_offset for each in partitions if each.topic == topic)


async def load(trio: Trio, topic: str) -> None:
    """Append records until the task is cancelled."""
    producer = BatchProducer(
        ",".join(f"127.0.0.1:{port}" for port in trio.ports.values()),
        "load",
        asyncio.get_running_loop(),
    )
    try:
        while True:
            with contextlib.suppress(Exception):
                await producer.append(topic, b"value", b"key")
            await asyncio.sleep(0.001)
    finally:
        await producer.close(0)


@pytest.mark.parametrize("together", [True, False])
async def test_a_start_after_an_orderly_stop_repairs_nothing(
    start_trio: StartTrio, connect: Connect, caplog: pytest.LogCaptureFixture, together: bool
) -> None:
    trio = await start_trio(default_replication_factor="3", min_insync_replicas="2")
    for number in range(STOPS):
        client = await connect(trio.brokers[trio.active])
        await create(client, f"t{number}", 3)
        await trio.until(lambda broker: broker.topics.get(f"t{number}") is not None)  # noqa: B023
        loading = asyncio.create_task(load(trio, f"t{number}"))
        await trio.until(lambda broker: appended(broker, f"t{number}") > 9)  # noqa: B023
        if together:
            await asyncio.gather(*(trio.stop(node) for node in tuple(trio.brokers)))
        else:
            await trio.stop(*trio.brokers)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        caplog.clear()
        await trio.start()
        said = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
        assert not [each for each in said if "cut" in each or "dropped" in each], said
