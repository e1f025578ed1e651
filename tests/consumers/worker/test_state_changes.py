"""Changes of states are written after the results that came with them are stored."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Producer

from consumers.worker.membership import WorkerSettings
from consumers.worker.processing_guarantee import PROCESSING_GUARANTEES, ProcessingGuarantee
from consumers.worker.records import InputRecord, OutputRecord, StateRecord
from consumers.worker.worker import Worker
from tests.consumers.running import Broker, await_condition
from tests.consumers.worker.test_leaving import NoTelemetry
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import Topic

TOPICS = (
    Topic("in", 1),
    Topic("out", 1, {"max.message.bytes": "2000"}),
    Topic("states", 1, {"cleanup.policy": "compact"}),
)


class Counts:
    """A state of keys and how often they came."""

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.changed: set[bytes] = set()

    def restore(self, records: Sequence[StateRecord]) -> None:
        self.counts |= {key or b"": int(value or b"0") for key, value in records}


class Counter:
    """Counts keys; what it forwards has as many bytes as the record's value says."""

    state_topic = "states"

    def new_state(self) -> Counts:
        return Counts()

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        states: Mapping[int, Counts],
        _now_ms: int,
    ) -> list[OutputRecord]:
        outputs = []
        for partition, records in batch.items():
            state = states[partition]
            for record in records:
                key = record.key() or b""
                state.counts[key] = state.counts.get(key, 0) + 1
                state.changed.add(key)
                # Random bytes: others would be small once they are compressed.
                value = random.Random(1).randbytes(int(record.value() or b"0"))
                outputs.append(OutputRecord("out", None, key, value))
        return outputs

    def late_results(self, _states: Mapping[int, Counts], _now_ms: int) -> list[OutputRecord]:
        return []

    def state_changes(self, states: Mapping[int, Counts]) -> Mapping[int, Sequence[StateRecord]]:
        found = {
            partition: [StateRecord(key, b"%d" % state.counts[key]) for key in state.changed]
            for partition, state in states.items()
        }
        for state in states.values():
            state.changed.clear()
        return {partition: records for partition, records in found.items() if records}


@pytest.mark.parametrize("guarantee", PROCESSING_GUARANTEES)
def test_a_state_whose_results_are_not_stored_is_not_stored_either(
    broker: Broker, guarantee: ProcessingGuarantee
) -> None:
    ensure_topics(broker.address, TOPICS)
    producer = Producer(producer_config(broker.address, "test"))
    producer.produce("in", b"10", b"small")
    assert producer.flush(60) == 0
    worker: Worker[Counts] = Worker(
        *(broker.address, "counter", "in", Counter()),
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
