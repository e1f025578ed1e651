"""A worker in the process of the test, whose group has another member at times."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack

from confluent_kafka import Consumer

from consumers.forwarding.worker import ForwardingWorker, WorkerSettings
from tests.consumers.forwarding.running import Platform
from waylog.kafka.clients import consumer_config
from waylog.kafka.group_membership import leave_group
from waylog.kafka.topics import LOCATION
from waylog.network.outbound.reachable_networks import ReachableNetworks

GROUP = "of-this-test"


def read_again() -> list[str]:
    """Return the names of the tasks that read partitions for forwardings that are behind."""
    return [name for each in asyncio.all_tasks() if (name := each.get_name()).endswith(" again")]


async def until_read(partitions: int) -> None:
    async with asyncio.timeout(60):
        while len(read_again()) != partitions:
            await asyncio.sleep(0.05)


async def test_partitions_that_another_worker_gets_are_not_read_any_more(
    platform: Platform,
) -> None:
    settings = WorkerSettings(
        bootstrap_servers=platform.servers,
        group=GROUP,
        client_id="test",
        networks=ReachableNetworks(()),
        trusted=ssl.create_default_context(),
    )
    other = Consumer(consumer_config(platform.servers, "other", GROUP))
    async with AsyncExitStack() as stack:
        await ForwardingWorker(settings, platform.keys).start(stack)
        await until_read(4)
        other.subscribe([LOCATION])

        def has_a_half() -> bool:
            return other.poll(0.05) is None and len(other.assignment()) == 2

        try:
            async with asyncio.timeout(60):
                while not await asyncio.to_thread(has_a_half):
                    pass
            await until_read(2)
        finally:
            await asyncio.to_thread(leave_group, other)
        await until_read(4)
