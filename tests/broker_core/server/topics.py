"""Topics of a broker that is alone, created and deleted as its clients do, but without a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker_core import errors
from broker_core.server.cluster.admin_operations import AdminOperations
from broker_core.server.partitions.topics import Topic
from broker_core.server.runtime import Broker


def administer(broker: Broker, action: Callable[[AdminOperations], object]) -> None:
    """Have the broker's own controller decide; raises BrokerError if it refuses."""
    results: list[errors.BrokerError | None] = []

    def perform(operations: AdminOperations) -> None:
        action(operations)

    broker.administer(perform, results.append)
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
