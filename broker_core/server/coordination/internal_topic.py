"""A topic that holds a coordinator's records; a key's records are always in one partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from broker_core import errors
from broker_core.log.reading import Unreadable
from broker_core.protocol.batch_header import BatchHeader
from broker_core.protocol.control_records import read_end_marker
from broker_core.protocol.record_reader import read_records
from broker_core.server.coordination.string_hash import java_string_hash
from broker_core.server.partitions.partition import Partition
from broker_core.server.partitions.topics import Topic, TopicRegistry

logger = logging.getLogger(__name__)

_LOAD_BYTES = 1024 * 1024

#: Called with a record: (batch header, key, value).
TakeRecord = Callable[[BatchHeader, bytes, bytes | None], None]
#: Called with the end of a transaction: (producer id, committed).
TakeMarker = Callable[[int, bool], None]


class InternalTopic:
    """Finds the partitions of a coordinator's topic.

    The controller creates the topic when a client looks for a coordinator.
    """

    def __init__(self, topics: TopicRegistry, name: str) -> None:
        self.name = name
        self._topics = topics
        self._count = 0  # cached: with another count, keys would be in other partitions

    def _find(self) -> Topic:
        topic = self._topics.get(self.name)
        if topic is None:
            raise errors.CoordinatorNotAvailable(f"{self.name} does not exist yet")
        return topic

    def index_of(self, key: str) -> int:
        """Return the partition number of a key's records; raises CoordinatorNotAvailable."""
        if not self._count:
            self._count = self._find().partition_count
        return (java_string_hash(key) & 0x7FFFFFFF) % self._count

    def partition_of(self, key: str) -> Partition:
        """Return the partition of a key's records.

        Raises NotLeaderOrFollower if no replica is here, CoordinatorNotAvailable.
        """
        topic = self._find()
        return topic.partition(self.index_of(key))

    def partitions(self) -> list[Partition]:
        """Return the topic's partitions with a replica on this broker."""
        topic = self._topics.get(self.name)
        return [] if topic is None else topic.partitions


def read_back(
    partition: Partition, take: TakeRecord, take_marker: TakeMarker, *, without_damage: bool = False
) -> Iterator[int]:
    """Read a partition's records in the order of its log, up to the log's end.

    Yields the number of records read from time to time, so that the caller can do other work.
    Records that are appended meanwhile are read too. Damaged batches are passed over, and one line
    tells of them; with `without_damage` they are an error instead, CorruptMessage.
    """
    log = partition.log
    offset = log.log_start_offset
    damaged: list[Unreadable] = []
    while offset < log.log_end_offset:
        data, headers, offset, damage = log.read_sound(offset, _LOAD_BYTES)
        if damage is not None:
            damaged.append(damage)
            if without_damage:
                raise errors.CorruptMessage(_described(damage))
        count = 0
        for header in headers:
            if header.is_control:
                marker = read_end_marker(data, header)
                if marker is not None:
                    take_marker(header.producer_id, marker.committed)
                continue
            for _, _, key, value, _ in read_records(data, header):
                if key is not None:
                    take(header, key, value)
                    count += 1
        yield count
    if damaged:
        more = f", and {len(damaged) - 1} more places" if len(damaged) > 1 else ""
        logger.error(
            "%s: %s%s; the rest is used, with what was stored before in place of what is lost "
            "there. `waylog log verify` finds all; where another replica is sound, stop this "
            "broker and remove its folder of the partition",
            partition,
            _described(damaged[0]),
            more,
        )


def _described(damage: Unreadable) -> str:
    last = max(damage.offset, damage.end_offset - 1)
    return f"the offsets {damage.offset} to {last} cannot be read ({damage.problem})"
