"""The state after the broker process was killed, or stopped, and started again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.contract.broker_process import BrokerProcess
from waylog.kafka.polling import next_messages

PARTITIONS = 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker process that acknowledges after fdatasync."""
    process = BrokerProcess(tmp_path)
    process.start()
    yield process
    process.stop()


def create_topic(broker: BrokerProcess, name: str, **config: str) -> None:
    """Create a topic with three partitions."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=settings)])[name].result(60)


def read_all(broker: BrokerProcess, topic: str) -> list[bytes]:
    """Return all values of a topic, partition by partition."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "log_level": 0}
    )
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, index), 60)[1]
            for index in range(PARTITIONS)
        ]
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        values: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        deadline = time.monotonic() + 60
        while sum(map(len, values.values())) < sum(ends):
            assert time.monotonic() < deadline
            for message in next_messages(consumer, 1000, 0.2):
                assert message.error() is None, message.error()
                partition, value = message.partition(), message.value()
                assert partition is not None
                assert value is not None
                values[partition].append(value)
        return [value for index in range(PARTITIONS) for value in values[index]]
    finally:
        consumer.close()


class PacedProducer:
    """Sends numbered records from a thread, and records which were acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.acknowledged: list[int] = []
        self.errors: list[str] = []
        self._topic = topic
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(0.0005):
            self._producer.produce(
                self._topic,
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=self._delivered,
            )
            number += 1
            self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.append(int(message.value()))  # type: ignore[attr-defined]

    def wait_for(self, count: int) -> None:
        """Wait until `count` records are acknowledged."""
        deadline = time.monotonic() + 60
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def stop(self) -> None:
        """Send what is queued, and stop."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def test_every_acknowledged_record_is_there_exactly_once_after_kill_9(
    broker: BrokerProcess,
) -> None:
    create_topic(broker, "t")
    producer = PacedProducer(broker.bootstrap_servers, "t")
    for round_ in range(3):
        producer.wait_for(500 * (round_ + 1))
        broker.kill()
        broker.start()
    producer.wait_for(2000)
    producer.stop()
    assert producer.errors == []
    stored = [int(value) for value in read_all(broker, "t")]
    assert len(stored) == len(set(stored)), "a record is there twice"
    assert set(stored) == set(producer.acknowledged)
    # And each partition has its records in the order in which they were sent.
    for partition in range(PARTITIONS):
        mine = [number for number in stored if number % PARTITIONS == partition]
        assert mine == sorted(mine)


def test_offsets_groups_topics_and_settings_survive_kill_9(broker: BrokerProcess) -> None:
    create_topic(broker, "t", retention_ms="1234567", cleanup_policy="compact,delete")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    before = admin.describe_cluster().result(60).cluster_id
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    offsets = [TopicPartition("t", index, 10 + index) for index in range(PARTITIONS)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    broker.kill()
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    assert admin.describe_cluster().result(60).cluster_id == before
    topic = admin.list_topics(timeout=60).topics["t"]
    assert len(topic.partitions) == PARTITIONS
    consumer = Consumer(settings)
    committed = consumer.committed([TopicPartition("t", i) for i in range(PARTITIONS)], 60)
    assert [each.offset for each in committed] == [10, 11, 12]
    consumer.close()


def test_producer_ids_are_never_given_twice(broker: BrokerProcess) -> None:
    create_topic(broker, "t")
    for i in range(3):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        producer.produce("t", b"%d" % i, partition=0)
        # With the id of a former producer, sequence 0 would be taken for a duplicate.
        assert producer.flush(60) == 0
        broker.kill()
        broker.start()
    assert read_all(broker, "t") == [b"0", b"1", b"2"]


def test_a_member_goes_on_through_a_restart_of_the_broker(broker: BrokerProcess) -> None:
    create_topic(broker, "t")
    revoked: list[object] = []
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"], on_revoke=lambda _, places: revoked.extend(places))
    deadline = time.monotonic() + 60
    while len(consumer.assignment()) < PARTITIONS:
        assert time.monotonic() < deadline
        consumer.poll(0.05)
    broker.kill()
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    producer.produce("t", b"after")
    assert producer.flush(60) == 0
    message = None
    while message is None or message.error() is not None:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
    assert message.value() == b"after"
    while True:
        try:
            consumer.commit(asynchronous=False)
            break
        except KafkaException:
            assert time.monotonic() < deadline
    assert revoked == []
    consumer.close()


def test_a_clean_stop_leaves_nothing_to_recover(broker: BrokerProcess) -> None:
    create_topic(broker, "t")
    producer = PacedProducer(broker.bootstrap_servers, "t")
    producer.wait_for(200)
    assert broker.stop() == 0
    broker.output.clear()
    broker.start()
    assert [line for line in broker.output if "WARNING" in line] == []
    producer.stop()
    assert producer.errors == []
    stored = read_all(broker, "t")
    assert len(stored) == len(set(stored))


def test_two_brokers_never_share_a_directory(broker: BrokerProcess, tmp_path: Path) -> None:
    second = BrokerProcess(tmp_path)
    second.properties["log.dirs"] = broker.properties["log.dirs"]
    with pytest.raises(AssertionError, match="another broker uses this directory"):
        second.start()


def test_a_directory_of_another_node_is_refused(broker: BrokerProcess) -> None:
    broker.stop()
    broker.properties["node.id"] = "7"
    with pytest.raises(AssertionError, match="belongs to node 0"):
        broker.start()
