"""The topics of this broker, and their logs in `TOPIC-PARTITION`, as in Kafka.

The metadata log decides which topics exist and which replicas are here; `TopicSync` applies it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.coordinator.offsets import OFFSETS_TOPIC
from broker_core.coordinator.sharing.share_records import STATE_TOPIC
from broker_core.coordinator.transaction import TRANSACTIONS_TOPIC
from broker_core.environment import Environment
from broker_core.log.config import LogConfig
from broker_core.log.log import DELETED_SUFFIX, Log, remove_deleted
from broker_core.server.partitions.partition import Partition

logger = logging.getLogger(__name__)

_CLOSING_THREADS: Final = 16
#: The names of folders in a log directory that are logs of partitions.
LOG_DIRECTORY: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
#: The names of those that were set aside; nothing deletes them.
_STRAY: Final = re.compile(r"(?P<partition>[a-zA-Z0-9._-]+-\d+)\.[0-9a-f]{32}-stray")
#: Names that a line of the log has at most.
_NAMES_TOLD: Final = 5

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
        #: Replicas whose logs here cannot be used before an operator has decided, and why.
        self.offline: dict[int, str] = {}
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

        Raises UnknownTopicOrPartition, NotLeaderOrFollower if its replicas are elsewhere, and
        KafkaStorageError if it is offline.
        """
        found = self._partitions.get(index)
        if found is None:
            if index in self.offline:
                raise errors.KafkaStorageError(self.offline[index])
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


def _delete(logs: Iterable[Log]) -> None:
    for log in logs:
        try:
            log.delete()
        except errors.KafkaStorageError as error:
            logger.error("%s could not be deleted: %s", log.name, error)


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
        #: Creates a partition around its log.
        self.make_partition: Callable[[Topic, int, Log], Partition]
        # Deletes logs. A new topic of the same name waits for the deletion of the old one's.
        self._deleter = environment.threads.executor(1, "deleter")
        self._deletions: dict[str, Future[None]] = {}

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

    def directories(self) -> frozenset[str]:
        """Return the names of the folders in the log directory."""
        return frozenset(self._environment.disk.directories(self._directory))

    def strays(self) -> dict[str, list[Path]]:
        """Return the folders that were set aside, by the name that they had before."""
        found: dict[str, list[Path]] = {}
        for name in self._environment.disk.directories(self._directory):
            match = _STRAY.fullmatch(name)
            if match is not None:
                found.setdefault(match["partition"], []).append(self._directory / name)
        return found

    def set_strays_aside(self) -> None:
        """Rename logs of no topic to `*-stray`, and finish interrupted deletions.

        Logs belong to no topic if the metadata log was lost, for example.
        """
        disk = self._environment.disk
        strays = []
        for name in sorted(disk.directories(self._directory)):
            if name.endswith(DELETED_SUFFIX):
                remove_deleted(disk, self._directory / name)
                continue
            match = LOG_DIRECTORY.fullmatch(name)
            if match is None:
                continue
            topic, index = self.get(match["topic"]), int(match["partition"])
            if topic is None or (topic.get(index) is None and index not in topic.offline):
                stray = f"{name}.{self._environment.new_uuid().hex}-stray"
                disk.rename(self._directory / name, self._directory / stray)
                strays.append(name)
        if strays:
            more = f" and {len(strays) - _NAMES_TOLD} more" if len(strays) > _NAMES_TOLD else ""
            logger.error(
                "%d folders in %s are of no partition that the metadata places here: %s%s. They "
                "are named *-stray now, and nothing deletes them. If their topics were deleted, or "
                "their replicas moved, while this broker was stopped, remove them; otherwise "
                "decisions are missing in the metadata: stop the broker and put a copy of it back, "
                "and they are taken back",
                len(strays),
                self._directory,
                ", ".join(strays[:_NAMES_TOLD]),
                more,
            )

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Combine a topic's settings with the broker's defaults; raises InvalidConfig."""
        return LogConfig.from_properties(overrides, self.defaults)

    def set_config(self, topic: Topic, overrides: Mapping[str, str]) -> None:
        """Replace a topic's own settings; raises InvalidConfig."""
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

    def forget(self, topic: Topic) -> None:
        """Remove a deleted topic, with its records."""
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
        """Fail the waiting requests with `code`, and delete the logs."""
        for partition in partitions:
            partition.mark_deleted(code)
        self.delete_logs(name, [partition.log for partition in partitions])

    def delete_logs(self, name: str, logs: list[Log]) -> None:
        """Delete logs of a topic in a thread.

        Gigabytes take the file system a while, and a compaction may be reading the logs.
        """
        deletions = self._deletions
        # The thread deletes in this order. A later deletion of the same name stands at the end.
        while deletions and deletions[first := next(iter(deletions))].done():
            del deletions[first]
        deletions.pop(name, None)
        deletions[name] = self._deleter.submit(_delete, logs)

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

    def is_being_deleted(self, name: str) -> bool:
        """Tell whether logs of a deleted topic of this name are there: a new one has the same."""
        return bool(self.deletions([name]))

    def deletions(self, names: Iterable[str]) -> list[Future[None]]:
        """Return the deletions under way of logs of topics with these names."""
        found = (self._deletions.get(name) for name in names)
        return [each for each in found if each is not None and not each.done()]

    def open_log(self, topic: Topic, index: int) -> Log:
        """Open the log of a replica, or create it; raises KafkaStorageError.

        Any thread may call it; the deletion of a log of the same name must have ended.
        """
        return Log.open(
            self.directory(topic.name, index), topic.name, index, topic.config, self._environment
        )

    def add_partition(self, topic: Topic, index: int, log: Log) -> None:
        """Add a replica with its log to its topic."""
        # The topic's settings may have changed while the log was opened.
        log.update_config(topic.config)
        partition = self.make_partition(topic, index, log)
        partition.acknowledges_after_flush = topic.config.flush_messages <= 1
        topic.add(partition)

    def directory(self, name: str, index: int) -> Path:
        """Return the directory of a partition's log."""
        return self._directory / f"{name}-{index}"

    def register(self, topic: Topic) -> None:
        """Add a topic to the registry."""
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self.version += 1
