"""Records of delayed topics, on a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from consumers.worker.membership import WorkerSettings
from consumers.worker.processing_guarantee import ProcessingGuarantee
from consumers.worker.records import InputRecord, OutputRecord, StateRecord
from consumers.worker.worker import Worker
from tests.consumers.running import Broker, await_condition
from tests.consumers.worker.counting import NoTelemetry
from tests.consumers.worker.test_leaving import NoState
from tests.consumers.worker.test_worker import Reader
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.group_membership import leave_group
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
    assert producer.flush(60) == 0
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
        running.join(60)
        reader.close()
    assert not running.is_alive()


class Noting(Copying):
    """Notes the partitions of whose records it was asked when they are due."""

    def __init__(self) -> None:
        self.asked: set[int | None] = set()

    def due_ms(self, record: InputRecord) -> int:
        self.asked.add(record.partition())
        return super().due_ms(record)


def test_what_a_partition_waits_for_is_forgotten_when_another_gets_it(broker: Broker) -> None:
    ensure_topics(broker.address, [Topic(TOPIC, 4)])
    producer = Producer(producer_config(broker.address, "test"))
    far = b"%d far" % (time.time_ns() // 1_000_000 + 10**9)
    for partition in range(4):
        producer.produce(TOPIC, far, b"k", partition=partition)
    assert producer.flush(60) == 0
    logic = Noting()
    worker = Worker(
        *(broker.address, "group", LOCATION, logic),
        client_id="worker",
        telemetry=NoTelemetry(),
        delayed=logic,
    )
    running = threading.Thread(target=worker.run)
    running.start()
    reader = Reader(broker, ADDRESS)
    other = Consumer(consumer_config(broker.address, "other", "group"))
    try:
        await_condition(lambda: len(logic.asked) == 4, 60, "all partitions wait")
        other.subscribe([LOCATION])
        await_condition(
            lambda: other.poll(0.05) is None and len(other.assignment()) == 2, 60, "a half of them"
        )
        moved = [each.partition for each in other.assignment()]
        # The other one has done what they waited for.
        done = [TopicPartition(TOPIC, each, 1) for each in moved]
        other.commit(offsets=done, asynchronous=False)
        for each in moved:
            producer.produce(TOPIC, b"0 now", b"k", partition=each)
        assert producer.flush(60) == 0
        leave_group(other)
        await_condition(lambda: len(reader.read()) == 2, 60, "what is due")
        assert sorted(record.partition() for record in reader.records) == sorted(moved)
    finally:
        worker.stop()
        running.join(60)
        reader.close()
        other.close()
    assert not running.is_alive()
