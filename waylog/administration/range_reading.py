"""Reads the records of a topic between given offsets, for what comes to an end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import Message

from waylog.administration.answers import Silence
from waylog.administration.log_access import LogAccess
from waylog.administration.offsets import watermarks
from waylog.kafka.ranges.log_ranges import LogRanges, Range
from waylog.sealing.sealing import opener


def open_log(access: LogAccess, **more: Any) -> LogRanges:
    """Return a client that reads ranges; `more` are properties of its consumer."""
    return LogRanges(access.bootstrap_servers, access.client_id, access.properties, **more)


def read_ranges(
    access: LogAccess, log: LogRanges, topic: str, ranges: Mapping[int, Range]
) -> Iterator[Message]:
    """Yield the records of partitions from an offset up to another, with opened values.

    Offsets that the log does not have are passed over. Raises KafkaException, LogUnreachable, and
    CommandError if the cluster lacks something.
    """
    opened = opener(access.bootstrap_servers, properties=access.properties)
    present = {}
    for partition, (start, end) in ranges.items():
        low, high = watermarks(access, log.consumer, topic, partition)
        present[partition] = Range(max(low, start), min(end, high))
    for records in log.read(topic, present, silence=_LackingCluster(access, topic)):
        yield from opened(records)


class _LackingCluster:
    """Gives up when the cluster lacks something that the command waits for."""

    def __init__(self, access: LogAccess, topic: str) -> None:
        self._silence = Silence(access, topic)

    def ended(self) -> None:
        self._silence.ended()

    def check(self, _place: str) -> None:
        self._silence.check(brokers_matter=True)
