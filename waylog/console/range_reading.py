"""Reads the records of a topic between given offsets, for commands that come to an end."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from confluent_kafka import Message

from waylog.console.answers import Silence, watermarks
from waylog.console.common import security
from waylog.kafka.ranges.log_ranges import LogRanges, Range
from waylog.sealing.sealing import opener


def open_log(arguments: argparse.Namespace) -> LogRanges:
    """Return a client with the connection options of the command line."""
    return LogRanges(arguments.bootstrap_servers, "waylog-console", security(arguments))


def read_ranges(
    arguments: argparse.Namespace, log: LogRanges, topic: str, ranges: Mapping[int, Range]
) -> Iterator[Message]:
    """Yield the records of partitions from an offset up to another, with opened values.

    Offsets that the log does not have are passed over. Raises KafkaException, LogUnreachable, and
    CommandError if the cluster lacks something.
    """
    opened = opener(arguments.bootstrap_servers, properties=security(arguments))
    present = {}
    for partition, (start, end) in ranges.items():
        low, high = watermarks(arguments, log.consumer, topic, partition)
        present[partition] = Range(max(low, start), min(end, high))
    for records in log.read(topic, present, silence=_LackingCluster(arguments)):
        yield from opened(records)


class _LackingCluster:
    """Gives up when the cluster lacks something that the command waits for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._silence = Silence(arguments)

    def ended(self) -> None:
        self._silence.ended()

    def check(self, _place: str) -> None:
        self._silence.check(brokers_matter=True)
