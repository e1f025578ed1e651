"""Headers of records that other programs have written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.odd_records import append_with_odd_header
from tests.spark.running import start_broker
from waylog.kafka.clients import ensure_topics
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.record_headers import headers_of, headers_of_all
from waylog.kafka.topics import LOCATION


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    broker, servers = start_broker(tmp_path / "broker")
    ensure_topics(servers)
    yield servers
    broker.terminate()


def test_a_header_whose_name_is_no_text_is_left_out_however_often_it_is_read(servers: str) -> None:
    for _ in range(20):
        append_with_odd_header(servers, LOCATION, b"{}", b"ada/phone")
    records = list(read_topic(servers, LOCATION))
    assert len(records) == 20
    for _ in range(3):
        # Python calls a method in a quicker way once it has called it some times.
        assert [headers_of(record) for record in records] == [[]] * 20
    assert headers_of_all(records) == [[]] * 20


def test_one_odd_record_costs_the_others_no_header(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(LOCATION, b"{}", b"ada/phone", partition=0, headers=[("traceparent", b"1")])
    producer.produce(LOCATION, b"{}", b"ada/phone", partition=0)
    producer.flush(30)
    plain = list(read_topic(servers, LOCATION))
    assert headers_of_all(plain) == [[("traceparent", b"1")], None]
    append_with_odd_header(servers, LOCATION, b"{}", b"ada/phone")
    records = list(read_topic(servers, LOCATION))
    found = headers_of_all(records)
    assert len(found) == 3
    assert [each for each in found if each] == [[("traceparent", b"1")]]
