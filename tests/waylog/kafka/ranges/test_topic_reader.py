"""Reading a topic of a real broker to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.spark.running import start_broker
from waylog.kafka.clients import consumer_config, ensure_topics, producer_config
from waylog.kafka.polling import next_messages
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import LOCATION


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    broker, servers = start_broker(tmp_path_factory.mktemp("broker"))
    ensure_topics(servers)
    producer = Producer(producer_config(servers, "test"))
    for number in range(20):
        producer.produce(LOCATION, b"%d" % number, b"key %d" % number)
    assert producer.flush(60) == 0
    yield servers
    broker.terminate()


def test_what_has_come_is_not_held_until_more_does(servers: str) -> None:
    consumer = Consumer(consumer_config(servers, "test", "test"))
    consumer.assign([TopicPartition(LOCATION, number, 0) for number in range(4)])
    found: list[bytes | None] = []
    began = time.monotonic()
    while len(found) < 20:
        found += [message.value() for message in next_messages(consumer, 1000, 100.0)]
    consumer.close()
    # `consume(1000, 100)` would wait for 980 more records.
    assert time.monotonic() - began < 50
    assert sorted(map(int, filter(None, found))) == list(range(20))


def test_nothing_is_what_comes_when_nothing_is_there(servers: str) -> None:
    consumer = Consumer(consumer_config(servers, "test", "test"))
    assert next_messages(consumer, 10, 0.05) == []
    consumer.close()


def test_a_topic_is_read_to_its_end_partition_by_partition(servers: str) -> None:
    messages = list(read_topic(servers, LOCATION))
    assert sorted(int(message.value() or b"") for message in messages) == list(range(20))
    places = [(message.partition(), message.offset()) for message in messages]
    assert places == sorted(places)
    assert list(read_topic(servers, "there is none such")) == []
