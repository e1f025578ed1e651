"""Reading of ranges from a real broker."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from spark.fixes.log_source import OffsetRange, open_log, read_range
from tests.spark.running import append_fixes, make_fix
from waylog.kafka.clients import LogUnreachable, client_config
from waylog.kafka.ranges.log_ranges import Watermarks
from waylog.kafka.topics import LOCATION

START_MS = 1_767_225_600_000


def find_partition(servers: str) -> int:
    offsets = open_log(servers)
    try:
        marks = offsets.watermarks(LOCATION, 10)
    finally:
        offsets.close()
    return next(partition for partition, each in marks.items() if each.high)


def offsets_read(servers: str, wanted: OffsetRange) -> list[int | None]:
    return [
        message.offset() for batch in read_range(servers, LOCATION, wanted) for message in batch
    ]


def test_a_range_has_its_records_and_no_others(log: str) -> None:
    append_fixes(log, (make_fix("u/phone", START_MS + number) for number in range(25_000)))
    partition = find_partition(log)
    assert offsets_read(log, OffsetRange(partition, 17, 24_003)) == list(range(17, 24_003))
    assert offsets_read(log, OffsetRange(partition, 24_999, 25_000)) == [24_999]


def test_records_that_were_deleted_before_they_were_read_are_told_and_passed_over(
    log: str, caplog: pytest.LogCaptureFixture
) -> None:
    append_fixes(log, (make_fix("u/phone", START_MS + number) for number in range(100)))
    partition = find_partition(log)
    admin = AdminClient(client_config(log, "test"))
    for future in admin.delete_records([TopicPartition(LOCATION, partition, 40)]).values():
        future.result(10)
    with caplog.at_level(logging.ERROR):
        assert offsets_read(log, OffsetRange(partition, 10, 100)) == list(range(40, 100))
        assert "records 10 to 39 were deleted" in caplog.text
        assert offsets_read(log, OffsetRange(partition, 10, 30)) == []
    offsets = open_log(log)
    assert offsets.watermarks(LOCATION, 10)[partition] == Watermarks(40, 100)
    offsets.close()


def test_a_topic_that_is_not_there_has_no_partitions(log: str) -> None:
    offsets = open_log(log)
    assert offsets.watermarks("nothing", 10) == {}
    offsets.close()


def test_a_log_that_does_not_answer_is_told() -> None:
    offsets = open_log("127.0.0.1:1")
    with pytest.raises(LogUnreachable, match="did not answer"):
        offsets.watermarks(LOCATION, 0.5)
    offsets.close()
