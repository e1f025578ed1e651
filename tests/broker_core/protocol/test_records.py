"""Record batches compared with two independent implementations, and hostile bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import google_crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from broker_core.errors import (
    BrokerError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from broker_core.protocol.compression import Compression
from broker_core.protocol.records import (
    HEADER_BYTES,
    RecordReader,
    assign_offsets,
    build_batch,
    crc32c,
    find_batch,
    iterate_records,
    read_records,
    scan_batches,
    validate_batches,
    whole_batches,
)

if TYPE_CHECKING:
    from broker_core.protocol.records import NewRecord

NOW = 1_700_000_000_000

names = st.text(st.characters(codec="utf-8"), max_size=8)
values = st.none() | st.binary(max_size=40)
new_records = st.tuples(
    st.integers(NOW - 10**9, NOW + 10**9),
    values,
    values,
    st.lists(st.tuples(names, values), max_size=3),
)
batches_of_records = st.lists(new_records, min_size=1, max_size=20)
codecs = st.sampled_from(list(Compression))


def foreign_batch(records: list[NewRecord], codec: int = 0, **producer: int) -> bytearray:
    """Build a batch with aiokafka's builder."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=producer.get("is_transactional", 0),
        producer_id=producer.get("producer_id", -1),
        producer_epoch=producer.get("producer_epoch", -1),
        base_sequence=producer.get("base_sequence", -1),
        batch_size=10**9,
    )
    for offset, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(offset, timestamp, key, value, list(headers)) is not None
    return bytearray(builder.build())


def sample(count: int = 3, **arguments: Any) -> bytearray:
    return build_batch([(NOW + i, b"key", b"value %d" % i, []) for i in range(count)], **arguments)


def resealed(batch: bytearray) -> bytearray:
    """Return the batch with the CRC of its changed bytes."""
    struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))
    return batch


def patched(position: int, layout: str, value: int, batch: bytearray | None = None) -> bytearray:
    changed = sample() if batch is None else batch
    struct.pack_into(layout, changed, position, value)
    return resealed(changed)


# --- CRC-32C ---


@given(st.binary(max_size=20_000), st.integers(0, 20_000))
@settings(max_examples=150)
def test_the_crc_is_that_of_google_crc32c(data: bytes, cut: int) -> None:
    expected = google_crc32c.value(data)
    assert crc32c(data) == expected
    assert crc32c(data, by_table=True) == expected
    assert crc32c(memoryview(data)[cut:], crc32c(data[:cut])) == expected


@pytest.mark.parametrize("size", [0, 1, 7, 8, 767, 768, 769, 6143, 6144, 6152, 100_003])
def test_the_crc_is_right_where_one_way_of_computing_it_ends(size: int) -> None:
    data = bytes(i * 7 % 251 for i in range(size))
    assert crc32c(data) == crc32c(data, by_table=True) == google_crc32c.value(data)


def test_the_crc_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720 B.4 and every catalogue of CRCs
    assert crc32c(bytes(32)) == 0x8A9136AA


# --- reading and building ---


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


def test_more_records_than_between_two_switches_of_threads_are_built_and_read() -> None:
    rows = [(number, b"%d" % number, None, ()) for number in range(1_501)]
    batch = build_batch(rows)
    (header,) = validate_batches(batch)
    assert [record[1:] for record in read_records(batch, header)] == rows


@given(batches_of_records, codecs)
def test_we_read_what_aiokafka_builds(records: list[NewRecord], codec: int) -> None:
    batch = foreign_batch(records, codec)
    assert [(t, k, v, list(h)) for _, t, k, v, h in iterate_records(batch)] == records
    assert [offset for offset, *_ in iterate_records(batch)] == list(range(len(records)))
    (header,) = validate_batches(batch)
    assert header.record_count == len(records)
    assert header.max_timestamp == max(record[0] for record in records)


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


def test_a_producer_sends_no_more_than_a_thousand_batches_for_a_partition() -> None:
    one = build_batch([(NOW, b"k", b"v", ())])
    assert len(validate_batches(one * 1_000)) == 1_000
    with pytest.raises(InvalidRecord, match="more than 1000 batches"):
        validate_batches(one * 1_001)
    assert len(validate_batches(one * 1_001, from_client=False)) == 1_001
    assert len(scan_batches(one * 10, count_max=3)[0]) == 3


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


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        build_batch([])


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


# --- finding ---


def numbered(counts: list[int], first_offset: int = 0) -> tuple[bytearray, list[tuple[int, int]]]:
    """Return batches with given record counts, and (position, base offset) of each."""
    data = bytearray()
    places = []
    offset = first_offset
    for count in counts:
        places.append((len(data), offset))
        data += sample(count, base_offset=offset)
        offset += count
    return data, places


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_the_batch_of_an_offset_is_found(counts: list[int], data: st.DataObject) -> None:
    batches, places = numbered(counts, 1000)
    offset = data.draw(st.integers(1000, 1000 + sum(counts) - 1))
    expected = max(place for place in places if place[1] <= offset)[0]
    position, size = find_batch(batches, offset)
    assert position == expected
    assert scan_batches(batches[position : position + size])[2] is None
    assert find_batch(batches, 1000 + sum(counts)) == (len(batches), 0)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_only_whole_batches_below_the_bound_are_taken(
    counts: list[int], data: st.DataObject
) -> None:
    batches, places = numbered(counts)
    ends = [*[position for position, _ in places[1:]], len(batches)]
    next_offsets = [*[offset for _, offset in places[1:]], sum(counts)]
    cut = data.draw(st.integers(0, len(batches)))
    bound = data.draw(st.integers(0, sum(counts) + 1))
    expected = [
        (end, following)
        for end, following in zip(ends, next_offsets, strict=True)
        if end <= cut and following <= bound
    ]
    assert whole_batches(batches[:cut], bound) == (expected[-1] if expected else (0, -1))


def test_lengths_that_lead_nowhere_are_refused_when_searching() -> None:
    for length in (-(2**31), -12, 0, 48):
        batch = sample()
        struct.pack_into(">i", batch, 8, length)
        with pytest.raises(CorruptMessage, match="length is impossible"):
            find_batch(batch, 2)
        with pytest.raises(CorruptMessage, match="length is impossible"):
            whole_batches(batch)
