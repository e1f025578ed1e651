"""Reads ranges of offsets of a topic's partitions with an ordinary Kafka client."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from waylog.kafka.clients import LogUnreachable, check_allowed, consumer_config
from waylog.kafka.errors import error_text
from waylog.kafka.polling import next_batch
from waylog.kafka.ranges.silence import BoundedSilence, Silence
from waylog.kafka.reach import silence_reason

logger = logging.getLogger(__name__)

_AnswerT = TypeVar("_AnswerT")

_BATCH_RECORDS: Final = 10_000
_PAUSE_S: Final = 0.2
#: Seconds of one attempt to learn offsets.
_ATTEMPT_S: Final = 5.0


class Watermarks(NamedTuple):
    """The offsets of a partition: low is the first, high is one past the last."""

    low: int
    high: int


class Range(NamedTuple):
    """The offsets start to end - 1 of a partition."""

    start: int
    end: int


#: Called with a partition and the first and last offset of records that were deleted before they
#: could be read.
OnDeleted = Callable[[int, int, int], object]


class LogRanges:
    """A client that asks for offsets, and reads what is between them.

    All methods raise LogForbidden at once for a missing right. One thread uses it at a time.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        properties: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """`properties` are those with which the client logs in, `more` those of its consumer."""
        self._servers = bootstrap_servers
        #: The consumer, which belongs to no group, for whoever asks for more than ranges.
        self.consumer: Final = Consumer(
            consumer_config(
                bootstrap_servers,
                client_id,
                client_id,  # never joined
                **{
                    "enable_partition_eof": True,
                    "auto_offset_reset": "error",
                    # The end is told by an empty answer, which a broker delays by this time.
                    "fetch_wait_max_ms": 10,
                    # Ranges are short, and records fetched beyond the end are discarded.
                    "queued_min_messages": 30_000,
                    # After a full queue, fetch again at once: with the default, most of the time
                    # is a pause of 1 s.
                    "fetch_queue_backoff_ms": 5,
                }
                | more,
            )
            | {"logger": logging.getLogger(f"{__name__}.librdkafka")}
            | dict(properties or {})
        )

    def close(self) -> None:
        """Close the connections."""
        self.consumer.close()

    # --- offsets --------------------------------------------------------------------------------

    def watermarks(
        self, topic: str, timeout_s: float, stopping: threading.Event | None = None
    ) -> dict[int, Watermarks]:
        """Return the watermarks of each partition, those of committed records; {} without a topic.

        Raises LogUnreachable when the log does not answer within `timeout_s` or until `stopping` is
        set.
        """
        return self._asked(
            lambda seconds: self._watermarks(topic, seconds), topic, timeout_s, stopping
        )

    def offsets_at(
        self, topic: str, time_ms: int, marks: Mapping[int, Watermarks], timeout_s: float
    ) -> dict[int, int]:
        """Return the first offset with a timestamp at or after a time, the end if there is none.

        `marks` names the partitions. Raises LogUnreachable.
        """
        asked = [TopicPartition(topic, partition, max(0, time_ms)) for partition in marks]
        if not asked:
            return {}
        answers = self._asked(
            lambda seconds: self._offsets_for_times(asked, seconds), topic, timeout_s, None
        )
        return {
            each.partition: max(each.offset, marks[each.partition].low)
            if each.offset >= 0
            else marks[each.partition].high
            for each in answers
        }

    def _asked(
        self,
        ask: Callable[[float], _AnswerT],
        topic: str,
        timeout_s: float,
        stopping: threading.Event | None,
    ) -> _AnswerT:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return ask(min(_ATTEMPT_S, timeout_s))
            except KafkaException as error:
                check_allowed(error, f"topic {topic}")
                if stopping is not None and stopping.is_set():
                    raise LogUnreachable("stopped while the log does not answer") from error
                if time.monotonic() >= deadline:
                    why = silence_reason(self._servers) or error_text(error)
                    raise LogUnreachable(
                        f"the log did not answer within {timeout_s:.0f} s: {why}"
                    ) from error
            time.sleep(_PAUSE_S)

    def _watermarks(self, topic: str, timeout_s: float) -> dict[int, Watermarks]:
        found = self.consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        if found.error is not None:
            if found.error.code() in _NO_TOPIC:
                return {}
            raise KafkaException(found.error)
        result: dict[int, Watermarks] = {}
        for partition in sorted(found.partitions):
            answer = self.consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=timeout_s
            )
            if answer is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            result[partition] = Watermarks(*answer)
        return result

    def _offsets_for_times(
        self, asked: list[TopicPartition], timeout_s: float
    ) -> list[TopicPartition]:
        answers: list[TopicPartition] = self.consumer.offsets_for_times(asked, timeout=timeout_s)
        for each in answers:
            if each.error is not None:
                raise KafkaException(each.error)
        return answers

    # --- records --------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        ranges: Mapping[int, Range],
        *,
        silence: Silence | None = None,
        on_deleted: OnDeleted | None = None,
    ) -> Iterator[list[Message]]:
        """Yield the committed records of ranges as they are stored, each partition in order.

        In lists of at most _BATCH_RECORDS, never empty. Records that retention has deleted
        meanwhile are passed over. The read survives a restart of the broker. It raises
        LogUnreachable when nothing comes for a minute, or what `silence` raises.
        """
        waiting = silence or BoundedSilence(self._servers)
        for partition, wanted in ranges.items():
            if wanted.start < wanted.end:
                reading = _Reading(self.consumer, topic, partition, wanted, on_deleted)
                yield from reading.batches(waiting)
        self.consumer.unassign()


class _Reading:
    """The reading of one range."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        partition: int,
        wanted: Range,
        on_deleted: OnDeleted | None,
    ) -> None:
        self._consumer = consumer
        self._topic = topic
        self._partition = partition
        self._end = wanted.end
        self._on_deleted = on_deleted
        self._assign(wanted.start)

    def _assign(self, position: int) -> None:
        self._position = position
        self._consumer.assign([TopicPartition(self._topic, self._partition, position)])

    def batches(self, silence: Silence) -> Iterator[list[Message]]:
        silence.ended()
        while self._position < self._end:
            records = self._next()
            if records:
                yield records
                silence.ended()
            elif self._position < self._end:
                silence.check(f"{self._topic}-{self._partition} at offset {self._position}")

    def _next(self) -> list[Message]:
        """Return the next records of the range, if any come; move the position behind them."""
        records: list[Message] = []
        for message in next_batch(self._consumer, min(_BATCH_RECORDS, self._end - self._position)):
            error = message.error()
            if error is None:
                records.append(message)
            else:
                self._take_error(message, error)
        if not records:
            return []
        last = records[-1].offset() or 0
        self._position = max(self._position, last + 1)
        if last >= self._end:
            records = [each for each in records if (each.offset() or 0) < self._end]
        return records

    def _take_error(self, message: Message, error: KafkaError) -> None:
        code = error.code()
        if code in _OUT_OF_RANGE:
            self._pass_deleted()
        elif code == KafkaError._PARTITION_EOF:
            # Compaction and transactions leave gaps, so the end of the log counts, not the last
            # record.
            if message.partition() == self._partition:
                self._position = max(self._position, message.offset() or 0)
        elif code != KafkaError.GROUP_AUTHORIZATION_FAILED:
            # The group is never joined.
            check_allowed(error, f"topic {self._topic}")
            logger.warning("%s-%d: %s", self._topic, self._partition, error.str())

    def _pass_deleted(self) -> None:
        """Go on at the first offset that the log has."""
        position = self._position
        try:
            answer = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, self._partition), timeout=_ATTEMPT_S
            )
        except KafkaException as error:
            logger.warning("%s-%d: %s", self._topic, self._partition, error_text(error))
            answer = None
        if answer is None or answer[0] <= position:
            # No answer yet, or a broker that has just started and does not know the end of its log.
            self._assign(position)
            return
        low = int(answer[0])
        if self._on_deleted is not None:
            self._on_deleted(self._partition, position, min(low, self._end) - 1)
        self._assign(low)


#: There is no such topic, or there can be none of that name.
_NO_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)
_OUT_OF_RANGE: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
