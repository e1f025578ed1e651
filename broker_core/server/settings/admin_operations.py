"""Decisions about topics and settings, made by a standalone broker or the cluster's controller.

Handlers make changes with `Broker.administer`, and answer when these are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker_core import errors
from broker_core.cluster.image import PartitionImage
from broker_core.log.config import LogConfig
from broker_core.security.authorizer import Authorizer
from broker_core.security.credentials import ScramUsers
from broker_core.security.quotas import ClientQuotas
from broker_core.server.settings.dynamic_config import DynamicConfig

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ElectLeadersRequestTopicPartition,
    )
    from broker_core.server.partitions.topics import Topic
    from broker_core.server.runtime import Broker

_NO_ID = bytes(16)

#: Called with None when a change is durable, or with the reason why it will not be.
Done = Callable[[errors.BrokerError | None], None]


class CreatedTopic(NamedTuple):
    """A topic that was created, or that passed validation."""

    topic_id: bytes
    partitions: int
    replication_factor: int
    config: LogConfig


class AdminOperations(Protocol):
    """Changes that clients may ask for; methods raise BrokerError for what is not possible."""

    @property
    def scram_users(self) -> ScramUsers:
        """The users; change them, then call `save`."""

    @property
    def quotas(self) -> ClientQuotas:
        """The quotas; change them, then call `save`."""

    @property
    def authorizer(self) -> Authorizer | None:
        """The ACLs; change them, then call `save`. None if there is no authorizer."""

    def save(self) -> None:
        """Store the changed users, quotas and ACLs."""

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        assignments: Sequence[Sequence[int]],
        overrides: Mapping[str, str],
        *,
        validate_only: bool,
    ) -> CreatedTopic:
        """Create a topic; -1 partitions or replicas stand for the default."""

    def find_topic(self, name: str | None, topic_id: bytes) -> tuple[str, bytes]:
        """Return a topic's name and id; find it by name, or by id if the name is None."""

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""

    def partition_count(self, name: str) -> int:
        """Return the number of a topic's partitions."""

    def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool,
    ) -> None:
        """Grow a topic to `count` partitions."""

    def all_partitions(self) -> Sequence[ElectLeadersRequestTopicPartition]:
        """Return all partitions in the form of ElectLeaders."""

    def elect(self, topic: str, index: int, kind: int) -> None:
        """Elect a partition's leader: the preferred replica (0), or any replica (1, unclean)."""

    def reassign(
        self, topic: str, index: int, replicas: Sequence[int] | None, *, may_resize: bool
    ) -> None:
        """Move a partition's replicas; None cancels the current reassignment."""

    def reassignments(self) -> Iterator[tuple[str, int, PartitionImage]]:
        """Yield the partitions that are being reassigned."""

    def topic_settings(self, name: str) -> tuple[dict[str, str], LogConfig]:
        """Return a topic's own settings, and its effective settings."""

    def change_topic(self, name: str, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace a topic's own settings."""

    def dynamic_config(self, resource_name: str) -> DynamicConfig:
        """Return the dynamic settings of a broker, or of all brokers ("")."""

    def change_broker(self, resource_name: str, properties: Mapping[str, str]) -> None:
        """Replace the dynamic settings of a broker, or of all brokers ("")."""

    def group_settings(self, group_id: str) -> dict[str, str]:
        """Return a group's own settings."""

    def change_group(self, group_id: str, properties: Mapping[str, str]) -> None:
        """Replace a group's own settings."""


class LocalAdminOperations:
    """The authority of a standalone broker: its decisions are durable when the methods return."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.scram_users = broker.scram_users
        self.quotas = broker.quotas
        self.authorizer = broker.authorizer

    def save(self) -> None:
        """See AdminOperations."""
        self._broker.settings.save()

    def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        assignments: Sequence[Sequence[int]],
        overrides: Mapping[str, str],
        *,
        validate_only: bool,
    ) -> CreatedTopic:
        """See AdminOperations."""
        broker = self._broker
        self._check_assignments(assignments)
        if replication_factor not in {-1, 1}:
            raise errors.InvalidReplicationFactor(
                f"Replication factor {replication_factor} is not possible: there is one broker"
                if replication_factor > 0
                else "Replication factor must be larger than 0, or -1 to use the default value."
            )
        count = broker.config.num_partitions if partitions == -1 else partitions
        count = len(assignments) or count
        config = broker.topics.check_new(name, count, overrides)
        topic_id = _NO_ID
        if not validate_only:
            topic_id = broker.create_topic(name, count, overrides).topic_id
        return CreatedTopic(topic_id, count, 1, config)

    def _check_assignments(self, assignments: Sequence[Sequence[int]]) -> None:
        if any(list(each) != [self._broker.node_id] for each in assignments):
            raise errors.InvalidReplicaAssignment(f"broker {self._broker.node_id} is the only one")

    def find_topic(self, name: str | None, topic_id: bytes) -> tuple[str, bytes]:
        """See AdminOperations."""
        topic = self._broker.topics.by_id(topic_id) if name is None else self._topic(name)
        if topic is None:
            raise errors.UnknownTopicId()
        return topic.name, topic.topic_id

    def _topic(self, name: str) -> Topic:
        topic = self._broker.topics.get(name)
        if topic is None:
            raise errors.UnknownTopicOrPartition()
        return topic

    def delete_topic(self, name: str) -> None:
        """See AdminOperations."""
        self._broker.delete_topic(self._topic(name))

    def partition_count(self, name: str) -> int:
        """See AdminOperations."""
        return self._topic(name).partition_count

    def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool,
    ) -> None:
        """See AdminOperations."""
        self._check_assignments(assignments or ())
        if not validate_only:
            self._broker.topics.add_partitions(self._topic(name), count)

    def all_partitions(self) -> Sequence[ElectLeadersRequestTopicPartition]:
        """See AdminOperations."""
        return [
            {"topic": topic.name, "partitions": [each.index for each in topic.partitions]}
            for topic in self._broker.topics
        ]

    def elect(self, topic: str, index: int, kind: int) -> None:
        """See AdminOperations; the only replica is the leader already."""
        self._partition(topic, index)
        raise errors.ElectionNotNeeded("Leader election not needed for topic partition.")

    def _partition(self, topic: str, index: int) -> None:
        if self._broker.topics.partition(topic, index) is None:
            raise errors.UnknownTopicOrPartition()

    def reassign(
        self, topic: str, index: int, replicas: Sequence[int] | None, *, may_resize: bool
    ) -> None:
        """See AdminOperations; the only valid target is the only broker."""
        self._partition(topic, index)
        if replicas is None:
            raise errors.NoReassignmentInProgress()
        self._check_assignments([replicas])

    def reassignments(self) -> Iterator[tuple[str, int, PartitionImage]]:
        """See AdminOperations."""
        yield from ()

    def topic_settings(self, name: str) -> tuple[dict[str, str], LogConfig]:
        """See AdminOperations."""
        topic = self._topic(name)
        return topic.overrides, topic.config

    def change_topic(self, name: str, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        """See AdminOperations."""
        self._broker.topics.log_config(overrides)
        if not validate_only:
            self._broker.topics.change_config(self._topic(name), overrides)

    def dynamic_config(self, resource_name: str) -> DynamicConfig:
        """See AdminOperations."""
        if resource_name not in {"", str(self._broker.node_id)}:
            raise errors.InvalidRequest(
                f"Unexpected broker id, expected {self._broker.node_id} or empty string, but "
                f"received {resource_name}"
            )
        return self._broker.dynamic_config

    def change_broker(self, resource_name: str, properties: Mapping[str, str]) -> None:
        """See AdminOperations."""
        broker, dynamic = self._broker, self._broker.dynamic_config
        before = dynamic.of(resource_name)
        dynamic.replace(properties, for_all=not resource_name)
        try:
            broker.settings.save()
        except errors.KafkaStorageError:
            dynamic.replace(before, for_all=not resource_name)
            raise
        dynamic.apply(broker.topics, broker.network.limits)

    def group_settings(self, group_id: str) -> dict[str, str]:
        """See AdminOperations."""
        return self._broker.group_settings.of(group_id)

    def change_group(self, group_id: str, properties: Mapping[str, str]) -> None:
        """See AdminOperations."""
        broker, settings = self._broker, self._broker.group_settings
        before = settings.of(group_id)
        settings.replace(group_id, properties)
        try:
            broker.settings.save()
        except errors.KafkaStorageError:
            settings.replace(group_id, before)
            raise
        broker.group_changed(group_id)
