"""Records of batches of another implementation, of a log, and of hostile clients."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_core.errors import BrokerError, CorruptMessage, InvalidRecord, MessageTooLarge
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.batch_header import HEADER_BYTES
from broker_core.protocol.compression import Compression
from broker_core.protocol.produced_batches import assign_offsets, validate_batches
from broker_core.protocol.record_reader import RecordReader, iterate_records, read_records
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.protocol.sample_batches import (
    NOW,
    batches_of_records,
    codecs,
    foreign_batch,
    resealed,
    sample,
)

if TYPE_CHECKING:
    from broker_core.protocol.batch_builder import NewRecord


@given(batches_of_records, codecs, st.integers(1, 5))
def test_a_batch_is_read_some_records_at_a_time(
    records: list[NewRecord], codec: int, count: int
) -> None:
    batch = foreign_batch(records, codec)
    (header,) = validate_batches(batch)
    reader = RecordReader(batch, header)
    pieces = [reader.read(count) for _ in range(len(records) // count + 1)]
    assert [len(piece) for piece in pieces[:-1]] == [count] * (len(records) // count)
    assert [record for piece in pieces for record in piece] == read_records(batch, header)
    assert reader.read(count) == []
    batch.clear()  # which fails while something holds its memory


def test_a_batch_with_more_bytes_than_records_is_refused_at_its_end() -> None:
    batch = build_batch([(1, b"k", b"v", ()), (2, b"k", b"w", ())])
    (header,) = validate_batches(batch)
    batch[57:61] = (1).to_bytes(4, "big")
    (header,), _, _ = scan_batches(batch, check_crc=False)
    reader = RecordReader(batch, header)
    with pytest.raises(InvalidRecord):
        reader.read(5)


@given(batches_of_records, codecs)
def test_we_read_what_aiokafka_builds(records: list[NewRecord], codec: int) -> None:
    batch = foreign_batch(records, codec)
    assert [(t, k, v, list(h)) for _, t, k, v, h in iterate_records(batch)] == records
    assert [offset for offset, *_ in iterate_records(batch)] == list(range(len(records)))
    (header,) = validate_batches(batch)
    assert header.record_count == len(records)
    assert header.max_timestamp == max(record[0] for record in records)


@given(
    records=batches_of_records,
    codec=codecs,
    times=st.lists(st.tuples(st.integers(-(10**9), 10**9), st.integers(90, 125)), max_size=4),
)
def test_a_record_is_found_by_its_time_as_when_all_are_read(
    records: list[NewRecord], codec: int, times: list[tuple[int, int]]
) -> None:
    data = build_batch(records, base_offset=100, compression=codec)
    (header,), _, _ = scan_batches(data)
    stored = [(timestamp, offset) for offset, timestamp, *_ in read_records(data, header)]
    for after, from_offset in [*times, (0, 0), (10**9 + 1, 0)]:
        timestamp_ms = NOW + after
        expected = next(
            (each for each in stored if each[0] >= timestamp_ms and each[1] >= from_offset), None
        )
        assert RecordReader(data, header).first_at(timestamp_ms, from_offset) == expected


@given(garbage=st.binary(min_size=1, max_size=60), count=st.integers(1, 5))
def test_looking_for_a_time_in_garbage_finds_something_or_refuses_it(
    garbage: bytes, count: int
) -> None:
    data = build_batch([(NOW, b"k", b"v", ())] * count)
    (header,), _, _ = scan_batches(data)
    broken = data[:HEADER_BYTES] + (garbage * 60)[: len(data) - HEADER_BYTES]
    try:
        RecordReader(broken, header).first_at(NOW, 0)
    except BrokerError as error:
        assert str(error)


def test_a_reader_sees_the_log_append_time() -> None:
    batch = sample(3)
    assign_offsets(batch, validate_batches(batch), 100, 4, NOW + 99)
    assert [(o, t) for o, t, *_ in iterate_records(batch)] == [
        (100, NOW + 99),
        (101, NOW + 99),
        (102, NOW + 99),
    ]
    parsed = DefaultRecordBatch(bytes(batch))
    assert parsed.validate_crc()
    assert parsed.timestamp_type == 1
    assert [record.timestamp for record in parsed] == [NOW + 99] * 3


def test_records_after_a_gap_keep_their_offsets() -> None:
    batch = build_batch(
        [(NOW, b"a", b"1", []), (NOW, b"b", b"2", [])],
        base_offset=50,
        offset_deltas=[3, 7],
        last_offset_delta=9,
    )
    ((header,), _, problem) = scan_batches(batch)
    assert problem is None
    assert (header.base_offset, header.last_offset, header.next_offset) == (50, 59, 60)
    assert [record[0] for record in read_records(batch, header)] == [53, 57]


@given(batches_of_records, codecs, st.data())
@settings(max_examples=400)
@example([(NOW, b"", b"", [])], Compression.NONE, None)
def test_damage_under_a_right_crc_is_refused_or_read_but_never_a_crash(
    records: list[NewRecord], codec: int, data: st.DataObject | None
) -> None:
    """A CRC does not protect against a hostile client, which computes the right one."""
    batch = build_batch(records, compression=codec)
    if data is not None:
        for _ in range(data.draw(st.integers(1, 4))):
            batch[data.draw(st.integers(21, len(batch) - 1))] = data.draw(st.integers(0, 255))
        cut = data.draw(st.integers(0, 3))
        batch = batch[: max(HEADER_BYTES, len(batch) - cut)]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
    resealed(batch)
    try:
        headers = validate_batches(batch)
        assign_offsets(batch, headers, 0, 0)
    except BrokerError:
        headers = scan_batches(batch)[0]
    for header in headers:
        try:
            found = read_records(batch, header, max_bytes=1_000_000)
        except BrokerError:
            continue
        assert len(found) == max(header.record_count, 0)


def test_a_compressed_batch_that_holds_garbage_is_stored_but_not_read() -> None:
    batch = sample(3, compression=Compression.GZIP)
    batch[HEADER_BYTES + 12 :] = b"garbage" * 3
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    assert validate_batches(resealed(batch))
    with pytest.raises(CorruptMessage):
        list(iterate_records(batch))


def test_a_batch_that_would_expand_too_far_is_not_read() -> None:
    batch = build_batch([(NOW, None, bytes(10**6), [])], compression=Compression.ZSTD)
    assert len(batch) < 1000
    with pytest.raises(MessageTooLarge):
        list(iterate_records(batch, max_bytes=10**5))


def test_iterating_ends_with_an_error_where_the_data_ends_early() -> None:
    data = sample(2) + sample(2)
    records = iterate_records(data[:-1])
    assert [next(records)[0], next(records)[0]] == [0, 1]
    with pytest.raises(CorruptMessage, match="cut short"):
        next(records)
