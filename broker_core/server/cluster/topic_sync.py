"""Applies metadata images to this broker's topics and replicas."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from broker_core import errors
from broker_core.cluster.image import TOPIC_RESOURCE, ClusterImage, ImageChanges, TopicImage
from broker_core.environment import Disk, Environment
from broker_core.server.partitions.topics import LOG_DIRECTORY, Topic, TopicRegistry
from waylog.process.storage_trouble import is_disk_full

logger = logging.getLogger(__name__)

#: File in a log directory with the id of its topic. If a topic is deleted and created again while
#: this broker is down, the new topic has the same name, but not the same records.
_FILE: Final = "partition.metadata"


class TopicSync:
    """Applies images to the TopicRegistry; `load` applies the first one."""

    def __init__(
        self,
        topics: TopicRegistry,
        node_id: int,
        environment: Environment,
        deleted: Iterable[Callable[[bytes], None]],
        *,
        is_alone: bool,
    ) -> None:
        """`deleted` are called with the id of each deleted topic.

        A broker that `is_alone` leaves out what its full disk has no room for.
        """
        self._is_alone = is_alone
        #: Replicas that wait for room on the disk.
        self.left_out: set[tuple[bytes, int]] = set()
        self._topics = topics
        self._deleted = tuple(deleted)
        self._node_id = node_id
        self._disk = environment.disk
        self._new_uuid = environment.new_uuid

    def load(self, image: ClusterImage) -> None:
        """Open the replicas that the first image places here; raises KafkaStorageError."""
        self.apply(image, ImageChanges(everything=True))
        self._topics.set_strays_aside()

    def apply(self, image: ClusterImage, changes: ImageChanges) -> None:
        """Apply a change; raises KafkaStorageError."""
        for topic in self._gone(image, changes):
            logger.info("topic %s is deleted", topic.name)
            self._topics.forget(topic)
            self.left_out = {each for each in self.left_out if each[0] != topic.topic_id}
            for forget in self._deleted:
                forget(topic.topic_id)
        touched = {name for name, _ in changes.partitions} | set(changes.created)
        if changes.everything:
            touched = set(image.topics)
        for name in sorted(touched):
            described = image.topics[name]
            topic = self._find(image, described)
            indexes = {index for each, index in changes.partitions if each == name}
            if changes.everything or name in changes.created:
                indexes = set(range(len(described.partitions)))
            # Before replicas are opened: groups must see new partitions on other brokers too.
            if topic.partition_count != len(described.partitions):
                topic.partition_count = len(described.partitions)
                self._topics.version += 1
            for index in sorted(indexes):
                self._follow(topic, index, described)
        for kind, name in changes.configs:
            topic_of = self._topics.get(name)
            if kind == TOPIC_RESOURCE and topic_of is not None:
                self._configure(topic_of, image)

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

    def _follow(self, topic: Topic, index: int, described: TopicImage) -> None:
        is_here = self._node_id in described.partitions[index].replicas
        if is_here and topic.get(index) is None:
            place = (topic.topic_id, index)
            try:
                self._open(topic, index)
                self.left_out.discard(place)
            except errors.KafkaStorageError as error:
                if not (self._is_alone and is_disk_full(error.__cause__)):
                    raise
                if place not in self.left_out:
                    logger.error("%s-%d waits for room on the disk: %s", topic.name, index, error)
                self.left_out.add(place)
        elif not is_here and topic.get(index) is not None:
            logger.info("the replica of %s-%d has moved away", topic.name, index)
            self._topics.drop_partition(topic, index)

    def _open(self, topic: Topic, index: int) -> None:
        directory = self._topics.directory(topic.name, index)
        mark = directory / _FILE
        self._topics.await_deletion(topic.name)
        wanted = str(uuid.UUID(bytes=topic.topic_id))
        if self._disk.size(mark) is not None and _topic_id(self._disk.read(mark)) != wanted:
            stray = directory.with_name(f"{directory.name}.{self._new_uuid().hex}-stray")
            logger.warning(
                "%s belongs to a topic that is deleted: it becomes %s",
                directory.name,
                stray.name,
            )
            self._disk.rename(directory, stray)
        self._topics.open_partition(topic, index)
        if self._disk.size(mark) is None:
            try:
                self._disk.replace(mark, f"version: 0\ntopic_id: {wanted}\n".encode())
            except OSError as error:
                reason = f"{mark}: {error.strerror}"
                if not (self._is_alone and is_disk_full(error)):
                    raise errors.KafkaStorageError(reason) from error
                # The next start writes it; without others no topic is replaced until then.
                logger.warning("%s", reason)


def marked_partitions(directory: Path, disk: Disk) -> list[str]:
    """Return the names of those folders in a log directory that a topic of a cluster has."""
    if disk.size(directory) is None:
        return []
    return sorted(
        name
        for name in disk.directories(directory)
        if LOG_DIRECTORY.fullmatch(name) is not None
        and disk.size(directory / name / _FILE) is not None
    )


def _topic_id(data: bytes) -> str:
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name == "topic_id":
            return value.strip()
    return ""
