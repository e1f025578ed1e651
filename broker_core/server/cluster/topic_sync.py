"""Applies metadata images to this broker's topics and replicas."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from broker_core import errors
from broker_core.cluster.image import (
    TOPIC_RESOURCE,
    ClusterImage,
    ImageChanges,
    PartitionImage,
    TopicImage,
)
from broker_core.environment import Disk, Environment
from broker_core.log.log import remove_deleted
from broker_core.log.recovery import UnknownStart
from broker_core.server.partitions.inventory import TOPIC_MARK, PartitionInventory
from broker_core.server.partitions.topics import LOG_DIRECTORY, Topic, TopicRegistry
from waylog.process.storage_trouble import is_disk_full

logger = logging.getLogger(__name__)

#: Owner of a folder whose `partition.metadata` cannot be read.
_UNKNOWN: Final = ""


class _Unusable(Exception):
    """A replica cannot be opened before an operator has decided; the text says what."""


class TopicSync:
    """Applies images to the TopicRegistry; `load` applies the first one.

    A replica whose log is gone, or cannot be used, is made again if another one in sync has its
    records. Otherwise it stays offline, as Apache Kafka's in a failed log directory (KIP-112): with
    an empty log, offsets that were given before would be given to other records, and what the
    operator puts back could not be used any more.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        node_id: int,
        environment: Environment,
        inventory: PartitionInventory,
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
        self._inventory = inventory
        self._is_loading = False
        # While loading: folders that were set aside at former starts, by the partition's name.
        self._strays: dict[str, list[Path]] = {}

    def load(self, image: ClusterImage) -> None:
        """Open the replicas that the first image places here; raises KafkaStorageError."""
        self._is_loading = True
        self._strays = self._topics.strays()
        self.apply(image, ImageChanges(everything=True))
        self._is_loading, self._strays = False, {}
        self._inventory.retain(
            self._topics.directory(topic.name, index).name
            for topic in self._topics
            for index in (*(each.index for each in topic.partitions), *topic.offline)
        )
        self._save_inventory()
        self._topics.set_strays_aside()

    def apply(self, image: ClusterImage, changes: ImageChanges) -> None:
        """Apply a change; raises KafkaStorageError."""
        gone = self._gone(image, changes)
        for topic in gone:
            self._inventory.discard_topic(str(uuid.UUID(bytes=topic.topic_id)))
        # Before their folders are deleted: they are not to be missed.
        self._save_inventory()
        for topic in gone:
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
        self._save_inventory()

    def _save_inventory(self) -> None:
        try:
            self._inventory.save()
        except OSError as error:
            reason = f"{self._inventory.path}: {error.strerror}"
            if not (self._is_alone and is_disk_full(error)):
                raise errors.KafkaStorageError(reason) from error
            # The next change, or the next start, writes it.
            logger.warning("%s", reason)

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
        if is_here and topic.get(index) is None and index not in topic.offline:
            place = (topic.topic_id, index)
            try:
                self._open(topic, index, described.partitions[index])
                self.left_out.discard(place)
            except _Unusable as problem:
                logger.error("%s-%d stays offline: %s", topic.name, index, problem)
                topic.offline[index] = f"{topic.name}-{index} is offline: {problem}"
            except errors.KafkaStorageError as error:
                if not (self._is_alone and is_disk_full(error.__cause__)):
                    raise
                if place not in self.left_out:
                    logger.error("%s-%d waits for room on the disk: %s", topic.name, index, error)
                self.left_out.add(place)
        elif not is_here:
            topic.offline.pop(index, None)
            if topic.get(index) is not None:
                logger.info("the replica of %s-%d has moved away", topic.name, index)
                self._inventory.discard(self._topics.directory(topic.name, index).name)
                self._save_inventory()
                self._topics.drop_partition(topic, index)

    def _open(self, topic: Topic, index: int, described: PartitionImage) -> None:
        directory = self._topics.directory(topic.name, index)
        mark = directory / TOPIC_MARK
        wanted = str(uuid.UUID(bytes=topic.topic_id))
        self._topics.await_deletion(topic.name)
        owner = self._owner(directory)
        if owner not in {None, wanted}:
            self._set_aside(directory, "belongs to another topic, deleted or unknown,")
        if (self._is_loading or owner == wanted) and self._inventory.is_gone(directory.name):
            self._replace_missing(directory, wanted, described)
        try:
            self._topics.open_partition(topic, index)
        except UnknownStart as error:
            if not self._others_have(described):
                raise _Unusable(f"{error}, then start again") from error
            logger.error("%s; another replica in sync has its records", error)
            self._set_aside(directory, "cannot be used and")
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
                return
        self._inventory.add(directory.name, wanted)

    def _owner(self, directory: Path) -> str | None:
        """Return the id of the topic that a folder belongs to; None if nothing says so.

        Raises _Unusable.
        """
        mark = directory / TOPIC_MARK
        known = self._inventory.topic_id(directory.name)
        if self._disk.size(mark) is None:
            return known
        owner = _topic_id(self._disk.read(mark))
        if owner != _UNKNOWN:
            return owner
        if known is None:
            raise _Unusable(
                f"{mark} is damaged, and nothing else says whether the folder is this topic's or "
                "that of a deleted one of its name. If it is this topic's, remove the file; "
                "otherwise move the folder away. Then start again"
            )
        logger.warning(
            "%s is damaged: the folder is that of topic %s, as %s says",
            mark,
            known,
            self._inventory.path,
        )
        self._disk.remove(mark)
        return known

    def _set_aside(self, directory: Path, why: str) -> None:
        stray = directory.with_name(f"{directory.name}.{self._new_uuid().hex}-stray")
        try:
            self._disk.rename(directory, stray)
        except FileNotFoundError:
            return  # only the inventory had it
        logger.warning("%s %s becomes %s", directory, why, stray.name)

    def _replace_missing(self, directory: Path, wanted: str, described: PartitionImage) -> None:
        """Take a folder back that was set aside; raises _Unusable if a log is needed and gone."""
        strays = self._strays_of(directory, wanted)
        if len(strays) == 1:
            logger.warning("%s: %s is taken back as it", directory, strays[0].name)
            if directory.name in self._disk.directories(directory.parent):
                remove_deleted(self._disk, directory)
            self._disk.rename(strays[0], directory)
            return
        if not strays and self._inventory.topic_id(directory.name) != wanted:
            return  # it was never here
        what = f"the log in {directory} is gone"
        if self._others_have(described):
            logger.error("%s: another replica in sync has its records", what)
            return
        if strays:
            names = ", ".join(each.name for each in strays)
            raise _Unusable(f"{what}. Rename one of {names} to it, and start again")
        raise _Unusable(
            f"{what}; with an empty one its offsets would begin at 0 again, for other records. Put "
            "the folder back and start again, or delete the topic; to begin at 0 all the same, "
            f"remove the line of {directory.name} from {self._inventory.path} while the broker is "
            "stopped"
        )

    def _strays_of(self, directory: Path, wanted: str) -> list[Path]:
        return [
            stray
            for stray in self._strays.get(directory.name, ())
            if self._disk.size(stray / TOPIC_MARK) is not None
            and _topic_id(self._disk.read(stray / TOPIC_MARK)) == wanted
        ]

    def _others_have(self, described: PartitionImage) -> bool:
        """Tell whether the records are elsewhere, and this replica does not count as having them.

        When it registered, it did not claim to have everything (`lacks_records`).
        """
        having = {*described.isr, *described.elr}
        return bool(having) and self._node_id not in having


def marked_partitions(directory: Path, disk: Disk) -> list[str]:
    """Return the names of those folders in a log directory that a topic of a cluster has."""
    if disk.size(directory) is None:
        return []
    return sorted(
        name
        for name in disk.directories(directory)
        if LOG_DIRECTORY.fullmatch(name) is not None
        and disk.size(directory / name / TOPIC_MARK) is not None
    )


def _topic_id(data: bytes) -> str:
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name == "topic_id":
            try:
                return str(uuid.UUID(value.strip()))
            except ValueError:
                return _UNKNOWN
    return _UNKNOWN
