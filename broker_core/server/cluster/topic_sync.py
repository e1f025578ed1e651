"""Applies metadata images to this broker's topics and replicas."""

from __future__ import annotations

import logging
import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final

from broker_core import errors
from broker_core.cluster.image import (
    TOPIC_RESOURCE,
    ClusterImage,
    ImageChanges,
    PartitionImage,
    TopicImage,
)
from broker_core.environment import Environment
from broker_core.server.partitions.inventory import PartitionInventory
from broker_core.server.partitions.replica_directories import (
    OpenedLog,
    Replica,
    ReplicaDirectories,
    UnusableReplica,
)
from broker_core.server.partitions.replica_opener import Outcome, ReplicaOpener
from broker_core.server.partitions.topics import Topic, TopicRegistry
from waylog.process.storage_trouble import is_disk_full

logger = logging.getLogger(__name__)

#: New replicas that are opened with the image itself, so that small topics serve at once.
_AT_ONCE: Final = 8


class TopicSync:
    """Applies images to the TopicRegistry; `load` applies the first one.

    Where an image brings many new replicas, most of them are opened later, beside the event loop.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        node_id: int,
        environment: Environment,
        inventory: PartitionInventory,
        deleted: Callable[[Topic], None],
        opened: Callable[[set[tuple[str, int]]], None],
        failed: Callable[[Exception], None],
        *,
        is_alone: bool,
    ) -> None:
        """Prepare; a broker that `is_alone` leaves out what its full disk has no room for.

        `deleted` is called with each deleted topic, `opened` with replicas (topic, index) that
        were opened later than their image was applied, and `failed` with the error if this broker
        cannot go on.
        """
        self._is_alone = is_alone
        #: Replicas that wait for room on the disk.
        self.left_out: set[tuple[bytes, int]] = set()
        self._topics = topics
        self._tell_deleted = deleted
        self._tell_opened = opened
        self._tell_failed = failed
        self._node_id = node_id
        self._inventory = inventory
        self._image = ClusterImage()
        self._directories = ReplicaDirectories(topics, environment, inventory, is_alone=is_alone)
        worker = environment.threads.worker("opener")
        self._opener = ReplicaOpener(worker, self._directories, inventory, self)

    def load(self, image: ClusterImage) -> None:
        """Open the replicas that the first image places here; raises KafkaStorageError."""
        with self._directories.loading():
            self.apply(image, ImageChanges(everything=True))
        self._inventory.retain(
            self._topics.directory(topic.name, index).name
            for topic in self._topics
            for index in (*(each.index for each in topic.partitions), *topic.offline)
        )
        self._save_inventory()
        self._topics.set_strays_aside()

    def when_open(self, names: Iterable[str], timeout_s: float, then: Callable[[], None]) -> None:
        """Call `then` when the replicas of these topics are open, or after a while."""
        self._opener.when_open(names, timeout_s, then)

    async def close(self, timeout_s: float = math.inf) -> None:
        """Open no more replicas; return when none is being opened, or after `timeout_s`."""
        await self._opener.close(timeout_s)

    def apply(self, image: ClusterImage, changes: ImageChanges) -> None:
        """Apply a change; raises KafkaStorageError."""
        self._image = image
        gone = self._gone(image, changes)
        if gone:
            ids = {topic.topic_id for topic in gone}
            self._inventory.discard_topics({str(uuid.UUID(bytes=each)) for each in ids})
            self.left_out = {place for place in self.left_out if place[0] not in ids}
        # Before their folders are deleted: they are not to be missed.
        self._save_inventory()
        for topic in gone:
            logger.info("topic %s is deleted", topic.name)
            self._topics.forget(topic)
            self._tell_deleted(topic)
        at_once = _AT_ONCE
        indexes: defaultdict[str, set[int]] = defaultdict(set)
        if not changes.everything:
            for name, index in changes.partitions:
                indexes[name].add(index)
        for name in image.topics if changes.everything else changes.created:
            indexes[name].update(range(len(image.topics[name].partitions)))
        for name in sorted(indexes):
            described = image.topics[name]
            topic = self._find(image, described)
            # Before replicas are opened: groups must see new partitions on other brokers too.
            if topic.partition_count != len(described.partitions):
                topic.partition_count = len(described.partitions)
                self._topics.version += 1
            has_to_wait = at_once <= 0 or self._has_to_wait(name)
            for index in sorted(indexes[name]):
                replica = self._follow(topic, index, described.partitions[index])
                if replica is None:
                    continue
                if self._directories.may_be_there(replica):
                    self._open(replica)
                elif at_once > 0 and not has_to_wait:
                    at_once -= 1
                    self._open(replica)
                else:
                    self._opener.add(topic, index)
        for kind, name in changes.configs:
            topic_of = self._topics.get(name)
            if kind == TOPIC_RESOURCE and topic_of is not None:
                self._configure(topic_of, image)
        self._save_inventory()

    def _save_inventory(self) -> None:
        try:
            self._inventory.save()
        except OSError as error:
            self.not_saved(error)

    def _gone(self, image: ClusterImage, changes: ImageChanges) -> list[Topic]:
        if changes.everything:
            return [each for each in self._topics if image.topic_by_id(each.topic_id) is None]
        return [
            topic for each in changes.deleted if (topic := self._topics.by_id(each.id)) is not None
        ]

    def _find(self, image: ClusterImage, described: TopicImage) -> Topic:
        topic = self._topics.by_id(described.id)
        if topic is None:
            topic = Topic(described.name, described.id, {}, self._topics.defaults)
            topic.partition_count = len(described.partitions)
            self._configure(topic, image)
            self._topics.register(topic)
        elif topic.overrides != image.configs.get((TOPIC_RESOURCE, topic.name), {}):
            self._configure(topic, image)
        return topic

    def _configure(self, topic: Topic, image: ClusterImage) -> None:
        overrides = image.configs.get((TOPIC_RESOURCE, topic.name), {})
        try:
            self._topics.set_config(topic, overrides)
        except errors.InvalidConfig as error:
            # The controller has another version, or other limits, than this broker.
            logger.error("topic %s keeps its settings: %s", topic.name, error)

    def _follow(self, topic: Topic, index: int, described: PartitionImage) -> Replica | None:
        """Drop a replica that has moved away; return one that has to be opened."""
        if self._node_id in described.replicas:
            return self._replica(topic, index, described)
        topic.offline.pop(index, None)
        if topic.get(index) is not None:
            logger.info("the replica of %s-%d has moved away", topic.name, index)
            self._inventory.discard(self._topics.directory(topic.name, index).name)
            self._save_inventory()
            self._topics.drop_partition(topic, index)
        return None

    def _replica(self, topic: Topic, index: int, described: PartitionImage) -> Replica | None:
        if topic.get(index) is not None or index in topic.offline:
            return None
        # When this broker registered, it did not claim to have everything (`lacks_records`).
        having = {*described.isr, *described.elr}
        return Replica(topic, index, bool(having) and self._node_id not in having)

    # ----------------------------------------------------------------------------------- opening

    def _has_to_wait(self, name: str) -> bool:
        return self._topics.is_being_deleted(name) or self._opener.opens(name)

    def _open(self, replica: Replica) -> None:
        outcome: Outcome
        try:
            outcome = self._directories.open(replica)
            if outcome.is_marked:
                self._inventory.add(*replica.in_inventory)
        except (UnusableReplica, errors.KafkaStorageError) as error:
            outcome = error
        self._take_over(replica, outcome)

    def _take_over(self, replica: Replica, outcome: Outcome) -> None:
        place = replica.topic.topic_id, replica.index
        if isinstance(outcome, OpenedLog):
            self._topics.add_partition(replica.topic, replica.index, outcome.log)
            self.left_out.discard(place)
        elif isinstance(outcome, UnusableReplica):
            logger.error("%s stays offline: %s", replica, outcome)
            replica.topic.offline[replica.index] = f"{replica} is offline: {outcome}"
        elif self._is_alone and is_disk_full(outcome.__cause__):
            if place not in self.left_out:
                logger.error("%s waits for room on the disk: %s", replica, outcome)
            self.left_out.add(place)
        else:
            raise outcome

    def wanted(self, topic: Topic, index: int) -> Replica | None:
        """See ReplicaOwner."""
        described = self._image.topic_by_id(topic.topic_id)
        if self._topics.by_id(topic.topic_id) is not topic or described is None:
            return None
        partition = described.partitions[index]
        if self._node_id not in partition.replicas:
            return None
        return self._replica(topic, index, partition)

    def deletions(self, topics: Iterable[str]) -> list[Future[None]]:
        """See ReplicaOwner."""
        return self._topics.deletions(topics)

    def not_saved(self, error: OSError) -> None:
        """See ReplicaOwner."""
        reason = f"{self._inventory.path}: {error.strerror}"
        if not (self._is_alone and is_disk_full(error)):
            raise errors.KafkaStorageError(reason) from error
        # The next change, or the next start, writes it.
        logger.warning("%s", reason)

    def take_over(self, opened: Iterable[tuple[Replica, Outcome]]) -> None:
        """See ReplicaOwner."""
        places = set()
        for replica, outcome in opened:
            if self.wanted(replica.topic, replica.index) is not None:
                self._take_over(replica, outcome)
                places.add((replica.topic.name, replica.index))
            elif isinstance(outcome, OpenedLog):
                self._give_up(replica, outcome)
        self._tell_opened(places)

    def _give_up(self, replica: Replica, opened: OpenedLog) -> None:
        """Delete a log whose topic was deleted, or whose replica moved, while it was opened."""
        name, topic_id = replica.in_inventory
        if self._inventory.topic_id(name) == topic_id:
            self._inventory.discard(name)
            self._save_inventory()
        self._topics.delete_logs(replica.topic.name, [opened.log])

    def failed(self, error: Exception) -> None:
        """See ReplicaOwner."""
        is_expected = isinstance(error, errors.KafkaStorageError)
        logger.critical(
            "this broker cannot go on: %s", error, exc_info=None if is_expected else error
        )
        self._tell_failed(error)
