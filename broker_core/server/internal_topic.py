"""A topic that holds a coordinator's records, one key's always in the same partition."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.protocol import records
from broker_core.protocol.control_records import read_end_marker
from broker_core.protocol.records import BatchHeader
from broker_core.server.partition import Partition
from broker_core.server.topics import Topic, TopicRegistry

_LOAD_BYTES = 4 * 1024 * 1024

#: Takes a record: (batch header, key, value).
TakeRecord = Callable[[BatchHeader, bytes, bytes | None], None]
#: Takes the end of a transaction in a partition: (partition, producer id, committed).
TakeMarker = Callable[[int, int, bool], None]


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java, which decides in which partition a key lives."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


class InternalTopic:
    """Finds and creates such a topic, and reads it back."""

    def __init__(
        self, topics: TopicRegistry, name: str, partitions: int, segment_bytes: int
    ) -> None:
        self._topics = topics
        self._name = name
        self._partitions = partitions
        self._segment_bytes = segment_bytes
        self._topic: Topic | None = None

    def partition_of(self, key: str) -> Partition:
        """Where a key's records are; creates the topic with the first one."""
        if self._topic is None or self._topics.get(self._name) is not self._topic:
            self._topic = self._topics.get(self._name) or self._topics.create(
                self._name,
                self._partitions,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(self._segment_bytes),
                },
            )
        count = self._topic.partition_count
        return self._topic.partition((java_string_hash(key) & 0x7FFFFFFF) % count)

    def read_all(self, take: TakeRecord, take_marker: TakeMarker) -> int:
        """Read all records in the order of each partition's log; returns how many there are."""
        topic = self._topics.get(self._name)
        count = 0
        for partition in topic.partitions if topic else ():
            offset = partition.log.log_start_offset
            while offset < partition.log.log_end_offset:
                data = partition.log.read(offset, _LOAD_BYTES)
                headers = records.scan_batches(data)[0]
                if not headers:
                    break
                for header in headers:
                    offset = header.next_offset
                    if header.is_control:
                        marker = read_end_marker(data, header)
                        if marker is not None:
                            take_marker(partition.index, header.producer_id, marker.committed)
                        continue
                    for _, _, key, value, _ in records.read_records(data, header):
                        if key is not None:
                            take(header, key, value)
                            count += 1
        return count
