"""Append, read, look-up by time, flush: the operations of a log that a broker uses."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.errors import (
    BrokerError,
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    KafkaStorageError,
    MessageTooLarge,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from broker_core.log import AppendResult, LogConfig
from broker_core.log.log import Log
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.compression import Compression, codec_named
from broker_core.protocol.crc32c import crc32c
from broker_core.protocol.record_reader import iterate_records
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.log.support import HOUR_MS, NOW, Workbench

# --- append and read ---


def test_what_is_appended_is_read_with_offsets_from_zero(bench: Workbench) -> None:
    assert bench.append(b"a", b"b") == AppendResult(0, 1, -1, 0, duplicate=False)
    assert bench.append(b"c") == AppendResult(2, 2, -1, 0, duplicate=False)
    assert bench.values() == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert bench.log.log_end_offset == bench.log.high_watermark == 3


def test_several_batches_of_one_append_are_numbered_one_after_the_other(bench: Workbench) -> None:
    bench.append(b"a")
    data = build_batch([(NOW, None, b"b", [])] * 2) + build_batch([(NOW, None, b"c", [])])
    result = bench.log.append(memoryview(data), leader_epoch=3, now_ms=NOW)
    assert (result.base_offset, result.last_offset) == (1, 3)
    assert bench.values() == [(0, b"a"), (1, b"b"), (2, b"b"), (3, b"c")]
    headers = scan_batches(bench.log.read(1, 10_000))[0]
    assert [header.leader_epoch for header in headers] == [3, 3]
    assert bench.log.leader_epochs.entries == [(0, 0), (3, 1)]


def test_every_offset_can_be_read_from_whatever_the_segments(bench: Workbench) -> None:
    for i in range(60):
        bench.append(*([b"%d" % i] * (i % 4 + 1)))
    assert len(bench.log.segments) > 5
    values = bench.values()
    assert [offset for offset, _ in values] == list(range(bench.log.log_end_offset))
    for offset, value in values:
        records = list(iterate_records(bench.log.read(offset, 1)))
        assert (offset, value) in [(record[0], record[3]) for record in records]


def test_a_read_stays_below_its_limit_but_gives_at_least_one_batch(bench: Workbench) -> None:
    sizes = []
    for i in range(4):
        before = bench.log.size_bytes
        bench.append(b"x" * 20 * i)
        sizes.append(bench.log.size_bytes - before)
    read = bench.log.read
    assert len(read(0, 1)) == sizes[0]
    assert read(0, 1, min_one_message=False) == b""
    assert read(0, sizes[0] - 1, min_one_message=False) == b""
    assert len(read(0, sizes[0], min_one_message=False)) == sizes[0]
    assert len(read(0, sizes[0] + sizes[1] - 1)) == sizes[0]
    assert len(read(0, sizes[0] + sizes[1])) == sizes[0] + sizes[1]
    assert len(read(2, 1)) == sizes[2]


def test_a_batch_larger_than_one_look_at_the_file_is_read(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    for value in (b"a", os.urandom(300_000), b"b", os.urandom(20_000), b"c"):
        bench.append(value)
    assert [len(value or b"") for _, value in bench.values()] == [1, 300_000, 1, 20_000, 1]
    for offset in range(5):
        assert next(iterate_records(bench.log.read(offset, 1)))[0] == offset


def test_nothing_at_or_above_the_bound_is_read(bench: Workbench) -> None:
    bench.append(b"a", b"b")
    bench.append(b"c", b"d")
    read = bench.log.read
    assert len(list(iterate_records(read(0, 10_000, up_to_offset=4)))) == 4
    assert len(list(iterate_records(read(0, 10_000, up_to_offset=3)))) == 2
    assert read(0, 10_000, up_to_offset=1) == b""
    assert read(2, 10_000, up_to_offset=2) == b""
    assert read(2, 10_000, up_to_offset=3) == b""


def test_an_offset_outside_the_log_is_refused_and_its_end_is_empty(bench: Workbench) -> None:
    bench.append(b"a")
    assert bench.log.read(1, 100) == b""
    for offset in (-1, 2, 2**62):
        with pytest.raises(OffsetOutOfRange, match=r"is not in 0\.\.1"):
            bench.log.read(offset, 100)


def test_compressed_batches_are_stored_as_they_come(bench: Workbench) -> None:
    for codec in Compression:
        batch = build_batch([(NOW, b"k", b"v" * 200, [])], compression=codec)
        bench.log.append(batch, leader_epoch=0, now_ms=NOW)
        assert bench.log.read(int(codec), 10_000)[61:] == batch[61:]


# --- refusing ---


@pytest.mark.parametrize(
    ("damage", "error"),
    [(20, CorruptMessage), (70, CorruptMessage), (16, InvalidRecord)],
)
def test_a_batch_that_is_not_sound_changes_nothing(
    bench: Workbench, damage: int, error: type[BrokerError]
) -> None:
    bench.append(b"a")
    batch = build_batch([(NOW, b"k", b"value", [])])
    batch[damage] ^= 1
    with pytest.raises(error):
        bench.log.append(build_batch([(NOW, None, b"x", [])]) + batch, leader_epoch=0, now_ms=NOW)
    assert bench.values() == [(0, b"a")]
    bench.append(b"b")
    assert bench.values() == [(0, b"a"), (1, b"b")]


def test_a_batch_over_the_topics_limit_is_refused(bench: Workbench) -> None:
    bench.log.update_config(LogConfig(max_message_bytes=100))
    bench.append(b"x" * 20)
    with pytest.raises(MessageTooLarge):
        bench.append(b"x" * 60)


def test_a_compacted_topic_wants_keys(bench: Workbench) -> None:
    bench.append_records([(NOW, None, b"v", [])])
    bench.log.update_config(LogConfig(cleanup_policy="compact"))
    with pytest.raises(InvalidRecord, match="location-0 is compacted"):
        bench.append_records([(NOW, b"k", b"v", []), (NOW, None, b"v", [])])


def test_timestamps_far_from_the_brokers_clock_are_refused_as_configured(bench: Workbench) -> None:
    bench.append(b"v", timestamp=NOW + HOUR_MS)
    bench.append(b"v", timestamp=0)
    with pytest.raises(InvalidTimestamp, match="too far"):
        bench.append(b"v", timestamp=NOW + HOUR_MS + 1)
    bench.log.update_config(LogConfig(message_timestamp_before_max_ms=5))
    with pytest.raises(InvalidTimestamp):
        bench.append(b"v", timestamp=NOW - 6)


@pytest.mark.parametrize("codec", [0, 3])
def test_each_record_of_a_batch_has_a_time_that_can_be_kept(tmp_path: Path, codec: int) -> None:
    bench = Workbench(tmp_path, cleanup_policy="compact", message_timestamp_before_max_ms=HOUR_MS)

    def append(*times: int) -> None:
        bench.append_records([(time, b"k", b"v", []) for time in times], compression=codec)

    for time in (-2, NOW - 2**63 + 1):
        with pytest.raises(InvalidTimestamp, match=f"timestamp {time} is before 1970"):
            append(NOW, time, NOW)
    with pytest.raises(InvalidTimestamp, match="too far"):
        append(NOW, NOW - HOUR_MS - 1)
    # -1 stands for no time.
    append(NOW, -1)
    append(-1)
    assert [record[1] for record in bench.records()] == [NOW, -1, -1]
    bench.log.update_config(LogConfig(message_timestamp_type="LogAppendTime"))
    append(NOW, -2)


def test_a_full_disk_refuses_the_append_and_leaves_nothing_behind(bench: Workbench) -> None:
    bench.append(b"a")
    size = bench.log.size_bytes
    for room in (0, 1, 61, 69):
        bench.disk.room = room
        with pytest.raises(KafkaStorageError):
            bench.append(b"b")
        assert (bench.directory / f"{0:020d}.log").stat().st_size == size
        assert bench.values() == [(0, b"a")]
    bench.disk.room = None
    bench.append(b"c")
    assert bench.values() == [(0, b"a"), (1, b"c")]


def test_a_roll_that_fails_leaves_the_log_as_it_was(bench: Workbench) -> None:
    bench.append(b"x" * 500)
    bench.disk.create_fails = True
    for _ in range(2):
        with pytest.raises(KafkaStorageError, match="No space left"):
            bench.append(b"y" * 500)
    assert len(bench.log.segments) == 1
    bench.disk.create_fails = False
    bench.append(b"z" * 500)
    assert [(offset, (value or b"")[:1]) for offset, value in bench.values()] == [
        (0, b"x"),
        (1, b"z"),
    ]


def test_what_follows_a_roll_that_failed_survives_a_crash(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, segment_bytes=800)
    bench.append(b"x" * 300)
    bench.disk.room = 5  # not enough for the indexes of the segment that is to be closed
    with pytest.raises(KafkaStorageError, match="No space left"):
        bench.append(b"y" * 500)
    bench.disk.room = None
    bench.append(b"small")
    bench.log.flush()
    bench.open()
    assert bench.values()[1:] == [(1, b"small")]


# --- idempotent producers ---


def test_a_retry_is_answered_with_the_first_offset(bench: Workbench) -> None:
    bench.append(b"before")
    first = bench.append(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    bench.append(b"c", producer_id=5, producer_epoch=0, base_sequence=2)
    again = bench.append(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    assert again == AppendResult(first.base_offset, first.last_offset, -1, 0, duplicate=True)
    assert bench.log.log_end_offset == 4
    with pytest.raises(OutOfOrderSequenceNumber):
        bench.append(b"e", producer_id=5, producer_epoch=0, base_sequence=4)


def test_producers_are_known_after_every_kind_of_restart(bench: Workbench) -> None:
    for i in range(40):
        bench.append(b"%d" % i, producer_id=5, producer_epoch=1, base_sequence=i)
    assert len(bench.log.segments) > 3
    for clean in (False, True, True, False):
        if clean:
            bench.log.close()
        bench.open()
        for i in range(35, 40):
            retry = bench.append(b"%d" % i, producer_id=5, producer_epoch=1, base_sequence=i)
            assert (retry.base_offset, retry.duplicate) == (i, True)
        with pytest.raises(OutOfOrderSequenceNumber):
            bench.append(b"gap", producer_id=5, producer_epoch=1, base_sequence=41)
        with pytest.raises(InvalidProducerEpoch):
            bench.append(b"old", producer_id=5, producer_epoch=0, base_sequence=0)
    assert bench.log.log_end_offset == 40


def test_a_failed_write_is_not_remembered_as_written(bench: Workbench) -> None:
    bench.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    bench.disk.room = 0
    with pytest.raises(KafkaStorageError):
        bench.append(b"b", producer_id=5, producer_epoch=0, base_sequence=1)
    bench.disk.room = None
    assert not bench.append(b"b", producer_id=5, producer_epoch=0, base_sequence=1).duplicate


# --- log append time and look-ups by time ---


def test_headers_that_name_a_time_in_vain_are_passed_over_one_at_a_time(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    for _ in range(5):
        batch = build_batch([(NOW, b"k", b"v", ())], compression=Compression.LZ4)
        batch[35:43] = (NOW + 1_000).to_bytes(8, "big")
        batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
        bench.log.append(batch, leader_epoch=0, now_ms=NOW)
    bench.append(b"late", timestamp=NOW + 700)
    steps = bench.log.look_for_timestamp(NOW + 500)
    sizes = []
    with pytest.raises(StopIteration) as end:
        while True:
            sizes.append(next(steps))
    assert end.value.value == bench.log.offset_for_timestamp(NOW + 500) == (NOW + 700, 5)
    assert len(sizes) == 5
    assert min(sizes) > 0
    # The newest time is one of those; no record has it.
    assert len(list(bench.log.look_for_max_timestamp())) == 5
    assert bench.log.max_timestamp() is None


def test_the_brokers_clock_replaces_timestamps_where_the_topic_says_so(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, message_timestamp_type="LogAppendTime")
    for codec in Compression:
        result = bench.append(b"a", b"b", timestamp=17, compression=int(codec))
        assert result.log_append_time_ms == NOW
    assert {record[1] for record in bench.records()} == {NOW}
    bench.clock.now += 5
    bench.append(b"c", timestamp=2**61)
    assert bench.log.offset_for_timestamp(NOW + 1) == (NOW + 5, 10)
    assert bench.log.offset_for_timestamp(NOW) == (NOW, 0)
    assert bench.log.max_timestamp() == (NOW + 5, 10)


histories = st.lists(
    st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.sampled_from([0, 0, 3, 4])),
    max_size=30,
)


@given(histories, st.integers(0, 10), st.booleans(), st.sampled_from([1, 150, 10**6]))
@settings(max_examples=80)
def test_a_look_up_by_time_finds_the_first_record_not_older(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[list[int], int]],
    start: int,
    reopen: bool,
    interval: int,
) -> None:
    bench = Workbench(
        tmp_path_factory.mktemp("log"), segment_bytes=400, index_interval_bytes=interval
    )
    for ages, codec in history:
        bench.append_records([(NOW - age, b"k", b"v", []) for age in ages], compression=codec)
    bench.log.delete_records(min(start, bench.log.log_end_offset))
    if reopen:
        bench.log.close()
        bench.open()
    records = [(timestamp, offset) for offset, timestamp, *_ in bench.records()]
    for age in range(-1, 42):
        asked = NOW - age
        expected = next((record for record in records if record[0] >= asked), None)
        assert bench.log.offset_for_timestamp(asked) == expected
    if bench.log.log_start_offset:
        return
    newest = max((record[0] for record in records), default=None)
    assert bench.log.max_timestamp() == next(
        (record for record in records if record[0] == newest), None
    )


def test_a_look_up_by_time_survives_a_compressed_batch_of_garbage(bench: Workbench) -> None:
    batch = build_batch([(NOW, b"k", b"v" * 100, [])], compression=Compression.GZIP)
    batch[61:] = b"garbage" * 5
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    bench.log.update_config(LogConfig(message_timestamp_type="LogAppendTime"))
    # A wrong CRC would be refused: make `assign_offsets` compute a new one.
    from broker_core.protocol.crc32c import crc32c

    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    bench.log.update_config(LogConfig())
    bench.log.append(batch, leader_epoch=0, now_ms=NOW)
    bench.append(b"after")
    assert bench.log.offset_for_timestamp(NOW) == (NOW, 0)


def test_a_look_up_by_time_stays_below_the_high_watermark(bench: Workbench) -> None:
    bench.log.high_watermark_follows_end = False
    bench.append(b"a", timestamp=NOW)
    bench.append(b"b", timestamp=NOW + 5)
    bench.log.high_watermark = 1
    assert bench.log.offset_for_timestamp(NOW + 1) is None
    assert bench.log.offset_for_timestamp(NOW) == (NOW, 0)


# --- durability ---


def test_a_flush_reports_what_is_durable(bench: Workbench) -> None:
    assert bench.log.recovery_point == 0
    bench.append(b"a", b"b")
    assert bench.log.recovery_point == 0
    assert bench.log.flush() == bench.log.recovery_point == 2
    syncs = bench.disk.syncs
    assert bench.log.flush() == 2
    assert bench.disk.syncs == syncs, "a log without appends is not synced again"


def test_a_flush_syncs_every_segment_that_was_written_since(bench: Workbench) -> None:
    for _ in range(30):
        bench.append(b"x" * 50)
    bench.log.roll()
    closed = len(bench.log.segments) - 1
    assert closed > 3
    bench.log.flush()
    # The log files of all segments, and the two indexes of each closed one.
    assert bench.disk.syncs == closed + 1 + 2 * closed
    bench.append(b"y")
    bench.log.flush()
    assert bench.disk.syncs == closed + 1 + 2 * closed + 1


def test_after_a_failed_sync_the_log_takes_no_appends_but_can_be_read(bench: Workbench) -> None:
    bench.append(b"a")
    bench.disk.sync_fails = True
    with pytest.raises(KafkaStorageError, match="cannot be synced"):
        bench.log.flush()
    bench.disk.sync_fails = False
    with pytest.raises(KafkaStorageError, match="cannot be synced"):
        bench.log.flush()
    with pytest.raises(KafkaStorageError, match="cannot be synced"):
        bench.append(b"b")
    assert bench.values() == [(0, b"a")]
    assert bench.log.recovery_point == 0


def test_only_a_few_closed_segments_are_kept_open(bench: Workbench) -> None:
    for _ in range(100):
        bench.append(b"x" * 50)
    bench.log.flush()
    assert len(bench.log.segments) > 15
    bench.values()
    assert sum(segment.is_open for segment in bench.log.segments) <= 5


def test_flushes_retention_and_reads_run_beside_appends(tmp_path: Path) -> None:
    """Threads share one log, as with the server's flusher."""
    bench = Workbench(tmp_path, segment_bytes=3000, retention_bytes=20_000)
    problems: list[BaseException] = []
    done = threading.Event()

    def repeat(action: str) -> None:
        try:
            while not done.is_set():
                if action == "flush":
                    before = bench.log.log_end_offset
                    assert bench.log.flush() >= before
                elif action == "retain":
                    bench.log.apply_retention(NOW)
                else:
                    start = bench.log.log_start_offset
                    try:
                        data = bench.log.read(start, 5000)
                    except OffsetOutOfRange:
                        continue  # retention has deleted it in the meantime
                    headers, size, problem = scan_batches(data)
                    assert (size, problem) == (len(data), None)
                    assert not headers or headers[0].base_offset <= start <= headers[0].last_offset
        except BaseException as error:
            problems.append(error)

    threads = [
        threading.Thread(target=repeat, args=(action,))
        for action in ("flush", "retain", "read", "read")
    ]
    for thread in threads:
        thread.start()
    for i in range(3000):
        bench.append(b"%d" % i, b"x" * 100)
    done.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert bench.log.log_end_offset == 6000
    bench.log.apply_retention(NOW)
    assert bench.log.size_bytes < 30_000
    bench.log.close()
    assert [offset for offset, _ in Workbench(tmp_path).values()][-1] == 5999


# --- end ---


def test_a_closed_log_takes_nothing_more(bench: Workbench) -> None:
    bench.append(b"a")
    bench.log.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        bench.append(b"b")
    bench.log.close()
    assert bench.open().log_end_offset == 1


def test_a_deleted_log_leaves_no_file(bench: Workbench) -> None:
    for _ in range(20):
        bench.append(b"x" * 100)
    bench.log.delete()
    assert not bench.directory.exists()
    with pytest.raises(KafkaStorageError, match="deleted"):
        bench.append(b"b")
    bench.open()
    assert bench.log.log_end_offset == 0


def test_a_deletion_cut_short_leaves_nothing_that_looks_like_a_log(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.append(b"a")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(bench.disk, "remove", fail)
        with pytest.raises(KafkaStorageError, match="Input/output"):
            bench.log.delete()
    assert not bench.directory.exists()
    assert bench.open().log_end_offset == 0


def test_a_long_silence_rolls_the_segment(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, segment_ms=1000)
    bench.append(b"a")
    bench.clock.now += 1000
    bench.append(b"b")
    assert len(bench.log.segments) == 1
    bench.clock.now += 1
    bench.append(b"c")
    assert len(bench.log.segments) == 2
    assert bench.files(".log") == [f"{0:020d}.log", f"{2:020d}.log"]


def test_the_segments_of_many_logs_end_at_different_times(tmp_path: Path) -> None:
    ages = []
    for number in range(20):
        bench = Workbench(tmp_path / str(number), segment_ms=1000, segment_jitter_ms=600)
        bench.log = Log.open(bench.directory, "location", number, bench.config, bench.environment)
        bench.append(b"a")
        begin = bench.clock.now
        while len(bench.log.segments) == 1:
            bench.clock.now += 50
            bench.append(b"b")
        ages.append(bench.clock.now - begin)
    assert min(ages) >= 400
    assert max(ages) <= 1050
    assert len(set(ages)) >= 5


def test_a_restart_does_not_change_when_a_segment_ends(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, segment_ms=1000, segment_jitter_ms=1000)
    bench.append(b"a")
    begin = bench.clock.now
    while len(bench.log.segments) == 1:
        bench.clock.now += 1
        bench.open()
        bench.append(b"b")
    age = bench.clock.now - begin
    other = Workbench(tmp_path / "other", segment_ms=1000, segment_jitter_ms=1000)
    other.append(b"a")
    other.clock.now += age - 1
    other.append(b"b")
    assert len(other.log.segments) == 1
    other.clock.now += 1
    other.append(b"c")
    assert len(other.log.segments) == 2


@pytest.mark.parametrize("topics", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("producers", range(5))
def test_a_topic_has_its_records_in_the_compression_it_asks_for(
    tmp_path: Path, topics: str, producers: int
) -> None:
    bench = Workbench(tmp_path, compression_type=topics)
    rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (NOW + i, b"k%d" % i, b"value " * 20, [("h", b"x")]) for i in range(5)
    ]
    bench.append_records(
        rows, compression=producers, producer_id=7, producer_epoch=1, base_sequence=0
    )
    data = bench.log.read(0, 10_000)
    (header,) = scan_batches(data)[0]
    assert header.compression == codec_named(topics)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)
    assert [record[1:] for record in iterate_records(data)] == rows
    # A repeated batch is recognised, although its stored bytes have changed.
    again = bench.append_records(
        rows, compression=producers, producer_id=7, producer_epoch=1, base_sequence=0
    )
    assert again.duplicate and again.base_offset == 0


def test_an_idle_log_holds_no_file_open(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    assert not bench.log.segments[-1].is_open
    bench.append(b"a")
    bench.log.park()
    assert bench.log.segments[-1].is_open, "what is not durable yet keeps its file"
    bench.log.flush()
    bench.log.park()
    assert not bench.log.segments[-1].is_open
    assert bench.values() == [(0, b"a")]
    bench.log.park()
    bench.append(b"b")
    bench.log.flush()
    bench.log.park()
    bench.log.roll()
    bench.append(b"c")
    assert bench.values() == [(0, b"a"), (1, b"b"), (2, b"c")]
    bench.log.close()
    bench.open()
    assert bench.values() == [(0, b"a"), (1, b"b"), (2, b"c")]
