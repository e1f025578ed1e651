"""Reads the records of a topic between given offsets, for commands that come to an end."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from waylog.console.answers import Silence, watermarks
from waylog.kafka.topic_reader import next_messages
from waylog.sealing.sealing import opener


def read_ranges(
    arguments: argparse.Namespace,
    consumer: Consumer,
    topic: str,
    ranges: Mapping[int, tuple[int, int]],
) -> Iterator[Message]:
    """Yield the records of partitions from an offset up to another, with opened values.

    Offsets that the log does not have are passed over. Raises KafkaException, and CommandError if
    the cluster lacks something.
    """
    opened = opener(arguments.bootstrap_servers) or list
    ends, starts = {}, []
    for partition, (start, end) in ranges.items():
        low, high = watermarks(arguments, consumer, topic, partition)
        if max(low, start) < min(end, high):
            ends[partition] = min(end, high)
            starts.append(TopicPartition(topic, partition, max(low, start)))
    consumer.assign(starts)
    silence = Silence(arguments)
    while ends:
        messages = next_messages(consumer, 500, 0.2)
        if messages:
            silence.ended()
        else:
            silence.check(brokers_matter=True)
        for message in opened(messages):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            if (message.offset() or 0) < ends.get(message.partition() or 0, 0):
                yield message
        for position in consumer.position([TopicPartition(topic, number) for number in ends]):
            if position.offset >= ends[position.partition]:
                del ends[position.partition]
