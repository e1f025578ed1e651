"""Reading ranges of a topic's partitions with an ordinary Kafka client."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from waylog.kafka.clients import LogUnreachable, consumer_config
from waylog.sealing.sealing import opener

logger = logging.getLogger(__name__)

#: A task gives up when the log was silent for so long; Spark then starts the batch again.
SILENCE_MAX_S: Final = 60.0

_BATCH_RECORDS: Final = 10_000


class Watermarks(NamedTuple):
    """The offsets a partition has: low is the first, high one past the last."""

    low: int
    high: int


class OffsetRange(NamedTuple):
    """Records start..end-1 of one partition."""

    partition: int
    start: int
    end: int


class LogOffsets:
    """Asks a topic for its partitions and their offsets."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(_config(bootstrap_servers))

    def watermarks(self, timeout_s: float) -> dict[int, Watermarks]:
        """Of every partition, or nothing while the topic does not exist.

        Raises LogUnreachable when the log does not answer within `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return self._ask(min(5.0, timeout_s))
            except KafkaException as error:
                if time.monotonic() >= deadline:
                    raise LogUnreachable(
                        f"the log did not answer within {timeout_s:.0f} s: {error.args[0].str()}"
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


def read_range(bootstrap_servers: str, topic: str, wanted: OffsetRange) -> Iterator[list[Message]]:
    """The records of one range in order, some thousand at a time.

    Records that retention has deleted meanwhile are left out with a warning, those whose key has
    been destroyed without one. Outlasts a restart of the broker; raises LogUnreachable after
    SILENCE_MAX_S without progress.
    """
    opened = opener(bootstrap_servers) or list
    consumer = Consumer(
        _config(
            bootstrap_servers,
            enable_partition_eof=True,
            auto_offset_reset="error",
            # A range ends soon: what is fetched beyond it is thrown away.
            queued_min_messages=30_000,
            # After the queue was full, look again at once: the default of 1 s is most of the time.
            fetch_queue_backoff_ms=5,
        )
    )
    try:
        position = wanted.start
        consumer.assign([TopicPartition(topic, wanted.partition, position)])
        deadline = time.monotonic() + SILENCE_MAX_S
        while position < wanted.end:
            records: list[Message] = []
            # Not more than there are: `consume` waits for as many as it is asked for.
            count = min(_BATCH_RECORDS, wanted.end - position)
            for message in consumer.consume(count, timeout=0.2):
                error = message.error()
                if error is None:
                    records.append(message)
                elif error.code() in _OUT_OF_RANGE:
                    position = _after_deletion(consumer, topic, wanted, position)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Compaction and transactions leave holes: the end counts, not the last record.
                    position = max(position, message.offset() or 0)
                else:
                    logger.warning("%s-%d: %s", topic, wanted.partition, error.str())
            if records:
                position = max(position, (records[-1].offset() or 0) + 1)
                inside = opened(
                    [record for record in records if (record.offset() or 0) < wanted.end]
                )
                if inside:
                    yield inside
                deadline = time.monotonic() + SILENCE_MAX_S
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
        # No answer yet, or a broker that has just started and does not know its log's end.
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
        # Never joined: Spark keeps the offsets.
        "waylog-history",
        **{"queued_max_messages_kbytes": 8 * 1024, "fetch_max_bytes": 8 * 1024 * 1024} | more,
    ) | {"logger": logging.getLogger("spark.fixes.log_source.librdkafka")}
