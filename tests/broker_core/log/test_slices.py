"""Batches that are returned as slices of the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.environment import Environment
from broker_core.log import Log, LogConfig
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.log.support import NOW, Workbench

_sizes = st.lists(st.integers(min_value=1, max_value=30_000), min_size=1, max_size=40)


def _filled(folder: Path, sizes: list[int]) -> Log:
    config = LogConfig(segment_bytes=400_000)
    log = Log.open(folder, "location", 0, config, Environment.real())
    for number, size in enumerate(sizes):
        rows = [(NOW, b"%d" % number, bytes(size), ())] * (1 + number % 3)
        log.append(build_batch(rows), leader_epoch=0, now_ms=NOW)
    return log


@given(_sizes, st.data())
@settings(max_examples=60)
def test_a_slice_has_the_whole_batches_that_reading_gives(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    log = _filled(tmp_path_factory.mktemp("log"), sizes)
    end = log.log_end_offset
    for _ in range(5):
        offset = data.draw(st.integers(min_value=0, max_value=end))
        up_to = data.draw(st.integers(min_value=0, max_value=end))
        size = data.draw(st.integers(min_value=0, max_value=500_000))
        sliced = log.slice(offset, size, up_to)
        if sliced is None:
            continue
        records = sliced[0].read()
        assert len(records) == len(sliced[0]) <= size
        headers, whole, problem = scan_batches(records)
        assert problem is None and whole == len(records)
        assert headers[0].base_offset <= offset <= headers[0].last_offset
        assert headers[-1].next_offset <= up_to
        assert log.read(offset, size, up_to_offset=up_to).startswith(records)
    log.close()


def test_what_is_small_or_out_of_range_is_left_to_reading(tmp_path: Path) -> None:
    log = _filled(tmp_path, [1000, 40_000])
    assert log.slice(0, 1000, log.log_end_offset) is None
    assert log.slice(99, 1_000_000, 100) is None
    assert log.slice(0, 1_000_000, 0) is None
    assert log.slice(0, 1_000_000, log.log_end_offset) is not None
    log.close()


def test_a_disk_that_is_not_the_systems_gives_no_slices(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    bench.append(bytes(100_000))
    assert bench.log.slice(0, 1_000_000, 1) is None


def test_a_slice_can_be_read_after_retention_has_taken_its_segment(tmp_path: Path) -> None:
    log = _filled(tmp_path, [100_000] * 12)
    sliced = log.slice(0, 300_000, log.log_end_offset)
    assert sliced is not None
    before = sliced[0].read()
    log.high_watermark = log.log_end_offset
    log.delete_records(log.log_end_offset)
    log.apply_retention(NOW)
    assert log.log_start_offset > 0
    assert sliced[0].read() == before
    log.close()
