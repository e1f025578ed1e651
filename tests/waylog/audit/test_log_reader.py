"""Ranges of a log with transactions, whose control records are offsets without a record."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from tests.waylog.audit.running import NOW_MS, AuditedLog, make_fix
from waylog.audit.log_reader import LogReader
from waylog.kafka.clients import producer_config
from waylog.kafka.ranges import log_ranges
from waylog.kafka.ranges.log_ranges import Range, Watermarks
from waylog.kafka.topics import LOCATION
from waylog.messages import encode

#: A zone in which it is about noon.
ZONE = f"Etc/GMT{time.gmtime().tm_hour - 12:+d}"


def append_in_transactions(log: AuditedLog, counts: list[tuple[int, bool]]) -> int:
    """Append fixes of one device, made now, and commit or abort them; return the partition."""
    producer = Producer(producer_config(log.servers, "test", transactional_id="audit"))
    producer.init_transactions(30)
    number = 0
    for count, is_committed in counts:
        producer.begin_transaction()
        for _ in range(count):
            fix = make_fix("ada/phone", number, NOW_MS - 60_000)
            number += 1
            producer.produce(LOCATION, encode(fix), b"ada/phone", timestamp=fix.received)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    (partition,) = [each for each, end in log.ends().items() if end]
    return partition


def test_every_range_is_read_to_its_end_and_not_beyond(
    log: AuditedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_ranges, "_BATCH_RECORDS", 2)
    # Offsets 0-2, the marker 3, 4-5 aborted, the marker 6, 7-10, the marker 11.
    partition = append_in_transactions(log, [(3, True), (2, False), (4, True)])
    committed = [0, 1, 2, 7, 8, 9, 10]
    reader = LogReader(log.servers)
    try:
        assert reader.watermarks(LOCATION)[partition] == Watermarks(0, 12)
        for start in range(12):
            for end in range(start, 13):
                batches = reader.read(LOCATION, {partition: Range(start, end)})
                found = [record.offset() for records in batches for record in records]
                assert found == [each for each in committed if start <= each < end], (start, end)
        extents = reader.watermarks(LOCATION)
        at = reader.offsets_at(LOCATION, NOW_MS - 60_000, extents)
        assert at[partition] == 0
        # The marker was written now, a minute after the times of these records.
        at = reader.offsets_at(LOCATION, NOW_MS - 50_000, extents)
        assert at[partition] == 3
        late = reader.offsets_at(LOCATION, NOW_MS + 10**9, extents)
        assert late == {each: extent.high for each, extent in extents.items()}
        assert reader.watermarks("no-such-topic") == {}
        assert reader.offsets_at("no-such-topic", 0, {}) == {}
    finally:
        reader.close()


def test_a_day_with_transactions_lacks_nothing(log: AuditedLog) -> None:
    append_in_transactions(log, [(3, True), (2, False), (4, True)])
    log.write_history()
    log.commit("connect-files", log.ends())
    status, (receipt,) = log.audit("device", "ada/phone", "--timezone", ZONE)
    assert (status, receipt["acknowledged"], receipt["lacking"]) == (0, 7, 0)
    assert [each["taken"] for each in receipt["readers"]] == [7, 7]
