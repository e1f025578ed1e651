"""The controller's handling of topics and their settings."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence

from broker_core import errors
from broker_core.cluster.image import (
    TOPIC_RESOURCE,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from broker_core.cluster.placement import place_replicas
from broker_core.cluster.records import (
    NO_LEADER,
    ConfigRecord,
    MetadataRecord,
    PartitionChange,
    PartitionRecord,
    RemoveTopic,
    TopicRecord,
)
from broker_core.cluster.settings import MIN_INSYNC_REPLICAS, ControllerSettings
from broker_core.cluster.topic_names import check_new_name
from broker_core.cluster.writing import MetadataWriter
from broker_core.log.config import LogConfig


class TopicControl:
    """Creates, extends, configures and deletes topics. Methods raise BrokerError."""

    def __init__(
        self, writer: MetadataWriter, settings: ControllerSettings, randomness: random.Random
    ) -> None:
        self._writer = writer
        self._settings = settings
        self._random = randomness

    @property
    def _image(self) -> ClusterImage:
        return self._writer.image

    def find(self, name: str | None, topic_id: bytes) -> TopicImage:
        """Find a topic by name, or by id if the name is None."""
        if name is None:
            topic = self._image.topic_by_id(topic_id)
            if topic is None:
                raise errors.UnknownTopicId()
            return topic
        topic = self._image.topics.get(name)
        if topic is None:
            raise errors.UnknownTopicOrPartition()
        return topic

    def create(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        assignments: Sequence[Sequence[int]],
        overrides: Mapping[str, str],
        *,
        validate_only: bool,
        planned: int = 0,
    ) -> TopicImage:
        """Create a topic; -1 partitions or replicas mean the default, assignments override both.

        With `validate_only`, the topic that is returned has replicas, but no id and no leaders.
        `planned` is the number of partitions that are not there yet and need room as well.
        """
        check_new_name(name, self._image)
        LogConfig.from_properties(overrides, self._settings.topic_defaults)
        if assignments:
            replicas = self._checked(assignments, planned)
        else:
            count = self.partitions_asked(partitions)
            if count < 1:
                raise errors.InvalidPartitions("Number of partitions must be larger than 0.")
            factor = (
                self._settings.replication_factor
                if replication_factor == -1
                else replication_factor
            )
            if factor < 1:
                raise errors.InvalidReplicationFactor(
                    "Replication factor must be larger than 0, or -1 to use the default value."
                )
            self._check_room(planned + count)
            replicas = place_replicas(self._image.brokers.values(), count, factor, self._random)
        if validate_only:
            one = {each: PartitionImage(each, each, NO_LEADER) for each in set(replicas)}
            return TopicImage(name, bytes(16), [one[each] for each in replicas])
        topic_id = uuid.UUID(int=self._random.getrandbits(128), version=4).bytes
        records: list[MetadataRecord] = [TopicRecord(name, topic_id)]
        records += self._partitions(topic_id, 0, replicas)
        records += [
            ConfigRecord(TOPIC_RESOURCE, name, key, value) for key, value in overrides.items()
        ]
        self._writer.write(records)
        return self._image.topics[name]

    def partitions_asked(self, partitions: int) -> int:
        """Return the number of partitions of a new topic for which -1 means the default."""
        return self._settings.partitions if partitions == -1 else partitions

    def _partitions(
        self, topic_id: bytes, first: int, replicas: Sequence[tuple[int, ...]]
    ) -> list[PartitionRecord]:
        in_sync: dict[tuple[int, ...], tuple[int, ...]] = {}
        records = []
        for index, each in enumerate(replicas, first):
            isr = in_sync.get(each)
            if isr is None:
                # A broker that is down is not in sync. If all are down, the first one that is back
                # leads.
                isr = tuple(broker for broker in each if self._image.is_active(broker))
                in_sync[each] = isr
            leader = isr[0] if isr else NO_LEADER
            records.append(PartitionRecord(topic_id, index, each, isr or each, leader))
        return records

    def _checked(self, assignments: Sequence[Sequence[int]], planned: int) -> list[tuple[int, ...]]:
        self._check_room(planned + len(assignments))
        factor = len(assignments[0])
        for each in assignments:
            if not each or len(set(each)) < len(each):
                raise errors.InvalidReplicaAssignment(
                    f"{list(each)} is empty, or names a broker twice"
                )
            if len(each) != factor:
                raise errors.InvalidReplicaAssignment(
                    "the partitions have different numbers of replicas"
                )
            unknown = [broker for broker in each if broker not in self._image.brokers]
            if unknown:
                raise errors.InvalidReplicaAssignment(f"no broker {unknown[0]} is registered")
            if not any(self._image.is_active(broker) for broker in each):
                raise errors.InvalidReplicaAssignment(f"no broker of {list(each)} is running")
        return [tuple(each) for each in assignments]

    def _check_room(self, more: int) -> None:
        if self._image.partition_count + more > self._settings.partitions_max:
            raise errors.InvalidPartitions(
                f"this cluster holds at most {self._settings.partitions_max} partitions"
            )

    def grow(
        self,
        topic: TopicImage,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool,
        planned: int = 0,
    ) -> None:
        """Add partitions until there are `count`; see `create` for `planned`."""
        present = len(topic.partitions)
        if assignments is None:
            self._check_room(planned + count - present)
            factor = len(topic.partitions[0].replicas)
            replicas = place_replicas(
                self._image.brokers.values(), count - present, factor, self._random
            )
        else:
            replicas = self._checked(assignments, planned)
        if not validate_only:
            self._writer.write(self._partitions(topic.id, present, replicas))

    def delete(self, topic: TopicImage) -> None:
        """Delete a topic."""
        self._writer.write([RemoveTopic(topic.id)])

    def configure(self, resource_type: int, name: str, properties: Mapping[str, str]) -> None:
        """Replace all settings of a topic or a broker."""
        present = self._image.configs.get((resource_type, name), {})
        changed = [
            key
            for key in sorted({*present, *properties})
            if present.get(key) != properties.get(key)
        ]
        records: list[MetadataRecord] = [
            ConfigRecord(resource_type, name, key, properties.get(key)) for key in changed
        ]
        if MIN_INSYNC_REPLICAS in changed:
            # From now on records may be committed that eligible leader replicas lack.
            records += [
                PartitionChange(topic.id, index, elr=())
                for topic, index, partition in self._image.partitions()
                if partition.elr and (resource_type != TOPIC_RESOURCE or topic.name == name)
            ]
        self._writer.write(records)

    def check_resource(self, resource_type: int, name: str) -> None:
        """Raise BrokerError if a resource does not exist or cannot have settings."""
        if resource_type == TOPIC_RESOURCE:
            self.find(name, b"")
        elif name and not (name.isdigit() and int(name) in self._image.brokers):
            raise errors.InvalidRequest(f"no broker {name} is registered")
