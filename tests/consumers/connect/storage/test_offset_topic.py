"""The topic of offsets, as Apache Kafka Connect writes it."""

from __future__ import annotations

import pytest

from consumers.connect.storage.offset_topic import OffsetTopic


def test_offsets_are_written_in_kafkas_form() -> None:
    records = OffsetTopic().records("in", [({"filename": "/tmp/a"}, {"position": 5})])
    assert records == [(b'["in",{"filename":"/tmp/a"}]', b'{"position":5}')]


def test_what_kafka_has_written_is_read_and_forgotten() -> None:
    topic = OffsetTopic()
    topic.read(b'["in",{"filename":"/tmp/a"}]', b'{"position":5}')
    assert topic.table.all("in") == [({"filename": "/tmp/a"}, {"position": 5})]
    topic.read(b'["in",{"filename":"/tmp/a"}]', None)
    assert topic.table.all("in") == []


def test_a_key_is_written_again_as_it_was_read() -> None:
    topic = OffsetTopic()
    # Java's order of members is its own.
    topic.read(b'["in",{"z":1,"a":2}]', b'{"p":1}')
    ((key, value),) = topic.records("in", [({"a": 2, "z": 1}, None)])
    assert (key, value) == (b'["in",{"z":1,"a":2}]', None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"{}", b"{}"),
        (b'["in"]', b"{}"),
        (b'["in","a"]', b"{}"),
        (b'["in",{}]', b"[]"),
        (b'["in",{}]', b"{"),
        (b"\xff", b"{}"),
        (None, None),
    ],
)
def test_a_damaged_record_is_left_out_with_a_line(
    key: bytes | None, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    topic = OffsetTopic()
    topic.read(key, value)
    assert topic.table.connectors() == []
    assert "is left out" in caplog.text
