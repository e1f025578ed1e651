"""Lag and latency of a group, while fixes come at a rate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from load_tests.benches.paced_fixes import await_members, coming_fixes, measured_pace
from tests.consumers.running import Broker
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.group_membership import leave_group
from waylog.kafka.polling import next_messages
from waylog.kafka.topics import LOCATION, TOPICS, Topic

COPIES = Topic("copies", 1)


def times(now_ms: Callable[[], int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield records whose value is when they were sent."""
    while True:
        yield b"key", b"%d" % now_ms()


class Copier:
    """A member of a group that copies what it reads."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        producer = Producer(producer_config(self._servers, "copier"))
        consumer = Consumer(consumer_config(self._servers, "copier", "copier"))
        consumer.subscribe([LOCATION])
        while not self._stopping.is_set():
            messages = next_messages(consumer, 1000, 0.05)
            for message in messages:
                producer.produce(COPIES.name, message.value())
            producer.flush(60)
            if messages:
                consumer.commit(message=messages[-1], asynchronous=False)
        leave_group(consumer)


def await_copies(servers: str) -> None:
    """Wait until the copier works: a group may have its partitions long before it reads them."""
    reader = Consumer(consumer_config(servers, "test", "test"))
    reader.assign([TopicPartition(COPIES.name, 0, 0)])
    assert reader.consume(1, timeout=60.0)
    reader.close()


def test_a_group_that_keeps_up_has_results_and_one_that_has_gone_falls_behind(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path)
    servers = broker.address
    try:
        ensure_topics(servers, (*TOPICS, COPIES))
        copier = Copier(servers)
        try:
            await_members(servers, ["copier"])
            with coming_fixes(servers, times, 400):
                await_copies(servers)
                kept_up = measured_pace(servers, ["copier"], COPIES.name, int, 2.0).report()
                copier.stop()
                behind = measured_pace(servers, ["copier"], COPIES.name, int, 2.0).report()
        finally:
            copier.stop()
    finally:
        broker.process.stop()
    assert kept_up["results"] > 0
    assert 0 <= kept_up["latency_ms_p50"] <= kept_up["latency_ms_p99"]
    assert behind["lag_p50_at_the_end"] > behind["lag_p50"] > 0
