"""The cluster as the metadata log describes it up to an offset.

An image is the result of all entries before `offset`; equal offsets mean equal images on every
node. The holder of an image applies entries to it and gets the differences as `ImageChanges`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import msgspec

from broker_core.cluster.records import (
    LEADER_STAYS,
    AccessControlEntry,
    BrokerRegistrationChange,
    ClientQuota,
    ClusterRecord,
    ConfigRecord,
    ListenerAddress,
    MetadataRecord,
    PartitionChange,
    PartitionRecord,
    ProducerIds,
    RegisterBroker,
    RemoveTopic,
    RemoveUserScramCredential,
    TopicRecord,
    UnregisterBroker,
    UserScramCredential,
)

#: Kafka's numbers for the types of resources that have settings.
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32

#: A partition, as topic name and index.
Place = tuple[str, int]
#: A resource with settings: Kafka's number of its type, and its name.
Resource = tuple[int, str]
Entity = tuple[tuple[str, str | None], ...]

K = TypeVar("K")
V = TypeVar("V")


class ImageError(Exception):
    """A record does not fit the image: the log is damaged."""


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker."""

    id: int
    epoch: int
    incarnation_id: bytes
    listeners: tuple[ListenerAddress, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool

    @property
    def is_active(self) -> bool:
        """Tell whether it may become a leader or a member of an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def address(self, listener: str) -> ListenerAddress | None:
        """Return the broker's address for clients of a listener."""
        return next((each for each in self.listeners if each.name == listener), None)


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition.

    set(isr) <= set(replicas); leader is in isr, or -1 while there is none.
    `replicas` includes those that a reassignment adds or removes.
    `elr` are the eligible leader replicas (KIP-966). They are no longer in sync but have every
    committed record: with fewer than `min.insync.replicas` in sync, nothing is committed.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    #: The leader came from outside the ISR; records that it lacks are lost.
    recovering: bool = False
    elr: tuple[int, ...] = ()

    @property
    def is_under_replicated(self) -> bool:
        """Tell whether a replica is not in sync."""
        return len(self.isr) < len(self.replicas)

    @property
    def is_reassigning(self) -> bool:
        """Tell whether a reassignment of its replicas is in progress."""
        return bool(self.adding or self.removing)

    def after(self, change: PartitionChange) -> PartitionImage:
        """Return the partition after a change."""
        leads_anew = change.leader != LEADER_STAYS
        return PartitionImage(
            replicas=self.replicas if change.replicas is None else change.replicas,
            isr=self.isr if change.isr is None else change.isr,
            leader=change.leader if leads_anew else self.leader,
            leader_epoch=self.leader_epoch + leads_anew,
            partition_epoch=self.partition_epoch + 1,
            adding=self.adding if change.adding is None else change.adding,
            removing=self.removing if change.removing is None else change.removing,
            recovering=self.recovering if change.recovering is None else change.recovering,
            elr=self.elr if change.elr is None else change.elr,
        )


@dataclass(slots=True)
class TopicImage:
    """A topic; its partitions are numbered from 0."""

    name: str
    id: bytes
    partitions: list[PartitionImage] = field(default_factory=list)


@dataclass(slots=True)
class ImageChanges:
    """The differences that some records have made."""

    brokers: set[int] = field(default_factory=set)
    created: dict[str, TopicImage] = field(default_factory=dict)
    deleted: list[TopicImage] = field(default_factory=list)
    #: Created and changed partitions, but not those of deleted topics.
    partitions: set[Place] = field(default_factory=set)
    configs: set[Resource] = field(default_factory=set)
    acls: bool = False
    scram_users: bool = False
    quotas: bool = False
    #: True if a snapshot replaced the image: anything may be different.
    everything: bool = False


class ClusterImage:
    """Brokers, topics and settings of the cluster."""

    def __init__(self) -> None:
        #: Offset after the last applied entry.
        self.offset = 0
        self.cluster_id: str | None = None
        self.brokers: dict[int, BrokerImage] = {}
        self.topics: dict[str, TopicImage] = {}
        #: Number of the partitions of all topics.
        self.partition_count = 0
        self.configs: dict[Resource, dict[str, str]] = {}
        self.next_producer_id = 0
        self.acls: set[AccessControlEntry] = set()
        self.scram_users: dict[tuple[str, str], UserScramCredential] = {}
        self.quotas: dict[Entity, dict[str, float]] = {}
        self._names: dict[bytes, str] = {}
        #: The names of topics by what Kafka's metrics call them.
        self._metric_names: dict[str, tuple[str, ...]] = {}

    # -------------------------------------------------------------------------------------- reading

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """Return a topic by its id."""
        name = self._names.get(topic_id)
        return None if name is None else self.topics[name]

    def collision(self, name: str) -> str | None:
        """Return a topic that Kafka's metrics could not tell from one with another name."""
        present = self._metric_names.get(_metric_name(name), ())
        return next((each for each in present if each != name), None)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """Return one partition, None if it does not exist."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """Yield all partitions of all topics."""
        for topic in self.topics.values():
            for index, partition in enumerate(topic.partitions):
                yield topic, index, partition

    def is_active(self, broker_id: int) -> bool:
        """Tell whether a broker may become a leader or a member of an ISR."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    # ------------------------------------------------------------------------------------- changing

    def apply(
        self, offset: int, records: Iterable[MetadataRecord], changes: ImageChanges | None = None
    ) -> ImageChanges:
        """Apply the entry at an offset and add the differences to `changes`; raises ImageError."""
        changes = ImageChanges() if changes is None else changes
        for record in records:
            self._apply(record, offset, changes)
        self.offset = offset + 1
        return changes

    def _apply(self, record: MetadataRecord, offset: int, changes: ImageChanges) -> None:
        match record:
            case PartitionChange():
                topic = self._topic(record.topic_id)
                if record.index >= len(topic.partitions):
                    raise ImageError(f"{topic.name}-{record.index} does not exist")
                topic.partitions[record.index] = topic.partitions[record.index].after(record)
                changes.partitions.add((topic.name, record.index))
            case RegisterBroker():
                self.brokers[record.broker_id] = BrokerImage(
                    id=record.broker_id,
                    epoch=offset if record.epoch is None else record.epoch,
                    incarnation_id=record.incarnation_id,
                    listeners=record.listeners,
                    rack=record.rack,
                    fenced=record.fenced,
                    in_controlled_shutdown=record.in_controlled_shutdown,
                )
                changes.brokers.add(record.broker_id)
            case BrokerRegistrationChange():
                self._change_broker(record)
                changes.brokers.add(record.broker_id)
            case UnregisterBroker():
                self.brokers.pop(record.broker_id, None)
                changes.brokers.add(record.broker_id)
            case TopicRecord():
                if record.name in self.topics:
                    raise ImageError(f"topic {record.name} exists already")
                created = TopicImage(record.name, record.topic_id)
                self.topics[record.name] = created
                self._names[record.topic_id] = record.name
                metric = _metric_name(record.name)
                self._metric_names[metric] = (*self._metric_names.get(metric, ()), record.name)
                changes.created[record.name] = created
            case PartitionRecord():
                self._add_partition(record, changes)
            case RemoveTopic():
                self._remove_topic(record, changes)
            case ClusterRecord():
                self.cluster_id = record.cluster_id
            case ProducerIds():
                self.next_producer_id = record.next_id
            case _:
                self._apply_setting(record, changes)

    def _apply_setting(self, record: MetadataRecord, changes: ImageChanges) -> None:
        match record:
            case ConfigRecord():
                resource = (record.resource_type, record.resource_name)
                _put(self.configs, resource, record.name, record.value)
                changes.configs.add(resource)
            case AccessControlEntry(removed=True):
                self.acls.discard(msgspec.structs.replace(record, removed=False))
                changes.acls = True
            case AccessControlEntry():
                self.acls.add(record)
                changes.acls = True
            case UserScramCredential():
                self.scram_users[record.user, record.mechanism] = record
                changes.scram_users = True
            case RemoveUserScramCredential():
                self.scram_users.pop((record.user, record.mechanism), None)
                changes.scram_users = True
            case ClientQuota():
                _put(self.quotas, record.entity, record.key, record.value)
                changes.quotas = True

    def _topic(self, topic_id: bytes) -> TopicImage:
        topic = self.topic_by_id(topic_id)
        if topic is None:
            raise ImageError(f"topic {topic_id.hex()} does not exist")
        return topic

    def _change_broker(self, record: BrokerRegistrationChange) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None or broker.epoch != record.broker_epoch:
            raise ImageError(f"broker {record.broker_id} has no epoch {record.broker_epoch}")
        if record.fenced is not None:
            broker = replace(broker, fenced=record.fenced)
        if record.in_controlled_shutdown is not None:
            broker = replace(broker, in_controlled_shutdown=record.in_controlled_shutdown)
        self.brokers[record.broker_id] = broker

    def _add_partition(self, record: PartitionRecord, changes: ImageChanges) -> None:
        topic = self._topic(record.topic_id)
        if record.index != len(topic.partitions):
            raise ImageError(f"{topic.name}-{record.index} is not the next partition")
        topic.partitions.append(
            PartitionImage(
                record.replicas,
                record.isr,
                record.leader,
                record.leader_epoch,
                record.partition_epoch,
                record.adding,
                record.removing,
                record.recovering,
                record.elr,
            )
        )
        self.partition_count += 1
        changes.partitions.add((topic.name, record.index))

    def _remove_topic(self, record: RemoveTopic, changes: ImageChanges) -> None:
        topic = self._topic(record.topic_id)
        del self.topics[topic.name]
        del self._names[topic.id]
        self.partition_count -= len(topic.partitions)
        metric = _metric_name(topic.name)
        left = tuple(each for each in self._metric_names.pop(metric) if each != topic.name)
        if left:
            self._metric_names[metric] = left
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)
        changes.partitions = {place for place in changes.partitions if place[0] != topic.name}
        if changes.created.pop(topic.name, None) is not topic:
            changes.deleted.append(topic)

    # ------------------------------------------------------------------------------------- snapshot

    def copy(self) -> ClusterImage:
        """Return an independent copy of the image."""
        other = ClusterImage()
        other.offset = self.offset
        other.cluster_id = self.cluster_id
        other.brokers = dict(self.brokers)
        other.topics = {
            name: TopicImage(topic.name, topic.id, list(topic.partitions))
            for name, topic in self.topics.items()
        }
        other.partition_count = self.partition_count
        other.configs = {resource: dict(values) for resource, values in self.configs.items()}
        other.next_producer_id = self.next_producer_id
        other.acls = set(self.acls)
        other.scram_users = dict(self.scram_users)
        other.quotas = {entity: dict(values) for entity, values in self.quotas.items()}
        other._names = dict(self._names)
        other._metric_names = dict(self._metric_names)
        return other


def _metric_name(topic: str) -> str:
    """Return a topic's name in Kafka's metrics, which replace '.' by '_'."""
    return topic.replace(".", "_")


def _put(settings: dict[K, dict[str, V]], key: K, name: str, value: V | None) -> None:
    values = settings.setdefault(key, {})
    if value is None:
        values.pop(name, None)
        if not values:
            del settings[key]
    else:
        values[name] = value
