"""Reads ranges of a topic's partitions with an ordinary Kafka client."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from waylog.kafka.clients import LogUnreachable, check_allowed, consumer_config
from waylog.kafka.errors import error_text
from waylog.kafka.reach import silence_reason
from waylog.sealing.sealing import opener

logger = logging.getLogger(__name__)

#: Seconds of silence of the log after which a task gives up; Spark then repeats the batch.
SILENCE_MAX_S: Final = 60.0

_BATCH_RECORDS: Final = 10_000


class Watermarks(NamedTuple):
    """The offsets of a partition: low is the first, high is one past the last."""

    low: int
    high: int


class OffsetRange(NamedTuple):
    """Records start..end-1 of one partition."""

    partition: int
    start: int
    end: int


class LogOffsets:
    """A client that asks for the offsets of a topic's partitions."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._bootstrap_servers = bootstrap_servers
        self._consumer = Consumer(_config(bootstrap_servers))

    def watermarks(
        self, timeout_s: float, stopping: threading.Event | None = None
    ) -> dict[int, Watermarks]:
        """Return the watermarks of every partition; nothing while the topic does not exist.

        Raises LogUnreachable when the log does not answer within `timeout_s` or until `stopping`
        is set, LogForbidden at once.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._ask(min(5.0, timeout_s))
            except KafkaException as error:
                check_allowed(error, f"topic {self._topic}")
                if stopping is not None and stopping.is_set():
                    raise LogUnreachable("stopped while the log does not answer") from error
                if time.monotonic() >= deadline:
                    why = silence_reason(self._bootstrap_servers) or error_text(error)
                    raise LogUnreachable(
                        f"the log did not answer within {timeout_s:.0f} s: {why}"
                    ) from error
            time.sleep(0.2)

    def _ask(self, timeout_s: float) -> dict[int, Watermarks]:
        topic = self._consumer.list_topics(self._topic, timeout=timeout_s).topics[self._topic]
        if topic.error is not None:
            if topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return {}
            raise KafkaException(topic.error)
        result: dict[int, Watermarks] = {}
        for partition in sorted(topic.partitions):
            answer = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), timeout=timeout_s
            )
            if answer is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            result[partition] = Watermarks(*answer)
        return result

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


def read_range(
    bootstrap_servers: str,
    topic: str,
    wanted: OffsetRange,
    stopping: threading.Event | None = None,
) -> Iterator[list[Message]]:
    """Yield the records of one range in order, in lists of up to _BATCH_RECORDS.

    Records that retention has deleted in the meantime are skipped with a warning; records whose key
    was destroyed are skipped without one. The read survives a restart of the broker. Raises
    LogUnreachable after SILENCE_MAX_S without progress, or when nothing comes and `stopping` is
    set; LogForbidden for a missing right.
    """
    opened = opener(bootstrap_servers) or list
    consumer = Consumer(
        _config(
            bootstrap_servers,
            enable_partition_eof=True,
            auto_offset_reset="error",
            # Ranges are short, and records fetched beyond the end are discarded.
            queued_min_messages=30_000,
            # After a full queue, fetch again at once: with the default, most of the time is a pause
            # of 1 s.
            fetch_queue_backoff_ms=5,
        )
    )
    try:
        position = wanted.start
        consumer.assign([TopicPartition(topic, wanted.partition, position)])
        deadline = time.monotonic() + SILENCE_MAX_S
        while position < wanted.end:
            records: list[Message] = []
            # Do not ask for more than there are, because `consume` waits for that many.
            count = min(_BATCH_RECORDS, wanted.end - position)
            for message in consumer.consume(count, timeout=0.2):
                error = message.error()
                if error is None:
                    records.append(message)
                elif error.code() in _OUT_OF_RANGE:
                    position = _after_deletion(consumer, topic, wanted, position)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Compaction and transactions leave gaps, so the end of the log counts, not the
                    # last record.
                    position = max(position, message.offset() or 0)
                elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                    # The group is never joined.
                    check_allowed(error, f"topic {topic}")
                    logger.warning("%s-%d: %s", topic, wanted.partition, error.str())
            if records:
                position = max(position, (records[-1].offset() or 0) + 1)
                inside = opened(
                    [record for record in records if (record.offset() or 0) < wanted.end]
                )
                if inside:
                    yield inside
                deadline = time.monotonic() + SILENCE_MAX_S
            elif stopping is not None and stopping.is_set():
                raise LogUnreachable("stopped while nothing comes from the log")
            elif time.monotonic() > deadline:
                raise LogUnreachable(
                    f"nothing came from {topic}-{wanted.partition} at offset {position} "
                    f"for {SILENCE_MAX_S:.0f} s"
                )
    finally:
        consumer.close()


_OUT_OF_RANGE: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)


def _after_deletion(consumer: Consumer, topic: str, wanted: OffsetRange, position: int) -> int:
    try:
        answer = consumer.get_watermark_offsets(
            TopicPartition(topic, wanted.partition), timeout=5.0
        )
    except KafkaException as error:
        logger.warning("%s-%d: %s", topic, wanted.partition, error.args[0].str())
        answer = None
    if answer is None or answer[0] <= position:
        # No answer yet, or a broker that has just started and does not know the end of its log.
        consumer.assign([TopicPartition(topic, wanted.partition, position)])
        return position
    low = int(answer[0])
    logger.error(
        "%s-%d: records %d to %d were deleted before the history had read them",
        topic,
        wanted.partition,
        position,
        min(low, wanted.end) - 1,
    )
    consumer.assign([TopicPartition(topic, wanted.partition, low)])
    return low


def _config(bootstrap_servers: str, **more: object) -> dict[str, object]:
    return consumer_config(
        bootstrap_servers,
        "waylog-history",
        # The group is never joined: Spark keeps the offsets.
        "waylog-history",
        **{"queued_max_messages_kbytes": 8 * 1024, "fetch_max_bytes": 8 * 1024 * 1024} | more,
    ) | {"logger": logging.getLogger("spark.fixes.log_source.librdkafka")}
