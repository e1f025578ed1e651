"""Writes fixes to the log of a benchmark, at the highest rate that the log accepts."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from waylog.cli import CommandError
from waylog.kafka.clients import producer_config
from waylog.kafka.topics import LOCATION

_FLUSH_S = 300.0


def produce(producer: Producer, key: bytes, value: bytes) -> None:
    """Queue one fix; wait while the queue is full."""
    while True:
        try:
            producer.produce(LOCATION, value, key)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.05)


def fill(servers: str, fixes: Iterable[tuple[bytes, bytes]]) -> None:
    """Append fixes by key and value, and wait until all are acknowledged. Raises CommandError."""
    producer = Producer(producer_config(servers, "bench"))
    for key, value in fixes:
        produce(producer, key, value)
    if producer.flush(_FLUSH_S):
        raise CommandError("the log did not take all records")
