"""Reads topics for receipts: offsets at times, ranges of records, offsets of groups. It blocks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from waylog.config import ConfigError
from waylog.kafka.clients import LogUnreachable, check_allowed, consumer_config
from waylog.kafka.errors import error_text
from waylog.kafka.reach import connect_admin
from waylog.kafka.topic_reader import next_messages
from waylog.sealing.sealing import ENVIRONMENT, is_sealed, opener

_CLIENT: Final = "waylog-audit"
_TIMEOUT_S: Final = 10.0
_SILENCE_MAX_S: Final = 60.0
_BATCH_RECORDS: Final = 5_000
#: Groups whose offsets are asked for; each costs a request.
GROUPS_MAX: Final = 500


class Extent(NamedTuple):
    """The first offset of a partition, and the one after its last."""

    low: int
    high: int


class Range(NamedTuple):
    """The offsets start to end - 1 of a partition."""

    start: int
    end: int


class LogReader:
    """A client of a log.

    All methods raise LogUnreachable, LogForbidden for a missing right, and ConfigError for sealed
    values without the master key.
    """

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> None:
        """`properties` are those with which the client logs in. Raises ConfigError."""
        self._servers = bootstrap_servers
        self._admin: Any = connect_admin(bootstrap_servers, properties, _CLIENT)
        self._consumer = Consumer(
            consumer_config(
                bootstrap_servers,
                _CLIENT,
                _CLIENT,  # never joined
                enable_partition_eof=True,
                fetch_wait_max_ms=10,
                queued_min_messages=30_000,
                fetch_queue_backoff_ms=5,
            )
            | dict(properties or {})
        )
        self._opened = opener(bootstrap_servers)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def extents(self, topic: str) -> dict[int, Extent]:
        """Return the extent of each partition; nothing if there is no such topic."""
        try:
            found = self._consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
            if found.error is not None:
                if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return {}
                raise KafkaException(found.error)
            extents = {}
            for partition in sorted(found.partitions):
                marks = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=_TIMEOUT_S
                )
                if marks is None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                extents[partition] = Extent(*marks)
            return extents
        except KafkaException as error:
            raise _unreachable(error, f"topic {topic}") from error

    def offsets_at(self, topic: str, time_ms: int, extents: Mapping[int, Extent]) -> dict[int, int]:
        """Return the first offset with a timestamp at or after a time, the end if there is none."""
        asked = [TopicPartition(topic, partition, max(0, time_ms)) for partition in extents]
        if not asked:
            return {}
        try:
            answers = self._consumer.offsets_for_times(asked, timeout=_TIMEOUT_S)
            for each in answers:
                if each.error is not None:
                    raise KafkaException(each.error)
        except KafkaException as error:
            raise _unreachable(error, f"topic {topic}") from error
        return {
            each.partition: max(each.offset, extents[each.partition].low)
            if each.offset >= 0
            else extents[each.partition].high
            for each in answers
        }

    def read(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[list[Message]]:
        """Yield the committed records of ranges, opened, each partition in order.

        Records that retention deletes meanwhile, and those that cannot be opened any more, are left
        out.
        """
        for partition, wanted in ranges.items():
            if wanted.start < wanted.end:
                yield from self._read(topic, partition, wanted)

    def _read(self, topic: str, partition: int, wanted: Range) -> Iterator[list[Message]]:
        self._consumer.assign([TopicPartition(topic, partition, wanted.start)])
        deadline = time.monotonic() + _SILENCE_MAX_S
        is_done = False
        while not is_done:
            records: list[Message] = []
            for message in next_messages(self._consumer, _BATCH_RECORDS, 0.2):
                error = message.error()
                if error is None:
                    offset = message.offset() or 0
                    if wanted.start <= offset < wanted.end:
                        records.append(message)
                    is_done = is_done or offset >= wanted.end - 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Control records and compaction leave gaps before the end.
                    is_done = is_done or message.partition() == partition
                elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    # The group is never joined.
                    check_allowed(error, f"topic {topic}")
            if records:
                deadline = time.monotonic() + _SILENCE_MAX_S
                yield self._open(records)
            elif time.monotonic() > deadline:
                raise LogUnreachable(
                    f"nothing came from {topic}-{partition} for {_SILENCE_MAX_S:.0f} s"
                )

    def _open(self, records: list[Message]) -> list[Message]:
        if self._opened is not None:
            return self._opened(records)
        last = records[-1].value()
        if isinstance(last, bytes) and is_sealed(last):
            raise ConfigError(
                f"the log's values are sealed: {ENVIRONMENT} has to name the file of the master key"
            )
        return records

    def committed(self, topic: str) -> tuple[dict[str, dict[int, int]], int]:
        """Return the offsets that groups have committed in a topic, by group and partition.

        Also return how many groups were not asked because there are more than GROUPS_MAX.
        """
        try:
            listed = self._admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result()
            names = sorted(group.group_id for group in listed.valid)
            found = {}
            for name in names[:GROUPS_MAX]:
                own = self._committed_of(name, topic)
                if own:
                    found[name] = own
            return found, max(0, len(names) - GROUPS_MAX)
        except KafkaException as error:
            raise _unreachable(error, "cluster") from error

    def _committed_of(self, group: str, topic: str) -> dict[int, int]:
        try:
            answers = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=_TIMEOUT_S
            )
            places = answers[group].result().topic_partitions
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                return {}  # it was deleted meanwhile
            raise
        return {
            place.partition: place.offset
            for place in places
            if place.topic == topic and place.offset >= 0
        }


def _unreachable(error: KafkaException, resource: str) -> LogUnreachable:
    try:
        check_allowed(error, resource)
        check_allowed(error, "group of a reader", "DESCRIBE")
    except LogUnreachable as forbidden:
        return forbidden
    return LogUnreachable(f"{resource}: {error_text(error)}")
