"""What topologies write: the topics of their results, and those between their processors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from waylog.kafka.clients import consumer_config
from waylog.kafka.polling import next_messages
from waylog.kafka.topics import EVENT, HEAT_MAP, KEYED_PARTITIONS, TRIP, TRIP_DAY

#: A topology of operators: fixes by user.
WORD_COUNT: Final = "word-count"
COUNTS: Final = "fixes-by-user"

#: Topics between the processors of a topology, in the order of the processors.
BETWEEN: Final[dict[str, Sequence[str]]] = {
    "heat-map": ("streams-heat-map-counts",),
    "meetings": ("streams-meetings-positions", "streams-meetings-pairs"),
}
#: Topics of results; what is not here writes events.
RESULTS: Final[dict[str, Sequence[str]]] = {
    "trips": (TRIP, TRIP_DAY),
    "heat-map": (HEAT_MAP,),
    WORD_COUNT: (COUNTS,),
}
_MESSAGES: Final = 5000
_TIMEOUT_S: Final = 10.0

#: Topic, key and value.
Result = tuple[str, bytes, bytes]


def result_topics(topologies: Sequence[str]) -> list[str]:
    """Return the topics that topologies write their results to."""
    return list(dict.fromkeys(each for name in topologies for each in RESULTS.get(name, (EVENT,))))


def results(servers: str, topics: Sequence[str]) -> Iterator[Result]:
    """Yield all committed records of topics up to their present ends."""
    consumer = Consumer(consumer_config(servers, "bench", "bench", enable_partition_eof=True))
    try:
        partitions = [
            TopicPartition(topic, number, 0)
            for topic in topics
            for number in range(KEYED_PARTITIONS)
        ]
        consumer.assign(partitions)
        left = len(partitions)
        while left:
            # Markers of transactions have offsets, too: what is left cannot be told by these.
            for message in next_messages(consumer, _MESSAGES, _TIMEOUT_S):
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    left -= 1
                    continue
                yield message.topic() or "", message.key() or b"", message.value() or b""
    finally:
        consumer.close()


def await_taken(
    servers: str, group: str, topic: str, within: Callable[[Callable[[], bool]], None]
) -> None:
    """Wait until a group has taken all of a topic, whose last record may be a marker."""
    consumer = Consumer(consumer_config(servers, "bench", group))
    partitions = [TopicPartition(topic, number) for number in range(KEYED_PARTITIONS)]

    def is_taken() -> bool:
        taken = [max(0, each.offset) for each in consumer.committed(partitions, timeout=_TIMEOUT_S)]
        ends = [consumer.get_watermark_offsets(each, timeout=_TIMEOUT_S)[1] for each in partitions]
        return all(end - offset <= 1 for offset, end in zip(taken, ends, strict=True))

    try:
        within(is_taken)
    finally:
        consumer.close()
