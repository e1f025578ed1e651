"""Reads topics for receipts: offsets at times, ranges of records, offsets of groups. It blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from waylog.kafka.clients import LogUnreachable, check_allowed
from waylog.kafka.errors import error_text
from waylog.kafka.ranges.log_ranges import LogRanges, Range, Watermarks
from waylog.kafka.reach import connect_admin
from waylog.sealing.sealing import opener

_CLIENT: Final = "waylog-audit"
_TIMEOUT_S: Final = 10.0
#: Groups whose offsets are asked for; each costs a request.
GROUPS_MAX: Final = 500


class LogReader:
    """A client of a log.

    All methods raise LogUnreachable, LogForbidden for a missing right, and ConfigError for sealed
    values without the master key.
    """

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, str] | None = None) -> None:
        """`properties` are those with which the client logs in. Raises ConfigError."""
        self.servers: Final = bootstrap_servers
        self._admin: Any = connect_admin(bootstrap_servers, properties, _CLIENT)
        self._log = LogRanges(bootstrap_servers, _CLIENT, properties)
        self._opened = opener(bootstrap_servers, properties=properties)

    def close(self) -> None:
        """Close the connections."""
        self._log.close()

    def watermarks(self, topic: str) -> dict[int, Watermarks]:
        """Return the watermarks of each partition; nothing if there is no such topic."""
        return self._log.watermarks(topic, _TIMEOUT_S)

    def undecided_ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the ends of partitions with what transactions have stored that are still open."""
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, each): latest for each in partitions}
        if not asked:
            return {}
        try:
            try:
                return self._ends(asked)
            except KafkaException:
                # librdkafka asks the leader that it has asked before until it learns of another.
                self._admin.list_topics(topic, timeout=_TIMEOUT_S)
                return self._ends(asked)
        except KafkaException as error:
            check_allowed(error, f"topic {topic}")
            raise _unreachable(error) from error

    def _ends(self, asked: Mapping[TopicPartition, Any]) -> dict[int, int]:
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_TIMEOUT_S
        )
        return {each.partition: found.result().offset for each, found in answers.items()}

    def offsets_at(
        self, topic: str, time_ms: int, marks: Mapping[int, Watermarks]
    ) -> dict[int, int]:
        """Return the first offset with a timestamp at or after a time, the end if there is none."""
        return self._log.offsets_at(topic, time_ms, marks, _TIMEOUT_S)

    def read(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[list[Message]]:
        """Yield the committed records of ranges, opened, each partition in order.

        Records that retention deletes meanwhile, and those that cannot be opened any more, are left
        out.
        """
        for records in self._log.read(topic, ranges):
            yield self._opened(records)

    def read_as_stored(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[list[Message]]:
        """Yield the same records with values that may be sealed."""
        yield from self._log.read(topic, ranges)

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
            raise _unreachable(error) from error

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


def _unreachable(error: KafkaException) -> LogUnreachable:
    try:
        check_allowed(error, "cluster")
        check_allowed(error, "group of a reader", "DESCRIBE")
    except LogUnreachable as forbidden:
        return forbidden
    return LogUnreachable(f"cluster: {error_text(error)}")
