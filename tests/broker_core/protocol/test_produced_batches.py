"""What is refused of a producer's batches, and how they are numbered in place."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.errors import (
    BrokerError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.batch_header import HEADER_BYTES
from broker_core.protocol.produced_batches import assign_offsets, validate_batches
from broker_core.protocol.record_reader import iterate_records, read_records
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.protocol.sample_batches import (
    NOW,
    batches_of_records,
    codecs,
    foreign_batch,
    patched,
    sample,
)

if TYPE_CHECKING:
    from broker_core.protocol.batch_builder import NewRecord


# --- refusing ---


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        (bytearray(), InvalidRecord, "no batch"),
        (sample()[:-1], CorruptMessage, "cut short"),
        (sample() + sample()[:30], CorruptMessage, r"cut short \(byte"),
        (patched(8, ">i", 48), CorruptMessage, "length is impossible"),
        (patched(8, ">i", -1), CorruptMessage, "length is impossible"),
        (patched(8, ">i", 2**31 - 1), MessageTooLarge, "2147483659 bytes"),
        (patched(16, ">b", 1), InvalidRecord, "version 2"),
        (patched(21, ">h", 5), UnsupportedCompressionType, "codec 5"),
        (patched(21, ">h", 0x08), InvalidTimestamp, "log append time"),
        (patched(21, ">h", 0x10), InvalidRecord, "producer id"),
        (patched(21, ">h", 0x20), InvalidRecord, "control"),
        (patched(23, ">i", 7), InvalidRecord, "last offset delta of 7"),
        (patched(23, ">i", -1), CorruptMessage, "offsets are impossible"),
        (patched(57, ">i", 0), InvalidRecord, "0 records"),
        (patched(57, ">i", -3), InvalidRecord, "-3 records"),
        (patched(43, ">q", -2), InvalidRecord, "producer id"),
        (patched(43, ">q", 5), InvalidRecord, "producer 5 sent epoch -1"),
        (patched(HEADER_BYTES, ">B", 0x7F), InvalidRecord, "lengths do not fit"),
        (patched(HEADER_BYTES, ">B", 0x01), InvalidRecord, "lengths do not fit"),
        (patched(HEADER_BYTES + 3, ">B", 0x02), InvalidRecord, "numbered 0, 1, 2"),
        (patched(HEADER_BYTES + 4, ">B", 0x03), InvalidRecord, "lengths do not fit"),
        (patched(HEADER_BYTES + 4, ">B", 0x7F), InvalidRecord, "lengths do not fit"),
    ],
)
def test_a_batch_that_breaks_a_rule_is_refused(
    batch: bytearray, error: type[BrokerError], text: str
) -> None:
    with pytest.raises(error, match=text):
        validate_batches(batch)


def test_bytes_after_the_last_record_are_refused() -> None:
    longer = sample()
    longer += b"\x00\x00"
    with pytest.raises(InvalidRecord, match="after its last record"):
        validate_batches(patched(8, ">i", len(longer) - 12, longer))


def test_a_producers_own_base_offset_is_of_no_interest() -> None:
    for base_offset in (-1, 5, 2**63 - 1):
        batch = sample()
        struct.pack_into(">q", batch, 0, base_offset)
        assign_offsets(batch, validate_batches(batch), 3, 0)
        assert [record[0] for record in iterate_records(batch)] == [3, 4, 5]


def test_a_batch_over_the_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    batch = sample()
    assert validate_batches(batch, max_batch_bytes=len(batch))
    with pytest.raises(MessageTooLarge, match=f"{len(batch) - 1} are allowed"):
        validate_batches(batch, max_batch_bytes=len(batch) - 1)


def test_a_producer_sends_no_more_than_a_thousand_batches_for_a_partition() -> None:
    one = build_batch([(NOW, b"k", b"v", ())])
    assert len(validate_batches(one * 1_000)) == 1_000
    with pytest.raises(InvalidRecord, match="more than 1000 batches"):
        validate_batches(one * 1_001)
    assert len(validate_batches(one * 1_001, from_client=False)) == 1_001
    assert len(scan_batches(one * 10, count_max=3)[0]) == 3


@given(st.data())
@settings(max_examples=400)
def test_a_flipped_bit_behind_the_crc_is_always_found(data: st.DataObject) -> None:
    batch = sample(5, compression=data.draw(codecs))
    bit = data.draw(st.integers(16 * 8, len(batch) * 8 - 1))
    batch[bit // 8] ^= 1 << bit % 8
    with pytest.raises((CorruptMessage, InvalidRecord)):
        validate_batches(batch)


@given(st.binary(max_size=300))
@settings(max_examples=400)
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BrokerError):
        validate_batches(data)
    headers, taken, _ = scan_batches(data)
    assert not headers
    assert taken == 0


# --- numbering ---


@given(st.lists(batches_of_records, min_size=1, max_size=4), codecs, st.integers(0, 2**50))
def test_batches_are_numbered_in_place_and_stay_valid(
    lists: list[list[NewRecord]], codec: int, base_offset: int
) -> None:
    data = bytearray(b"".join(foreign_batch(records, codec) for records in lists))
    headers = validate_batches(data)
    end = assign_offsets(memoryview(data), headers, base_offset, 12)
    assert end == base_offset + sum(map(len, lists))
    assert [record[0] for record in iterate_records(data)] == list(range(base_offset, end))
    scanned, size, problem = scan_batches(data)
    assert (size, problem) == (len(data), None)
    for header, found in zip(headers, scanned, strict=True):
        assert (header.base_offset, header.position) == (found.base_offset, found.position)
        assert found.leader_epoch == 12


def test_a_wrong_max_timestamp_is_replaced_by_that_of_the_records() -> None:
    batch = patched(35, ">q", NOW + 10**12)
    (header,) = validate_batches(batch)
    assign_offsets(batch, [header], 0, 0)
    assert header.max_timestamp == NOW + 2
    assert scan_batches(batch)[0][0].max_timestamp == NOW + 2
    assert DefaultRecordBatch(bytes(batch)).validate_crc()


def test_numbering_needs_memory_that_can_be_written() -> None:
    batch = bytes(sample())
    with pytest.raises(BufferError):
        assign_offsets(batch, validate_batches(batch), 0, 0)  # type: ignore[arg-type]


def test_headers_of_other_data_are_refused() -> None:
    headers = validate_batches(sample(9))
    with pytest.raises(ValueError, match="other data"):
        assign_offsets(sample(1), headers, 0, 0)
    with pytest.raises(ValueError, match="other data"):
        read_records(sample(1), headers[0])
