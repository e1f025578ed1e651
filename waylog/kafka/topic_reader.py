"""Reads a topic once, from its beginning to its present end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from waylog.kafka.clients import LogUnreachable, consumer_config

_SILENCE_MAX_S: Final = 60.0
_END_MS: Final = 10


def read_topic(bootstrap_servers: str, topic: str) -> Iterator[Message]:
    """Yield all records that a topic has now, unchanged; none if there is no such topic.

    Raises LogUnreachable.
    """
    consumer = Consumer(
        consumer_config(
            bootstrap_servers,
            "waylog-erase",
            "waylog-erase",
            enable_partition_eof=True,
            # The end is signalled by an empty answer, which a broker delays by this time.
            fetch_wait_max_ms=_END_MS,
        )
    )
    try:
        try:
            found = consumer.list_topics(topic, timeout=10.0).topics[topic]
        except KafkaException as error:
            raise LogUnreachable(f"topic {topic}: {error.args[0].str()}") from error
        if found.error is not None:
            return
        for partition in sorted(found.partitions):
            consumer.assign([TopicPartition(topic, partition, 0)])
            yield from _to_the_end(consumer, topic)
    finally:
        consumer.close()


def next_messages(consumer: Consumer, most: int, timeout_s: float) -> list[Message]:
    """Return the messages that have come, once there is one.

    `consume` alone waits until it has `most`, or for all of its timeout.
    """
    first = consumer.poll(timeout_s)
    return [] if first is None else [first, *consumer.consume(most - 1, timeout=0)]


def _to_the_end(consumer: Consumer, topic: str) -> Iterator[Message]:
    deadline = time.monotonic() + _SILENCE_MAX_S
    while time.monotonic() < deadline:
        for message in next_messages(consumer, 5000, 0.2):
            failure = message.error()
            if failure is None:
                deadline = time.monotonic() + _SILENCE_MAX_S
                yield message
            elif failure.code() == KafkaError._PARTITION_EOF:
                return
    raise LogUnreachable(f"topic {topic} did not answer for {_SILENCE_MAX_S:.0f} s")
