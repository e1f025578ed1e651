"""Reads a partition from one offset to another, outside of any consumer group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

_BATCH_RECORDS: Final = 5000
_WAIT_S: Final = 0.1
_HOPELESS: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)


class PartitionReader:
    """A consumer to which partitions are assigned by hand. Use it in one thread, and close it."""

    def __init__(self, config: dict[str, Any], group: str) -> None:
        """`config` is a client's. `group` is only used for committed offsets; it is not joined."""
        self._config = config
        self._admin: AdminClient | None = None
        self._consumer = Consumer(
            config
            | {
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 8 * 1024,
                "fetch.wait.max.ms": 100,
            }
        )

    def partitions(self, topic: str, timeout_s: float = 10.0) -> list[int]:
        """Return the topic's partitions, none if it does not exist; raises KafkaException."""
        metadata = self._consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        return [] if metadata.error is not None else sorted(metadata.partitions)

    def bounds(self, topic: str, partition: int, timeout_s: float = 5.0) -> tuple[int, int]:
        """Return the first offset and the one after the last; raises KafkaException.

        The end is the high watermark. A reader of committed records is told the last stable offset
        instead, which is the start of the first open transaction: what that has written already
        would be left out although it may be committed. `batches` waits until it is decided.
        """
        asked = TopicPartition(topic, partition)
        low, _ = self._consumer.get_watermark_offsets(asked, timeout=timeout_s)
        if self._admin is None:
            self._admin = AdminClient(self._config)
        answers = self._admin.list_offsets(
            {asked: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=timeout_s,
        )
        return low, answers[asked].result().offset

    def offset_of_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        """Return the offset of the first record at or after a time, None without one.

        Raises KafkaException.
        """
        asked = TopicPartition(topic, partition, time_ms)
        [found] = self._consumer.offsets_for_times([asked], timeout=10.0)
        if found.error is not None:
            raise KafkaException(found.error)
        return found.offset if found.offset >= 0 else None

    def committed(self, topic: str, partition: int) -> int | None:
        """Return the offset that the group has committed, if any; raises KafkaException."""
        [found] = self._consumer.committed([TopicPartition(topic, partition)], timeout=10.0)
        if found.error is not None:
            raise KafkaException(found.error)
        return found.offset if found.offset >= 0 else None

    def commit(self, topic: str, partition: int, offset: int) -> None:
        """Commit an offset for the group, and wait for the answer; raises KafkaException."""
        self._consumer.commit(
            offsets=[TopicPartition(topic, partition, offset)], asynchronous=False
        )

    def batches(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[list[Message]]:
        """Yield the committed records from `start` up to `end`, or until `stopped()` returns true.

        Waits for a log that is away for a while, and for transactions that were open at `end`: the
        longest of them ends by its timeout (`transaction.timeout.ms`). Raises KafkaException for
        errors that waiting does not cure.
        """
        if start >= end:
            return
        self._consumer.assign([TopicPartition(topic, partition, start)])
        try:
            reached = False
            while not reached and not stopped():
                records = []
                for message in self._consumer.consume(_BATCH_RECORDS, _WAIT_S):
                    offset = message.offset()
                    error = message.error()
                    if error is not None:
                        # Compaction and transactions leave gaps in the offsets, also at the end.
                        if error.code() == KafkaError._PARTITION_EOF:
                            reached = reached or (offset is not None and offset >= end)
                        elif error.fatal() or error.code() in _HOPELESS:
                            raise KafkaException(error)
                    elif offset is None:
                        continue
                    elif offset < end:
                        records.append(message)
                        reached = offset == end - 1
                    else:
                        reached = True
                if records:
                    yield records
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()
