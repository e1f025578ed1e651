"""Fixes that come at a steady rate, and how far a group is behind them: lag and latency.

A fix has the time at which it is sent. So the time in a result tells how long it took until the
result could be read, after its commit if it is in a transaction.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from statistics import median
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from load_tests.benches.filling import produce
from load_tests.latency import percentile_ms
from waylog.kafka.clients import client_config, consumer_config, producer_config
from waylog.kafka.polling import next_messages
from waylog.kafka.topics import KEYED_PARTITIONS, LOCATION

#: Seconds between two portions of fixes.
_TICK_S: Final = 0.01
_LOOK_S: Final = 0.25
_MESSAGES: Final = 5000
_READY_S: Final = 300.0
_FLUSH_S: Final = 60.0

Record = tuple[bytes, bytes]
#: Makes the records of fixes without end; the function tells the time in ms.
Source = Callable[[Callable[[], int]], Iterable[Record]]


@dataclass
class Pace:
    """What was measured while fixes came."""

    lags: list[int] = field(default_factory=list)
    latencies: Counter[int] = field(default_factory=Counter)  # by ms

    def report(self) -> dict[str, Any]:
        """Return the median lag in records, the largest, and those of the last quarter, and
        percentiles of the latency in ms.
        """
        last = self.lags[-len(self.lags) // 4 :]
        pairs = [(1000 * ms, count) for ms, count in self.latencies.items()]
        return {
            "lag_p50": round(median(self.lags)),
            "lag_max": max(self.lags),
            "lag_p50_at_the_end": round(median(last)),
            "results": sum(self.latencies.values()),
            **{f"latency_ms_p{each}": percentile_ms(pairs, each) for each in (50, 99, 100)},
        }


@contextmanager
def coming_fixes(servers: str, source: Source, rate: int) -> Iterator[None]:
    """Send fixes in a process of its own, so many a second; they come when the block begins.

    Raises RuntimeError if none comes, or if the process ends by itself.
    """
    # What librdkafka has begun does not survive a fork.
    context = multiprocessing.get_context("spawn")
    has_begun = context.Event()
    process = context.Process(target=_send, args=(servers, source, rate, has_begun), daemon=True)
    process.start()
    try:
        if not has_begun.wait(_READY_S):
            raise RuntimeError(f"no fix was sent within {_READY_S:.0f} s")
        yield
        if not process.is_alive():
            raise RuntimeError("the process that sends fixes has ended")
    finally:
        process.terminate()
        process.join()


def _send(servers: str, source: Source, rate: int, has_begun: Event) -> None:
    producer = Producer(producer_config(servers, "bench"))
    records = iter(source(lambda: time.time_ns() // 1_000_000))
    produce(producer, *next(records))
    if producer.flush(_FLUSH_S):
        return
    has_begun.set()
    began, sent = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * rate)
        for key, value in itertools.islice(records, due - sent):
            produce(producer, key, value)
        sent = due
        time.sleep(_TICK_S)


def await_members(servers: str, groups: Sequence[str]) -> None:
    """Wait until each group has its partitions."""
    admin = AdminClient(client_config(servers, "bench"))
    deadline = time.monotonic() + _READY_S
    for group in groups:
        while True:
            described = admin.describe_consumer_groups([group])[group].result()
            if described.state == ConsumerGroupState.STABLE:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"group {group} has no members after {_READY_S:.0f} s")
            time.sleep(_LOOK_S)


def measured_pace(
    servers: str,
    groups: Sequence[str],
    results: str,
    time_of: Callable[[bytes], int],
    seconds: float,
) -> Pace:
    """Look at groups, and at the results in partition 0 of a topic, for some seconds.

    `time_of` returns the time of the fix in a result, in ms.
    """
    pace = Pace()
    reader = Consumer(consumer_config(servers, "bench", "bench-results"))
    members = [Consumer(consumer_config(servers, "bench", group)) for group in groups]
    partitions = [TopicPartition(LOCATION, number) for number in range(KEYED_PARTITIONS)]
    try:
        place = TopicPartition(results, 0)
        place.offset = reader.get_watermark_offsets(place, timeout=10.0)[1]
        reader.assign([place])
        end = time.monotonic() + seconds
        look_at = 0.0
        while (now := time.monotonic()) < end:
            if now >= look_at:
                look_at = now + _LOOK_S
                pace.lags.append(max(_lag(member, partitions) for member in members))
            messages = next_messages(reader, _MESSAGES, 0.01)
            now_ms = time.time_ns() // 1_000_000
            for message in messages:
                value = message.value()
                if message.error() is None and value is not None:
                    pace.latencies[max(0, now_ms - time_of(value))] += 1
    finally:
        for consumer in (reader, *members):
            consumer.close()
    return pace


def _lag(member: Consumer, partitions: list[TopicPartition]) -> int:
    """Return the number of records that a group has not committed yet."""
    committed = member.committed(partitions, timeout=10.0)
    ends = [member.get_watermark_offsets(each, timeout=10.0)[1] for each in partitions]
    return sum(ends) - sum(max(0, each.offset) for each in committed)
