"""Built batches, read by two independent implementations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.produced_batches import validate_batches
from broker_core.protocol.record_reader import read_records
from tests.broker_core.protocol.sample_batches import NOW, batches_of_records, codecs, foreign_batch

if TYPE_CHECKING:
    from broker_core.protocol.batch_builder import NewRecord


def test_more_records_than_between_two_switches_of_threads_are_built_and_read() -> None:
    rows = [(number, b"%d" % number, None, ()) for number in range(1_501)]
    batch = build_batch(rows)
    (header,) = validate_batches(batch)
    assert [record[1:] for record in read_records(batch, header)] == rows


@given(batches_of_records, codecs, st.integers(0, 2**40))
def test_aiokafka_reads_what_we_build(
    records: list[NewRecord], codec: int, base_offset: int
) -> None:
    batch = build_batch(records, compression=codec, base_offset=base_offset)
    parsed = DefaultRecordBatch(bytes(batch))
    assert parsed.validate_crc()
    assert parsed.next_offset == base_offset + len(records)
    assert [(r.timestamp, r.key, r.value, list(r.headers)) for r in parsed] == records


@given(batches_of_records, st.integers(0, 2**40))
def test_kio_reads_what_we_build(records: list[NewRecord], base_offset: int) -> None:
    batch = build_batch(
        records, base_offset=base_offset, producer_id=7, producer_epoch=2, base_sequence=40
    )
    parsed, size = read_batch(bytes(batch), 0)
    assert size == len(batch)
    assert (parsed.producer_id, parsed.producer_epoch, parsed.base_sequence) == (7, 2, 40)
    assert [(r.offset - base_offset, r.key, r.value) for r in parsed.records] == [
        (i, key, value) for i, (_, key, value, _) in enumerate(records)
    ]


def test_without_compression_we_build_the_very_bytes_of_aiokafka() -> None:
    records: list[NewRecord] = [
        (NOW, b"demo/phone", b'{"lat":52.5}', [("traceparent", b"00-1-2-01")]),
        (NOW + 70, None, b"", [("empty", None)]),
        (NOW - 5, b"", None, []),
    ]
    ours = build_batch(records, producer_id=9, producer_epoch=1, base_sequence=3)
    theirs = foreign_batch(records, producer_id=9, producer_epoch=1, base_sequence=3)
    # aiokafka writes 0 as base offset and leader epoch, which the broker sets; here they are -1.
    assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])
