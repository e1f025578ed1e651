"""Changes of states are written after the results that came with them are stored."""

from __future__ import annotations

import random
import threading

import pytest
from confluent_kafka import Producer

from consumers.worker.membership import WorkerSettings
from consumers.worker.processing_guarantee import PROCESSING_GUARANTEES, ProcessingGuarantee
from consumers.worker.records import InputRecord
from consumers.worker.worker import Worker
from tests.consumers.running import Broker, await_condition
from tests.consumers.worker.counting import Counter, Counts, NoTelemetry
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import Topic

TOPICS = (
    Topic("in", 1),
    Topic("out", 1, {"max.message.bytes": "2000"}),
    Topic("states", 1, {"cleanup.policy": "compact"}),
)


def random_bytes(record: InputRecord, _count: int) -> bytes:
    """Return as many as the record's value says; others would be small once compressed."""
    return random.Random(1).randbytes(int(record.value() or b"0"))


@pytest.mark.parametrize("guarantee", PROCESSING_GUARANTEES)
def test_a_state_whose_results_are_not_stored_is_not_stored_either(
    broker: Broker, guarantee: ProcessingGuarantee
) -> None:
    ensure_topics(broker.address, TOPICS)
    producer = Producer(producer_config(broker.address, "test"))
    producer.produce("in", b"10", b"small")
    assert producer.flush(60) == 0
    worker: Worker[Counts] = Worker(
        *(broker.address, "counter", "in", Counter(random_bytes)),
        client_id="counter",
        telemetry=NoTelemetry(),
        settings=WorkerSettings(processing_guarantee=guarantee, restart_pause_s=0.05),
    )
    thread = threading.Thread(target=worker.run)
    thread.start()

    def states() -> dict[bytes | None, bytes | None]:
        return {each.key(): each.value() for each in read_topic(broker.address, "states")}

    try:
        await_condition(lambda: states() == {b"small": b"1"}, 60, "the state")
        # A result that the topic refuses, whenever it is tried.
        producer.produce("in", b"10000", b"large")
        assert producer.flush(60) == 0
        before = worker.counters.sessions
        await_condition(lambda: worker.counters.sessions > before + 1, 60, "two more sessions")
        assert states() == {b"small": b"1"}
    finally:
        worker.stop()
        thread.join(60)
