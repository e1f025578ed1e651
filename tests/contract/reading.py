"""Reads with confluent-kafka in tests."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

TIMEOUT_S = 60.0


def await_leader(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Return the first and the end offset, once the leader of a new partition answers."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 5)
            return low, high
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def read(consumer: Consumer, count: int, timeout_s: float = TIMEOUT_S) -> list[Any]:
    """Read `count` messages; fails after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    messages: list[Any] = []
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages arrived"
        for message in consumer.consume(count - len(messages), 0.2):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def read_topic(consumer: Consumer, topic: str, partitions: int, count: int) -> list[Any]:
    """Assign all partitions from the beginning, and read `count` messages."""
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    return read(consumer, count)
