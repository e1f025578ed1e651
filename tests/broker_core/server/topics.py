"""Topics of a broker that is alone, created and deleted as its clients do, but without a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from broker_core import errors
from broker_core.coordinator.offsets import OFFSETS_TOPIC
from broker_core.coordinator.sharing.share_records import STATE_TOPIC
from broker_core.coordinator.transaction import TRANSACTIONS_TOPIC
from broker_core.server.partitions.topics import Topic
from broker_core.server.runtime import Broker
from broker_core.server.settings.admin_operations import AdminOperations


def administer(broker: Broker, action: Callable[[AdminOperations], object]) -> None:
    """Have the broker's own controller decide; raises BrokerError if it refuses."""
    results: list[errors.BrokerError | None] = []

    def perform(operations: AdminOperations) -> None:
        action(operations)

    broker.cluster.administer(perform, results.append)
    (refusal,) = results
    if refusal is not None:
        raise refusal


def create_topic(broker: Broker, name: str, partitions: int, overrides: Mapping[str, str]) -> Topic:
    """Create a topic; raises BrokerError."""
    administer(
        broker,
        lambda operations: operations.create_topic(
            name, partitions, -1, [], overrides, validate_only=False
        ),
    )
    topic = broker.topics.get(name)
    assert topic is not None
    return topic


def delete_topic(broker: Broker, topic: Topic) -> None:
    """Delete a topic; raises BrokerError."""
    administer(broker, lambda operations: operations.delete_topic(topic.name))


async def all_open(broker: Broker, name: str) -> Topic:
    """Return a topic when all replicas that belong here are open."""
    async with asyncio.timeout(60):
        while (topic := broker.topics.get(name)) is None or (
            len(topic.partitions) < topic.partition_count
        ):
            await asyncio.sleep(0.001)
    return topic


async def start_coordinators(broker: Broker) -> None:
    """Have the coordinators' topics created, and wait until they are loaded.

    Clients that look for a coordinator cause the same.
    """
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, STATE_TOPIC):
        if broker.topics.get(name) is None:
            broker.cluster.create_internal_topic(name)
    coordinators = (broker.groups, broker.transactions, broker.share_coordinator)
    async with asyncio.timeout(60):
        while any(each.shards.is_loading for each in coordinators):
            await asyncio.sleep(0.001)
