"""`known-partitions`: the partitions that have a folder in a log directory, with their topics' ids.

Without it a folder that is gone looks like one that was never made, and its offsets would be given
again. A line is `NAME TOPIC_ID`, as `location-3 6f1c...`.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Final

from broker_core.environment import Disk
from broker_core.log import checkpoints
from broker_core.log.segment import LOG_SUFFIX

logger = logging.getLogger(__name__)

INVENTORY_FILE: Final = "known-partitions"
#: File in a log directory with the id of its topic. If a topic is deleted and created again while
#: this broker is down, the new topic has the same name, but not the same records.
TOPIC_MARK: Final = "partition.metadata"
#: Files of a log that say up to where it went.
_WITH_THE_END: Final = frozenset({checkpoints.RECOVERY_POINT, checkpoints.CLEAN_SHUTDOWN})


class PartitionInventory:
    """The file in a log directory; changes are kept in memory until `save`.

    One thread changes it; any thread may save it.
    """

    def __init__(self, directory: Path, disk: Disk) -> None:
        """Read the file; raises OSError."""
        self.path = directory / INVENTORY_FILE
        self._directory = directory
        self._disk = disk
        self._ids: dict[str, str] = {}
        self._is_changed = False
        self._saving = threading.Lock()
        #: What is wrong with the file, or None.
        self.problem: str | None = None
        if disk.size(self.path) is not None:
            self._parse(disk.read(self.path))

    def _parse(self, data: bytes) -> None:
        try:
            for line in data.decode().splitlines():
                name, topic_id = line.split()
                self._ids[name] = str(uuid.UUID(topic_id))
        except ValueError:
            self._ids.clear()
            self._is_changed = True
            self.problem = "is damaged: whether folders of partitions are missing is not known"

    def topic_id(self, name: str) -> str | None:
        """Return the id of the topic that a partition's folder belongs to; None if unknown."""
        return self._ids.get(name)

    def add(self, name: str, topic_id: str) -> None:
        """Add a partition whose folder is on the medium."""
        if self._ids.get(name) != topic_id:
            self._ids[name] = topic_id
            self._is_changed = True

    def discard(self, name: str) -> None:
        """Remove a partition; to be saved before its folder is deleted."""
        if self._ids.pop(name, None) is not None:
            self._is_changed = True

    def discard_topics(self, topic_ids: Set[str]) -> None:
        """Remove all partitions of topics."""
        for name in [name for name, known in self._ids.items() if known in topic_ids]:
            self.discard(name)

    def retain(self, names: Iterable[str]) -> None:
        """Remove all partitions but these."""
        for name in self._ids.keys() - set(names):
            self.discard(name)

    def save(self) -> None:
        """Write the file durably if something has changed; raises OSError."""
        with self._saving:
            if not self._is_changed:
                return
            # Before the names are taken: what changes from now on is written next time.
            self._is_changed = False
            lines = [f"{name} {topic_id}\n" for name, topic_id in sorted(self._ids.items())]
            try:
                self._disk.replace(self.path, "".join(lines).encode())
            except OSError:
                self._is_changed = True
                raise

    def is_gone(self, name: str) -> bool:
        """Tell whether a partition's folder is missing, or does not say where offsets go on."""
        try:
            names = self._disk.names(self._directory / name)
        except FileNotFoundError:
            return True
        return not any(each.endswith(LOG_SUFFIX) or each in _WITH_THE_END for each in names)

    def missing(self) -> list[Path]:
        """Return the folders of the partitions whose logs are gone."""
        return [self._directory / name for name in sorted(self._ids) if self.is_gone(name)]

    def lacks_records(self) -> bool:
        """Tell whether a log is gone, or cannot be used because its start is not known."""
        return any(
            self.is_gone(name)
            or checkpoints.load_offset(
                self._disk, self._directory / name, checkpoints.LOG_START_OFFSET
            ).offset
            is None
            for name in self._ids
        )
