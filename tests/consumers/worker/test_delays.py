"""Records of delayed topics, on a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Producer

from consumers.worker.membership import WorkerSettings
from consumers.worker.processing_guarantee import ProcessingGuarantee
from consumers.worker.records import InputRecord, OutputRecord, StateRecord
from consumers.worker.worker import Worker
from tests.consumers.running import Broker, await_condition
from tests.consumers.worker.counting import NoTelemetry
from tests.consumers.worker.test_leaving import NoState
from tests.consumers.worker.test_worker import Reader
from waylog.kafka.clients import ensure_topics, producer_config
from waylog.kafka.topics import ADDRESS, LOCATION, Topic

TOPIC = "delayed"


class Copying:
    """Copies the values of records to topic `address`."""

    state_topic = ADDRESS
    topics = (TOPIC,)

    def new_state(self) -> NoState:
        return NoState()

    def process(
        self,
        batch: Mapping[int, Sequence[InputRecord]],
        _states: Mapping[int, NoState],
        _now_ms: int,
    ) -> list[OutputRecord]:
        return [
            OutputRecord(ADDRESS, partition, record.key(), record.value() or b"")
            for partition, records in batch.items()
            for record in records
        ]

    def due_ms(self, record: InputRecord) -> int:
        return int((record.value() or b"0").partition(b" ")[0])

    def late_results(self, _states: Mapping[int, NoState], _now_ms: int) -> list[OutputRecord]:
        return []

    def state_changes(self, _states: Mapping[int, NoState]) -> Mapping[int, Sequence[StateRecord]]:
        return {}


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_records_are_processed_in_order_when_they_are_due(
    broker: Broker, guarantee: ProcessingGuarantee
) -> None:
    ensure_topics(broker.address, [Topic(TOPIC, 4)])
    producer = Producer(producer_config(broker.address, "test"))
    now = time.time_ns() // 1_000_000
    sent = [b"%d %d" % (now + 20 * number, number) for number in range(100)]
    for value in sent:
        producer.produce(TOPIC, value, b"k", partition=1)
    far = b"%d far" % (now + 10**9)
    producer.produce(TOPIC, far, b"k", partition=2)
    producer.produce(LOCATION, b"0 other", b"k", partition=1)
    assert producer.flush(30) == 0
    logic = Copying()
    worker = Worker(
        broker.address,
        "group",
        LOCATION,
        logic,
        client_id="worker",
        telemetry=NoTelemetry(),
        settings=WorkerSettings(processing_guarantee=guarantee),
        delayed=logic,
    )
    running = threading.Thread(target=worker.run)
    running.start()
    reader = Reader(broker, ADDRESS)
    try:
        await_condition(lambda: len(reader.read()) >= len(sent) + 1, 60, "all that is due")
        values = [record.value() for record in reader.records]
        assert [value for value in values if value != b"0 other"] == sent
        for record in reader.records:
            assert record.timestamp()[1] >= int(record.value().partition(b" ")[0])
    finally:
        worker.stop()
        running.join(30)
        reader.close()
    assert not running.is_alive()
