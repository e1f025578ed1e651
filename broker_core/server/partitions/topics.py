"""The topics of this broker, in memory and on disk.

`topics.json` in the log directory decides which topics exist on a standalone broker: it is replaced
durably before a new topic is announced, and before the logs of a deleted one are removed. In a
cluster the metadata log decides. The logs are in `TOPIC-PARTITION` beside it, as in Kafka.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker_core import errors
from broker_core.cluster.topic_names import check_new_name
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.offsets import OFFSETS_TOPIC
from broker_core.coordinator.share_records import STATE_TOPIC
from broker_core.coordinator.transaction import TRANSACTIONS_TOPIC
from broker_core.environment import Environment
from broker_core.log.config import LogConfig
from broker_core.log.log import DELETED_SUFFIX, Log, remove_deleted
from broker_core.server.partitions.partition import Partition
from waylog.config import ConfigError

logger = logging.getLogger(__name__)

_FILE: Final = "topics.json"
_FORMAT_VERSION: Final = 1
_CLOSING_THREADS: Final = 16
_LOG_DIRECTORY: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
#: Partitions of a broker, unlimited in Kafka: each one has open files and takes about 20 KiB.
PARTITIONS_MAX: Final = 10_000

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, STATE_TOPIC})


class Topic:
    """A topic: its id (KIP-516), its own settings and its partitions."""

    def __init__(
        self, name: str, topic_id: bytes, overrides: dict[str, str], config: LogConfig
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.overrides = overrides
        self.config = config
        #: Number of partitions, wherever their replicas are.
        self.partition_count = 0
        self._partitions: dict[int, Partition] = {}

    @property
    def is_internal(self) -> bool:
        """Return whether the broker keeps its own data in this topic."""
        return self.name in INTERNAL_TOPICS

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that have a replica on this broker."""
        return list(self._partitions.values())

    def partition(self, index: int) -> Partition:
        """Return a partition that has a replica on this broker.

        Raises UnknownTopicOrPartition, or NotLeaderOrFollower if its replicas are elsewhere.
        """
        found = self._partitions.get(index)
        if found is None:
            if 0 <= index < self.partition_count:
                raise errors.NotLeaderOrFollower()
            raise errors.UnknownTopicOrPartition()
        return found

    def get(self, index: int) -> Partition | None:
        """Return a partition, or None if it has no replica on this broker."""
        return self._partitions.get(index)

    def add(self, partition: Partition) -> None:
        """Add a partition that has a replica on this broker."""
        self._partitions[partition.index] = partition
        self.partition_count = max(self.partition_count, partition.index + 1)

    def remove(self, index: int) -> Partition | None:
        """Remove and return a partition whose replica leaves this broker, or None."""
        return self._partitions.pop(index, None)


def _apply(topic: Topic) -> None:
    for partition in topic.partitions:
        partition.log.update_config(topic.config)
        partition.acknowledges_after_flush = topic.config.flush_messages <= 1
        partition.advance()


def _defaults(config: BrokerConfig) -> LogConfig:
    return replace(
        LogConfig.from_properties(config.topic_defaults),
        producer_id_expiration_ms=config.producer_id_expiration_ms,
    )


def _make_partition(topic: Topic, index: int, log: Log) -> Partition:
    # Nobody else has what this log has lost.
    log.continue_behind_acknowledged()
    return Partition(topic.name, index, log)


def _delete_logs(partitions: list[Partition]) -> None:
    for partition in partitions:
        try:
            partition.log.delete()
        except errors.KafkaStorageError as error:
            logger.error("%s could not be deleted: %s", partition, error)


class TopicRegistry:
    """Creates, opens, changes and deletes topics."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        self._config = config
        self._environment = environment
        self._directory = config.log_dir
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        #: Changes with every change of the topics and partitions that exist.
        self.version = 0
        self.defaults = _defaults(config)
        #: Creates a partition; a cluster replaces it with one for replicated partitions.
        self.make_partition: Callable[[Topic, int, Log], Partition] = _make_partition
        # Deletes logs. A new topic of the same name waits for the deletion of the old one's.
        self._deleter = environment.threads.executor(1, "deleter")
        self._deletions: dict[str, Future[None]] = {}
        # Inside `saved_together`, changes are only marked as unsaved.
        self._saves_later = False
        self._is_unsaved = False

    # -------------------------------------------------------------------------------------- reading

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def get(self, name: str) -> Topic | None:
        """Return a topic by name, or None."""
        return self._topics.get(name)

    def partition_count(self, name: str) -> int | None:
        """Return the number of a topic's partitions, None if there is no such topic."""
        topic = self._topics.get(name)
        return None if topic is None else topic.partition_count

    def by_id(self, topic_id: bytes) -> Topic | None:
        """Return a topic by id, or None."""
        return self._by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition | None:
        """Return a partition that has a replica on this broker, or None."""
        topic = self._topics.get(name)
        return None if topic is None else topic.get(index)

    def has_partition(self, name: str, index: int) -> bool:
        """Return whether a partition exists, wherever its replicas are."""
        topic = self._topics.get(name)
        return topic is not None and 0 <= index < topic.partition_count

    def partitions(self) -> Iterator[Partition]:
        """Yield all partitions that have a replica on this broker."""
        for topic in self._topics.values():
            yield from topic.partitions

    # ------------------------------------------------------------------------------------- changing

    def load(self) -> None:
        """Open all stored topics and their logs; raises KafkaStorageError, ConfigError."""
        for topic, partitions in self._stored_topics():
            for index in range(partitions):
                self.open_partition(topic, index)
            self.register(topic)
        self.set_strays_aside()

    def _stored_topics(self) -> list[tuple[Topic, int]]:
        path = self._directory / _FILE
        if self._environment.disk.size(path) is None:
            return []
        try:
            return [
                (
                    Topic(
                        name,
                        uuid.UUID(entry["id"]).bytes,
                        entry["config"],
                        self.log_config(entry["config"]),
                    ),
                    int(entry["partitions"]),
                )
                for name, entry in json.loads(self._environment.disk.read(path))["topics"].items()
            ]
        except (ValueError, KeyError, TypeError, AttributeError, errors.InvalidConfig) as error:
            # A broker that started without its topics would rename all their logs to strays.
            raise ConfigError(
                f"{path}: the list of topics cannot be read ({error}); put a copy of it back"
            ) from None

    def set_strays_aside(self) -> None:
        """Rename logs of no topic to `*-stray`, and finish interrupted deletions.

        Logs belong to no topic if `topics.json` was lost, for example.
        """
        disk = self._environment.disk
        for name in disk.directories(self._directory):
            if name.endswith(DELETED_SUFFIX):
                remove_deleted(disk, self._directory / name)
                continue
            match = _LOG_DIRECTORY.fullmatch(name)
            if match is None:
                continue
            if self.partition(match["topic"], int(match["partition"])) is None:
                stray = f"{name}.{self._environment.new_uuid().hex}-stray"
                logger.warning("%s belongs to no topic: it becomes %s", name, stray)
                disk.rename(self._directory / name, self._directory / stray)

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Combine a topic's settings with the broker's defaults; raises InvalidConfig."""
        return LogConfig.from_properties(overrides, self.defaults)

    def check_new(self, name: str, partitions: int, overrides: Mapping[str, str]) -> LogConfig:
        """Return the settings that a new topic would have; raises BrokerError if it is invalid."""
        check_new_name(name, self._topics)
        if partitions < 1:
            raise errors.InvalidPartitions("Number of partitions must be larger than 0.")
        self._check_room(partitions)
        return self.log_config(overrides)

    def _check_room(self, partitions: int) -> None:
        if sum(topic.partition_count for topic in self) + partitions > PARTITIONS_MAX:
            raise errors.InvalidPartitions(f"this broker holds at most {PARTITIONS_MAX} partitions")

    def create(self, name: str, partitions: int, overrides: Mapping[str, str]) -> Topic:
        """Create a topic; raises BrokerError."""
        config = self.check_new(name, partitions, overrides)
        topic = Topic(name, self._environment.new_uuid().bytes, dict(overrides), config)
        for index in range(partitions):
            self.open_partition(topic, index)
        self.register(topic)
        self._save_soon()
        logger.info("topic %s created with %d partitions", name, partitions)
        return topic

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Grow a topic to `count` partitions; raises InvalidPartitions."""
        self._check_room(count - topic.partition_count)
        for index in range(topic.partition_count, count):
            self.open_partition(topic, index)
        self.version += 1
        self._save_soon()
        logger.info("topic %s has %d partitions now", topic.name, count)

    def change_config(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace a topic's own settings and save them; raises InvalidConfig."""
        self.set_config(topic, overrides)
        self._save_soon()

    def set_config(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Apply a topic's settings that are stored in the metadata log; raises InvalidConfig."""
        config = self.log_config(overrides)
        topic.overrides = dict(overrides)
        topic.config = config
        _apply(topic)

    def change_defaults(self, config: BrokerConfig) -> None:
        """Apply new defaults to the settings that topics do not override; raises InvalidConfig."""
        defaults = _defaults(config)
        if defaults == self.defaults:
            return
        self.defaults = defaults
        for topic in self:
            topic.config = self.log_config(topic.overrides)
            _apply(topic)

    def delete(self, topic: Topic) -> None:
        """Delete a topic with its records."""
        self._unregister(topic)
        self._save()
        gone = errors.UnknownTopicOrPartition.code
        self._delete_partitions(topic.name, topic.partitions, gone)
        logger.info("topic %s deleted", topic.name)

    def forget(self, topic: Topic) -> None:
        """Remove a topic that the metadata log says is deleted, with its records."""
        self._unregister(topic)
        gone = errors.UnknownTopicOrPartition.code
        self._delete_partitions(topic.name, topic.partitions, gone)

    def drop_partition(self, topic: Topic, index: int) -> None:
        """Delete a replica that has moved to another broker."""
        partition = topic.remove(index)
        if partition is not None:
            # The partition still exists: waiting clients and markers have to go to its leader.
            elsewhere = errors.NotLeaderOrFollower.code
            self._delete_partitions(topic.name, [partition], elsewhere)
            self.version += 1

    def _unregister(self, topic: Topic) -> None:
        del self._topics[topic.name]
        del self._by_id[topic.topic_id]
        self.version += 1

    def _delete_partitions(self, name: str, partitions: list[Partition], code: int) -> None:
        """Fail the waiting requests with `code`, and delete the logs in a thread.

        Gigabytes take the file system a while, and a compaction may be reading the logs.
        """
        for partition in partitions:
            partition.mark_deleted(code)
        self._deletions = {
            name: deletion for name, deletion in self._deletions.items() if not deletion.done()
        }
        self._deletions[name] = self._deleter.submit(_delete_logs, partitions)

    def close(self) -> None:
        """Close all logs; flushed records need not be recovered at the next start.

        Raises KafkaStorageError.
        """
        self._deleter.shutdown()
        # Each log waits for the disk a few times; in parallel they share the journal's commits.
        with self._environment.threads.executor(_CLOSING_THREADS, "closing") as executor:
            for _ in executor.map(lambda partition: partition.log.close(), self.partitions()):
                pass

    # -------------------------------------------------------------------------------------- details

    def open_partition(self, topic: Topic, index: int) -> Partition:
        """Open a replica, or create it; raises KafkaStorageError."""
        deletion = self._deletions.get(topic.name)
        if deletion is not None:
            deletion.result()  # it may delete the same directory, which must be gone first
        log = Log.open(
            self.directory(topic.name, index), topic.name, index, topic.config, self._environment
        )
        partition = self.make_partition(topic, index, log)
        partition.acknowledges_after_flush = topic.config.flush_messages <= 1
        topic.add(partition)
        return partition

    def directory(self, name: str, index: int) -> Path:
        """Return the directory of a partition's log."""
        return self._directory / f"{name}-{index}"

    def register(self, topic: Topic) -> None:
        """Add a topic to the registry."""
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self.version += 1

    @contextmanager
    def saved_together(self) -> Iterator[None]:
        """Save the changes made within the block once, at its end.

        Raises KafkaStorageError.
        """
        self._saves_later = True
        try:
            yield
        finally:
            self._saves_later = False
            if self._is_unsaved:
                self._save()

    def _save_soon(self) -> None:
        if self._saves_later:
            self._is_unsaved = True
        else:
            self._save()

    def _save(self) -> None:
        self._is_unsaved = False
        stored = {
            "version": _FORMAT_VERSION,
            "topics": {
                topic.name: {
                    "id": str(uuid.UUID(bytes=topic.topic_id)),
                    "partitions": topic.partition_count,
                    "config": topic.overrides,
                }
                for topic in self
            },
        }
        data = json.dumps(stored, indent=1).encode()
        try:
            self._environment.disk.replace(self._directory / _FILE, data)
        except OSError as error:
            raise errors.KafkaStorageError(f"{_FILE}: {error.strerror}") from error
