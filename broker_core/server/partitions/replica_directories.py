"""Opens the logs of replicas in their folders, which may be missing, damaged, or of another topic.

A replica whose log is gone, or cannot be used, is made again if another one in sync has its
records. Otherwise it stays offline, as Apache Kafka's in a failed log directory (KIP-112): with an
empty log, offsets that were given before would be given to other records, and what the operator
puts back could not be used any more.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from broker_core import errors
from broker_core.environment import Disk, Environment
from broker_core.log.log import Log, remove_deleted
from broker_core.log.recovery import UnknownStart
from broker_core.server.partitions.inventory import TOPIC_MARK, PartitionInventory
from broker_core.server.partitions.topics import LOG_DIRECTORY, Topic, TopicRegistry
from waylog.process.storage_trouble import is_disk_full

logger = logging.getLogger(__name__)

#: Owner of a folder whose `partition.metadata` cannot be read.
_UNKNOWN: Final = ""


class UnusableReplica(Exception):
    """A replica cannot be opened before an operator has decided; the text says what."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica that the metadata places on this broker."""

    topic: Topic
    index: int
    #: Whether another replica has the records, and this one does not count as having them.
    others_have_records: bool

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    @property
    def in_inventory(self) -> tuple[str, str]:
        """The name of its folder, and the id of its topic."""
        return str(self), str(uuid.UUID(bytes=self.topic.topic_id))


class OpenedLog(NamedTuple):
    """The log of a replica."""

    log: Log
    #: Whether the folder says which topic it belongs to; without, it must not be in the inventory.
    is_marked: bool


class ReplicaDirectories:
    """Opens logs; any thread may, if no other one opens the same log."""

    def __init__(
        self,
        topics: TopicRegistry,
        environment: Environment,
        inventory: PartitionInventory,
        *,
        is_alone: bool,
    ) -> None:
        """A broker that `is_alone` goes on without marks that its full disk has no room for."""
        self._topics = topics
        self._disk = environment.disk
        self._new_uuid = environment.new_uuid
        self._inventory = inventory
        self._is_alone = is_alone
        self._is_loading = False
        # While loading: folders that were set aside at former starts, by the partition's name.
        self._strays: dict[str, list[Path]] = {}
        self._there: frozenset[str] = frozenset()

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Look for logs that are missing, and for folders that were set aside, meanwhile."""
        self._is_loading, self._strays = True, self._topics.strays()
        self._there = self._topics.directories()
        yield
        self._is_loading, self._strays, self._there = False, {}, frozenset()

    def may_be_there(self, replica: Replica) -> bool:
        """Tell whether a log may have records here; False unless this is asked while loading."""
        name, _ = replica.in_inventory
        return self._is_loading and (
            name in self._there
            or name in self._strays
            or self._inventory.topic_id(name) is not None
        )

    def open(self, replica: Replica) -> OpenedLog:
        """Open or create a log; raises UnusableReplica, KafkaStorageError.

        The deletion of a log of the same name must have ended.
        """
        topic, index = replica.topic, replica.index
        directory = self._topics.directory(topic.name, index)
        mark = directory / TOPIC_MARK
        _, wanted = replica.in_inventory
        owner = self._owner(directory)
        if owner not in {None, wanted}:
            self._set_aside(directory, "belongs to another topic, deleted or unknown,")
        if (self._is_loading or owner == wanted) and self._inventory.is_gone(directory.name):
            self._replace_missing(directory, wanted, replica)
        try:
            log = self._topics.open_log(topic, index)
        except UnknownStart as error:
            if not replica.others_have_records:
                raise UnusableReplica(f"{error}, then start again") from error
            logger.error("%s; another replica in sync has its records", error)
            self._set_aside(directory, "cannot be used and")
            log = self._topics.open_log(topic, index)
        return OpenedLog(log, self._is_marked(mark, wanted))

    def _is_marked(self, mark: Path, wanted: str) -> bool:
        if self._disk.size(mark) is None:
            try:
                self._disk.replace(mark, f"version: 0\ntopic_id: {wanted}\n".encode())
            except OSError as error:
                reason = f"{mark}: {error.strerror}"
                if not (self._is_alone and is_disk_full(error)):
                    raise errors.KafkaStorageError(reason) from error
                # The next start writes it; without others no topic is replaced until then.
                logger.warning("%s", reason)
                return False
        return True

    def _owner(self, directory: Path) -> str | None:
        """Return the id of the topic that a folder belongs to; None if nothing says so.

        Raises UnusableReplica.
        """
        mark = directory / TOPIC_MARK
        known = self._inventory.topic_id(directory.name)
        if self._disk.size(mark) is None:
            return known
        owner = _topic_id(self._disk.read(mark))
        if owner != _UNKNOWN:
            return owner
        if known is None:
            raise UnusableReplica(
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

    def _replace_missing(self, directory: Path, wanted: str, replica: Replica) -> None:
        """Take a folder back that was set aside; raises UnusableReplica if its log is needed."""
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
        if replica.others_have_records:
            logger.error("%s: another replica in sync has its records", what)
            return
        if strays:
            names = ", ".join(each.name for each in strays)
            raise UnusableReplica(f"{what}. Rename one of {names} to it, and start again")
        raise UnusableReplica(
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
