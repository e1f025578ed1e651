"""Truncation of a log, and appending to it what a leader sends."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.environment import Buffer, Environment, File, SystemDisk
from broker_core.errors import CorruptMessage, KafkaStorageError
from broker_core.log import Log, LogConfig
from broker_core.log.log import AppendResult
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.control_records import EndMarker, build_end_marker
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.log.support import NOW, StandingClock, Workbench

_SMALL: dict[str, Any] = {"segment_bytes": 600, "index_interval_bytes": 100}


def _raw(log: Log) -> bytes:
    """Return the stored bytes of all batches."""
    return b"".join(
        segment.handle().file.pread(segment.size, 0) for segment in log.segments if segment.size
    )


def _facts(log: Log) -> dict[str, Any]:
    """Return the state that two logs with the same batches share."""
    return {
        "end": log.log_end_offset,
        "batches": _raw(log),
        "epochs": log.leader_epochs.entries,
        "producers": {
            each.producer_id: (
                each.epoch,
                each.batches,
                each.coordinator_epoch,
                each.transaction_first_offset,
            )
            for each in log.producers.producers()
        },
        "aborted": log.read_committed(0, 2**30)[1] if log.log_end_offset else [],
        "newest": log.max_timestamp(),
        "at": [log.offset_for_timestamp(NOW + each) for each in range(0, 60, 7)],
        "reads": [log.read(each, 1) for each in range(log.log_end_offset)],
    }


class Writer:
    """Appends batches of all kinds to a leader's log."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self.epoch = 0
        self.ends = [0]  # end offset of every batch
        self._sequences = [0, 0, 0]
        self._open: set[int] = set()
        self._time = NOW

    def write(self, kind: int, count: int, delay: int) -> None:
        self._time += delay
        log = self.bench.log
        rows = [(self._time - i, b"k%d" % i, b"v" * 20, ()) for i in range(count)]
        if kind == 0:
            log.append(build_batch(rows), leader_epoch=self.epoch, now_ms=NOW)
        elif kind in {1, 2}:
            batch = build_batch(
                rows,
                producer_id=kind,
                producer_epoch=0,
                base_sequence=self._sequences[kind],
                is_transactional=kind == 2,
            )
            log.append(batch, leader_epoch=self.epoch, now_ms=NOW)
            self._sequences[kind] += count
            self._open.add(kind)
        elif kind in {3, 4} and 2 in self._open:
            self._open.discard(2)
            marker = EndMarker(kind == 3, 0)
            log.append_from_coordinator(
                build_end_marker(2, 0, marker, self._time),
                leader_epoch=self.epoch,
                now_ms=NOW,
                marker=marker,
            )
        elif kind == 5:
            self.epoch += 1 + count
        elif kind == 6:
            log.flush()
        if log.log_end_offset != self.ends[-1]:
            self.ends.append(log.log_end_offset)


_STEPS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=40
)


def _copy(source: Log, directory: Path, up_to: int) -> Workbench:
    """Return a follower's log with the batches of another up to an offset."""
    copy = Workbench(directory, **_SMALL)
    while copy.log.log_end_offset < up_to:
        data = source.read(copy.log.log_end_offset, 1, up_to_offset=up_to)
        copy.log.append_as_follower(data, NOW)
    return copy


@given(_STEPS, st.data())
@settings(max_examples=40)
def test_a_truncated_log_is_the_one_that_never_went_further(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """Compare in memory, after a crash, after a clean shutdown, and after further appends."""
    folder = tmp_path_factory.mktemp("logs")
    bench = Workbench(folder / "leader", **_SMALL)
    writer = Writer(bench)
    for step in steps:
        writer.write(*step)
    cut = data.draw(st.sampled_from(writer.ends))
    shorter = _copy(bench.log, folder / "shorter", cut)
    follower = _copy(bench.log, folder / "follower", bench.log.log_end_offset)
    if data.draw(st.booleans()):
        follower.log.flush()
    leader_end = bench.log.log_end_offset
    assert _facts(follower.log) == _facts(bench.log)
    follower.log.truncate_to(cut)
    assert _facts(follower.log) == _facts(shorter.log)
    assert follower.log.recovery_point <= cut
    for close in (False, True, False):
        if close:
            follower.log.close()
        follower.open()
        assert _facts(follower.log) == _facts(shorter.log)
    while follower.log.log_end_offset < leader_end:
        follower.log.append_as_follower(bench.log.read(follower.log.log_end_offset, 400), NOW)
    assert _facts(follower.log) == _facts(bench.log)
    follower.open()
    assert _facts(follower.log) == _facts(bench.log)


class _StoppingFile:
    def __init__(self, file: File, disk: StoppingDisk) -> None:
        self._file = file
        self._disk = disk

    def pread(self, size: int, position: int) -> bytes:
        return self._file.pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> int:
        self._disk.step()
        return self._file.pwrite(data, position)

    def fdatasync(self) -> None:
        self._disk.step()
        self._file.fdatasync()

    def truncate(self, size: int) -> None:
        self._disk.step()
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class StoppingDisk(SystemDisk):
    """A disk that stops working before a given number of changes."""

    def __init__(self) -> None:
        self.steps_left = -1  # no limit

    def step(self) -> None:
        if self.steps_left == 0:
            raise OSError(errno.EIO, "stopped")
        self.steps_left -= 1

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        if create:
            self.step()
        return _StoppingFile(super().open(path, create=create, writable=writable), self)

    def write(self, path: Path, parts: Sequence[Buffer]) -> None:
        self.step()
        super().write(path, parts)

    def replace(self, path: Path, data: Buffer) -> None:
        self.step()
        super().replace(path, data)

    def remove(self, path: Path) -> None:
        self.step()
        super().remove(path)

    def fsync_directory(self, directory: Path) -> None:
        self.step()
        super().fsync_directory(directory)


@pytest.mark.parametrize("offset", [0, 11, 29])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_truncation_that_is_interrupted_anywhere_leaves_a_beginning(
    tmp_path: Path, offset: int, flushed: bool
) -> None:
    step = 0
    while True:
        disk = StoppingDisk()
        directory = tmp_path / f"{step}" / "location-0"
        environment = Environment(StandingClock(), disk)
        config = LogConfig(**_SMALL)
        log = Log.open(directory, "location", 0, config, environment)
        for number in range(30):
            log.append(
                build_batch([(NOW + number, b"k", b"x" * 40, ())]),
                leader_epoch=number // 10,
                now_ms=NOW,
            )
        if flushed:
            log.flush()
        before = [header.base_offset for header in scan_batches(_raw(log))[0]]
        epochs = log.leader_epochs.entries
        disk.steps_left = step
        try:
            log.truncate_to(offset)
        except KafkaStorageError:
            with pytest.raises(KafkaStorageError):
                log.append(build_batch([(NOW, b"k", b"", ())]), leader_epoch=3, now_ms=NOW)
        else:
            break
        again = Log.open(
            directory, "location", 0, config, Environment(StandingClock(), SystemDisk())
        )
        after = [header.base_offset for header in scan_batches(_raw(again))[0]]
        assert after == before[: len(after)]
        assert offset <= again.log_end_offset == len(after)
        assert again.leader_epochs.entries == [each for each in epochs if each[1] < len(after)]
        step += 1
    assert log.log_end_offset == offset
    assert step > 3


@pytest.mark.parametrize(("offset", "end"), [(0, 0), (4, 4), (5, 4), (6, 4), (7, 7), (50, 10)])
def test_a_batch_that_reaches_the_offset_goes_as_a_whole(
    bench: Workbench, offset: int, end: int
) -> None:
    for size in (2, 2, 3, 3):
        bench.append(*[b"x"] * size)
    bench.log.truncate_to(offset)
    assert bench.log.log_end_offset == end
    assert len(bench.values()) == end


def test_reads_go_on_after_other_batches_took_the_place(bench: Workbench) -> None:
    for _ in range(6):
        bench.append(b"a" * 50)
    assert bench.log.read(2, 1)  # the position behind it is cached
    bench.log.truncate_to(2)
    bench.append(b"b", b"c")
    bench.append(b"d")
    assert bench.values()[2:] == [(2, b"b"), (3, b"c"), (4, b"d")]


def test_the_high_watermark_never_points_behind_the_end(bench: Workbench) -> None:
    for _ in range(4):
        bench.append(b"x")
    bench.log.truncate_to(1)
    assert bench.log.high_watermark == bench.log.log_end_offset == 1


def test_a_retried_batch_whose_first_writing_was_cut_is_written(bench: Workbench) -> None:
    def send(sequence: int) -> AppendResult:
        return bench.append(b"x", producer_id=4, producer_epoch=0, base_sequence=sequence)

    for sequence in range(8):
        send(sequence)
    bench.log.truncate_to(5)
    assert send(2).duplicate
    assert [send(sequence).duplicate for sequence in (5, 6, 7)] == [False] * 3
    assert send(6).duplicate


def test_an_emptied_log_goes_on_at_another_offset(bench: Workbench) -> None:
    for _ in range(20):
        bench.append(b"x", producer_id=4, producer_epoch=0, base_sequence=_)
    for offset in (100, 40):
        bench.log.truncate_fully_and_start_at(offset)
        for _ in range(2):
            assert bench.log.log_start_offset == bench.log.log_end_offset == offset
            assert not len(bench.log.producers)
            assert bench.log.leader_epochs.entries == []
            bench.open()
        data = build_batch([(NOW, b"k", b"new", ())], base_offset=offset, leader_epoch=7)
        assert bench.log.append_as_follower(data, NOW) == offset + 1
        assert bench.values() == [(offset, b"new")]
        assert bench.log.leader_epochs.entries == [(7, offset)]


def test_an_empty_log_can_begin_in_the_midst_of_a_batch(bench: Workbench) -> None:
    """DeleteRecords can set any start offset."""
    bench.log.truncate_fully_and_start_at(12)
    rows = [(NOW, b"k", b"%d" % number, ()) for number in range(5)]
    bench.log.append_as_follower(build_batch(rows, base_offset=10, leader_epoch=2), NOW)
    assert bench.log.log_start_offset == 12
    assert bench.values() == [(12, b"2"), (13, b"3"), (14, b"4")]
    bench.open()
    assert bench.values() == [(12, b"2"), (13, b"3"), (14, b"4")]


def test_what_a_leader_sends_is_checked(bench: Workbench) -> None:
    first = build_batch([(NOW, b"k", b"0", ())], base_offset=0, leader_epoch=0)
    second = build_batch([(NOW, b"k", b"1", ())], base_offset=1, leader_epoch=0)
    damaged = bytearray(second)
    damaged[-2] ^= 1
    log = bench.log
    assert log.append_as_follower(first + second[:30], NOW) == 1
    for wrong in (b"", second[:30], first, damaged, second + second):
        with pytest.raises(CorruptMessage):
            log.append_as_follower(wrong, NOW)
        assert log.log_end_offset == 1
    # Compaction leaves gaps.
    gap = build_batch([(NOW, b"k", b"7", ())], base_offset=7, leader_epoch=3)
    assert log.append_as_follower(second + gap, NOW) == 8
    assert bench.values() == [(0, b"0"), (1, b"1"), (7, b"7")]
    assert log.leader_epochs.entries == [(0, 0), (3, 7)]
