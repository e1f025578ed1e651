"""Reads a topic once, from its beginning to its present end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from confluent_kafka import Message

from waylog.kafka.ranges.log_ranges import LogRanges, Range

_TIMEOUT_S: Final = 10.0


def read_topic(
    bootstrap_servers: str, topic: str, properties: Mapping[str, str] | None = None
) -> Iterator[Message]:
    """Yield all records that a topic has now, unchanged; none if there is no such topic.

    `properties` are those with which the client logs in. Raises LogUnreachable.
    """
    log = LogRanges(bootstrap_servers, "waylog-erase", properties)
    try:
        marks = log.watermarks(topic, _TIMEOUT_S)
        ranges = {partition: Range(*each) for partition, each in marks.items()}
        for records in log.read(topic, ranges):
            yield from records
    finally:
        log.close()
