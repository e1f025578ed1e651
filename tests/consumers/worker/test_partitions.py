"""What is read of a partition, on a real broker."""

from __future__ import annotations

from confluent_kafka import Producer

from consumers.worker.partitions import PartitionReader
from tests.consumers.running import Broker
from waylog.kafka.clients import client_config, producer_config
from waylog.kafka.topics import LOCATION


def test_records_from_the_end_on_are_not_read(broker: Broker) -> None:
    producer = Producer(producer_config(broker.address, "test"))
    for _ in range(5):
        producer.produce(LOCATION, b"", b"key", 0)
    assert producer.flush(60) == 0
    reader = PartitionReader(client_config(broker.address, "test"), "test")
    try:
        batches = list(reader.batches(LOCATION, 0, 1, 3))
    finally:
        reader.close()
    assert [record.offset() for records in batches for record in records] == [1, 2]
