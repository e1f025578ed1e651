"""Deletion by age, by size and on request; and what is never deleted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.errors import KafkaStorageError, OffsetOutOfRange
from broker_core.log import LogConfig
from tests.broker_core.log.support import HOUR_MS, NOW, Workbench


def fill(bench: Workbench, count: int, step_ms: int = 0) -> None:
    for i in range(count):
        bench.append(b"%d" % i + b"x" * 50, timestamp=NOW + i * step_ms)


def test_segments_whose_newest_record_is_too_old_go(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, segment_bytes=600, retention_ms=HOUR_MS)
    fill(bench, 40, 60_000)
    segments = bench.log.segments
    bench.clock.now = NOW + HOUR_MS + segments[2].max_timestamp - NOW
    assert bench.log.apply_retention(bench.clock.now) == 2
    assert bench.log.log_start_offset == segments[2].base_offset
    assert bench.values()[0][0] == segments[2].base_offset
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(0, 100)
    assert bench.log.apply_retention(bench.clock.now) == 0


def test_the_last_segment_goes_too_and_offsets_go_on(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, segment_bytes=600, retention_ms=HOUR_MS)
    fill(bench, 40)
    bench.clock.now += HOUR_MS + 1
    bench.log.apply_retention(bench.clock.now)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (40, 40)
    assert bench.log.size_bytes == 0
    assert bench.append(b"next", timestamp=bench.clock.now).base_offset == 40
    for _ in range(2):
        bench.open()
        assert bench.values() == [(40, b"next")]
        bench.log.close()


@given(st.integers(0, 4000), st.integers(0, 40))
@settings(max_examples=40)
def test_what_is_left_is_at_least_the_size_asked_for_and_no_segment_more(
    tmp_path_factory: pytest.TempPathFactory, retention_bytes: int, count: int
) -> None:
    bench = Workbench(
        tmp_path_factory.mktemp("log"), segment_bytes=600, retention_bytes=retention_bytes
    )
    fill(bench, count)
    before = bench.log.size_bytes
    bench.log.apply_retention(NOW)
    after = bench.log.size_bytes
    assert after >= min(before, retention_bytes)
    oldest = bench.log.segments[0].size
    assert after - oldest < retention_bytes or len(bench.log.segments) == 1
    assert [offset for offset, _ in bench.values()] == list(
        range(bench.log.log_start_offset, count)
    )


def test_nothing_goes_where_nothing_says_so(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, segment_bytes=600, retention_ms=-1)
    fill(bench, 40)
    assert bench.log.apply_retention(NOW * 2) == 0
    bench.log.update_config(LogConfig(cleanup_policy="compact", retention_ms=1))
    assert bench.log.apply_retention(NOW * 2) == 0


def test_what_is_not_committed_stays(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, segment_bytes=600, retention_ms=HOUR_MS)
    bench.log.high_watermark_follows_end = False
    fill(bench, 40)
    assert bench.log.high_watermark == 0
    assert bench.log.apply_retention(NOW + 2 * HOUR_MS) == 0
    bench.log.high_watermark = bench.log.segments[1].next_offset
    assert bench.log.apply_retention(NOW + 2 * HOUR_MS) == 2


def test_deleted_records_are_gone_at_once_and_their_segments_with_the_next_round(
    bench: Workbench,
) -> None:
    fill(bench, 40)
    count = len(bench.log.segments)
    bench.log.delete_records(20)
    assert bench.log.log_start_offset == 20
    assert bench.values()[0][0] == 20
    assert len(bench.log.segments) == count
    removed = bench.log.apply_retention(NOW)
    assert removed >= 2
    assert len(bench.files(".log")) == count - removed
    bench.log.delete_records(10)
    assert bench.log.log_start_offset == 20
    bench.open()
    assert bench.log.log_start_offset == 20
    bench.log.delete_records(-1)
    assert bench.log.log_start_offset == 40
    assert bench.values() == []
    for offset in (41, -2):
        with pytest.raises(OffsetOutOfRange):
            bench.log.delete_records(offset)


def test_all_files_of_a_segment_go(bench: Workbench) -> None:
    fill(bench, 40)
    bench.log.flush()
    bench.log.delete_records(40)
    bench.log.apply_retention(NOW)
    assert [len(bench.files(suffix)) for suffix in (".log", ".index", ".timeindex")] == [1, 0, 0]
    assert len(bench.files(".snapshot")) <= 2


def test_a_reader_that_holds_data_is_not_disturbed(bench: Workbench) -> None:
    fill(bench, 40)
    handle = bench.log.segments[0].handle()
    content = handle.file.pread(10_000, 0)
    bench.log.delete_records(40)
    bench.log.apply_retention(NOW)
    assert handle.file.pread(10_000, 0) == content


def test_silent_producers_are_forgotten(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, producer_id_expiration_ms=HOUR_MS)
    bench.append(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    bench.log.apply_retention(NOW + HOUR_MS - 1)
    assert len(bench.log.producers) == 1
    bench.log.apply_retention(NOW + HOUR_MS)
    assert len(bench.log.producers) == 0


def test_a_full_disk_refuses_to_delete_rather_than_to_forget(bench: Workbench) -> None:
    fill(bench, 40)

    def fail(path: Path, data: object) -> None:
        raise OSError(28, "No space left on device")

    bench.disk.replace = fail  # type: ignore[method-assign]
    with pytest.raises(KafkaStorageError, match="No space left"):
        bench.log.delete_records(20)
    assert bench.log.log_start_offset == 0


def test_restarts_make_no_segment_younger(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, segment_ms=HOUR_MS, retention_ms=24 * HOUR_MS)
    for half_hour in range(60):
        bench.clock.now = NOW + half_hour * HOUR_MS // 2
        bench.open()
        bench.append(b"%d" % half_hour, timestamp=bench.clock.now)
        bench.log.apply_retention(bench.clock.now)
        if half_hour % 2:
            bench.log.close()
    oldest = bench.records()[0][1]
    assert bench.clock.now - oldest <= 26 * HOUR_MS
