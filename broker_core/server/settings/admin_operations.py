"""What clients change with the active controller's consent: topics, partitions, users, settings.

Handlers make changes with `Administration`, and answer when these are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker_core import errors
from broker_core.cluster.controller import Controller
from broker_core.cluster.image import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    PartitionImage,
)
from broker_core.cluster.settings_records import (
    acl_records,
    quota_records,
    scram_records,
    stored_acls,
    stored_quotas,
    stored_scram_users,
)
from broker_core.configuration.config import BrokerConfig
from broker_core.log.config import LogConfig
from broker_core.security.authorizer import Authorizer
from broker_core.security.credentials import ScramUsers
from broker_core.security.quotas import ClientQuotas
from broker_core.server.partitions.topics import TopicRegistry
from broker_core.server.settings.dynamic_config import DynamicConfig

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ElectLeadersRequestTopicPartition,
    )


#: Most partitions that one request may create, as in Kafka: all are placed in one turn of the event
#: loop.
NEW_PARTITIONS_MAX: Final = 10_000


def too_many_partitions() -> errors.PolicyViolation:
    """Return the reason why a request for more than that adds none."""
    return errors.PolicyViolation("Excessively large number of partitions per request.")


#: Called with None when a change is durable, or with the reason why it will not be.
Done = Callable[[errors.BrokerError | None], None]


class CreatedTopic(NamedTuple):
    """A topic that was created, or that passed validation."""

    topic_id: bytes
    partitions: int
    replication_factor: int
    config: LogConfig


class AdminOperations:
    """Decides for one request; its decisions are records, and durable when these are committed.

    Methods raise BrokerError for what is not possible.
    """

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, controller: Controller) -> None:
        self._config = config
        self._topics = topics
        self.controller = controller
        #: All partitions that the request wants to create.
        self._announced = 0
        #: Those that it has only had validated; they need room as if they existed.
        self._planned = 0

    # ------------------------------------------------------------------------------- users, quotas

    @cached_property
    def scram_users(self) -> ScramUsers:
        """The users; change them, then call `save`."""
        users = ScramUsers()
        users.load(stored_scram_users(self.controller.image))
        return users

    @cached_property
    def quotas(self) -> ClientQuotas:
        """The quotas; change them, then call `save`."""
        quotas = ClientQuotas()
        quotas.load(stored_quotas(self.controller.image))
        return quotas

    @cached_property
    def authorizer(self) -> Authorizer | None:
        """The ACLs; change them, then call `save`. None if there is no authorizer."""
        if self._config.authorizer is None:
            return None
        authorizer = Authorizer()
        authorizer.load(stored_acls(self.controller.image))
        return authorizer

    def save(self) -> None:
        """Store the changed users, quotas and ACLs."""
        image, writer = self.controller.image, self.controller.writer
        used = vars(self)
        if "scram_users" in used:
            writer.write_each(scram_records(image, self.scram_users.to_stored()))
        if "quotas" in used:
            writer.write_each(quota_records(image, self.quotas.to_stored()))
        if "authorizer" in used and self.authorizer is not None:
            writer.write_each(acl_records(image, self.authorizer.to_stored()))

    # -------------------------------------------------------------------------------------- topics

    def partitions_asked(self, partitions: int) -> int:
        """Return the number of partitions of a new topic for which -1 means the default."""
        return self.controller.topics.partitions_asked(partitions)

    def announce(self, counts: Iterable[int]) -> None:
        """Tell, before the first topic, how many partitions each topic of the request will get."""
        self._announced = sum(max(count, 0) for count in counts)

    def _check_announced(self) -> None:
        if self._announced > NEW_PARTITIONS_MAX:
            raise too_many_partitions()

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
        self._check_announced()
        topic = self.controller.topics.create(
            name,
            partitions,
            replication_factor,
            assignments,
            overrides,
            validate_only=validate_only,
            planned=self._planned,
        )
        if validate_only:
            self._planned += len(topic.partitions)
        return CreatedTopic(
            topic.id,
            len(topic.partitions),
            len(topic.partitions[0].replicas),
            self._topics.log_config(overrides),
        )

    def find_topic(self, name: str | None, topic_id: bytes) -> tuple[str, bytes]:
        """Return a topic's name and id; find it by name, or by id if the name is None."""
        topic = self.controller.topics.find(name, topic_id)
        return topic.name, topic.id

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.controller.topics.delete(self.controller.topics.find(name, b""))

    def has_topic(self, name: str) -> bool:
        """Tell whether a topic exists."""
        return name in self.controller.image.topics

    def partition_count(self, name: str) -> int:
        """Return the number of a topic's partitions."""
        return len(self.controller.topics.find(name, b"").partitions)

    def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool,
    ) -> None:
        """Grow a topic to `count` partitions."""
        self._check_announced()
        topics = self.controller.topics
        topic = topics.find(name, b"")
        topics.grow(topic, count, assignments, validate_only=validate_only, planned=self._planned)
        if validate_only:
            self._planned += count - len(topic.partitions)

    def all_partitions(self) -> Sequence[ElectLeadersRequestTopicPartition]:
        """Return all partitions in the form of ElectLeaders."""
        return [
            {"topic": name, "partitions": range(len(topic.partitions))}
            for name, topic in self.controller.image.topics.items()
        ]

    def elect(self, topic: str, index: int, kind: int) -> None:
        """Elect a partition's leader: the preferred replica (0), or any replica (1, unclean)."""
        self.controller.partitions.elect(topic, index, kind)

    def reassign(
        self, topic: str, index: int, replicas: Sequence[int] | None, *, may_resize: bool
    ) -> None:
        """Move a partition's replicas; None cancels the current reassignment."""
        self.controller.partitions.reassign(topic, index, replicas, may_resize=may_resize)

    def reassignments(self) -> Iterator[tuple[str, int, PartitionImage]]:
        """Yield the partitions that are being reassigned."""
        for topic, index, partition in self.controller.image.partitions():
            if partition.is_reassigning:
                yield topic.name, index, partition

    # ------------------------------------------------------------------------------------ settings

    def topic_settings(self, name: str) -> tuple[dict[str, str], LogConfig]:
        """Return a topic's own settings, and its effective settings."""
        self.controller.topics.check_resource(TOPIC_RESOURCE, name)
        overrides = self.controller.image.configs.get((TOPIC_RESOURCE, name), {})
        return dict(overrides), self._topics.log_config(overrides)

    def change_topic(self, name: str, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace a topic's own settings."""
        self._topics.log_config(overrides)
        if not validate_only:
            self.controller.topics.configure(TOPIC_RESOURCE, name, overrides)

    def dynamic_config(self, resource_name: str) -> DynamicConfig:
        """Return the dynamic settings of a broker, or of all brokers ("")."""
        self.controller.topics.check_resource(BROKER_RESOURCE, resource_name)
        configs = self.controller.image.configs
        dynamic = DynamicConfig(self._config)
        dynamic.load(
            {
                "cluster": configs.get((BROKER_RESOURCE, ""), {}),
                "own": configs.get((BROKER_RESOURCE, resource_name), {}) if resource_name else {},
            }
        )
        return dynamic

    def change_broker(self, resource_name: str, properties: Mapping[str, str]) -> None:
        """Replace the dynamic settings of a broker, or of all brokers ("")."""
        self.controller.topics.configure(BROKER_RESOURCE, resource_name, properties)

    def group_settings(self, group_id: str) -> dict[str, str]:
        """Return a group's own settings."""
        return dict(self.controller.image.configs.get((GROUP_RESOURCE, group_id), {}))

    def change_group(self, group_id: str, properties: Mapping[str, str]) -> None:
        """Replace a group's own settings."""
        self.controller.topics.configure(GROUP_RESOURCE, group_id, properties)


class Administration(Protocol):
    """Has the active controller change topics and settings."""

    def administer(self, action: Callable[[AdminOperations], None], done: Done) -> None:
        """Change topics or settings; `done` is called when the change is durable or has failed."""
