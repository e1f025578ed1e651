"""Loading a log from its files: after a clean shutdown, after kill -9, after damage."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.environment import Environment, SystemDisk
from broker_core.errors import KafkaStorageError, OffsetOutOfRange
from broker_core.log import Log, LogConfig
from broker_core.log.checkpoints import (
    CLEAN_SHUTDOWN,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    load_offset,
)
from broker_core.protocol.record_reader import iterate_records
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.log.support import NOW, Workbench


def fill(bench: Workbench, count: int, size: int = 50) -> list[tuple[int, bytes | None]]:
    for i in range(count):
        bench.append(
            b"%d" % i + b"x" * size,
            timestamp=NOW + i,
            producer_id=5,
            producer_epoch=0,
            base_sequence=i,
        )
    return bench.values()


@pytest.mark.parametrize("count", [0, 1, 3, 40])
def test_a_log_is_the_same_after_closing_and_after_a_crash(bench: Workbench, count: int) -> None:
    values = fill(bench, count)
    for clean in (True, False, True):
        if clean:
            bench.log.close()
        assert bench.open().bytes_cut == 0
        assert bench.values() == values
        assert bench.log.recovery_point == bench.log.log_end_offset == count
    bench.append(b"next")
    assert bench.values() == [*values, (count, b"next")]


@pytest.mark.parametrize("batches", [1, 2, 9])
def test_a_tail_torn_at_any_byte_is_cut_and_the_log_goes_on(
    bench: Workbench, batches: int, tmp_path: Path
) -> None:
    values = fill(bench, batches)
    last = bench.log.segments[-1]
    *_, header = scan_batches(last.path.read_bytes())[0]
    for cut in range(header.size):
        copy = Workbench.__new__(Workbench)
        copy.__dict__.update(bench.__dict__)
        copy.directory = tmp_path / f"cut-{cut}"
        shutil.copytree(bench.directory, copy.directory)
        torn = copy.directory / last.path.name
        os.truncate(torn, torn.stat().st_size - header.size + cut)
        copy.open()
        assert copy.values() == values[:-1]
        assert copy.log.bytes_cut == cut
        assert torn.stat().st_size == copy.log.segments[-1].size
        # The producer got no acknowledgement and sends the batch again.
        again = copy.append(b"again", producer_id=5, producer_epoch=0, base_sequence=batches - 1)
        assert (again.base_offset, again.duplicate) == (batches - 1, False)
        shutil.rmtree(copy.directory)


@given(st.data())
@settings(max_examples=60)
def test_damage_after_a_crash_leaves_a_sound_beginning(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any bytes of any unsynced segment may be damaged: a prefix of the log remains."""
    bench = Workbench(tmp_path_factory.mktemp("log"), segment_bytes=400, index_interval_bytes=100)
    values = fill(bench, data.draw(st.integers(1, 12)), 20)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([segment.path for segment in bench.log.segments]))
        content = bytearray(path.read_bytes())
        if data.draw(st.booleans()):
            del content[data.draw(st.integers(0, len(content))) :]
        else:
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content or b"\0")
    bench.open()
    kept = bench.values()
    assert kept == values[: len(kept)]
    end = bench.log.log_end_offset
    assert end == len(kept)
    bench.append(b"next")
    assert bench.values() == [*kept, (end, b"next")]


def test_a_hole_between_segments_cuts_what_lies_behind_it(bench: Workbench) -> None:
    values = fill(bench, 30)
    second, third = bench.log.segments[1:3]
    damaged = bytearray(second.path.read_bytes())
    damaged[-1] ^= 1
    second.path.write_bytes(damaged)
    bench.open()
    assert third.path.name not in bench.files(".log")
    assert bench.values() == values[: bench.log.log_end_offset]
    assert second.base_offset < bench.log.log_end_offset < third.base_offset


def test_a_segment_that_lost_whole_batches_at_its_end_cuts_what_lies_behind_it(
    bench: Workbench,
) -> None:
    """An unsynced file may be shorter by any number of bytes, by chance by a whole batch."""
    values = fill(bench, 30)
    second, third = bench.log.segments[1:3]
    content = second.path.read_bytes()
    batch = len(content) // (third.base_offset - second.base_offset)
    second.path.write_bytes(content[:-batch])
    bench.open()
    assert bench.log.log_end_offset == third.base_offset - 1
    assert bench.values() == values[: third.base_offset - 1]
    assert third.path.name not in bench.files(".log")


def test_what_lies_before_the_recovery_point_is_not_read_again(bench: Workbench) -> None:
    fill(bench, 30)
    bench.log.flush()
    assert load_offset(SystemDisk(), bench.directory, RECOVERY_POINT).offset == 30
    fill_from = bench.log.segments[0].path
    damaged = bytearray(fill_from.read_bytes())
    damaged[-1] ^= 1
    fill_from.write_bytes(damaged)
    bench.open()
    assert bench.log.log_end_offset == 30


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_built_by_recovery_are_those_that_were_written(
    bench: Workbench, suffix: str
) -> None:
    fill(bench, 60)
    bench.log.close()
    written = {name: (bench.directory / name).read_bytes() for name in bench.files(suffix)}
    assert len(written) > 5
    assert max(map(len, written.values())) > 24
    for name in (*written, CLEAN_SHUTDOWN, RECOVERY_POINT):
        (bench.directory / name).unlink()
    bench.open()
    bench.log.close()
    assert {name: (bench.directory / name).read_bytes() for name in bench.files(suffix)} == written


@pytest.mark.parametrize("content", [None, b"", b"\0" * 16, b"\xff" * 7])
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_lost_or_damaged_helper_files_do_not_harm(
    bench: Workbench, suffix: str, content: bytes | None
) -> None:
    values = fill(bench, 30)
    bench.log.close()
    for name in bench.files(suffix):
        if content is None:
            (bench.directory / name).unlink()
        else:
            (bench.directory / name).write_bytes(content)
    bench.open()
    assert bench.values() == values
    assert bench.append(b"x", producer_id=5, producer_epoch=0, base_sequence=30).base_offset == 30
    assert bench.log.offset_for_timestamp(NOW) == (NOW, 0)


def test_a_mark_of_a_clean_shutdown_that_does_not_fit_is_not_believed(bench: Workbench) -> None:
    values = fill(bench, 3)
    bench.log.close()
    last = bench.log.segments[-1].path
    last.write_bytes(last.read_bytes() + b"torn")
    bench.open()
    assert bench.log.bytes_cut == 4
    assert bench.values() == values


def test_deleted_records_stay_deleted_though_the_tail_is_lost(bench: Workbench) -> None:
    fill(bench, 10)
    bench.log.delete_records(8)
    for segment in bench.log.segments[1:]:
        segment.path.unlink()
    bench.open()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (8, 8)
    assert bench.append(b"next").base_offset == 8
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(7, 100)
    assert load_offset(SystemDisk(), bench.directory, LOG_START_OFFSET).offset == 8


def test_rubbish_of_an_interrupted_step_is_removed(bench: Workbench) -> None:
    values = fill(bench, 5)
    bench.log.close()
    rubbish = [
        f"{99:020d}.index",
        f"{0:020d}.log.deleted",
        f"{0:020d}.log.cleaned",
        "recovery-point.tmp",
    ]
    for name in rubbish:
        (bench.directory / name).write_bytes(b"rubbish")
    bench.open()
    assert bench.values() == values
    assert not {path.name for path in bench.directory.iterdir()} & set(rubbish)


def test_files_of_others_are_left_alone(bench: Workbench) -> None:
    fill(bench, 1)
    for name in ("notes.log", "partition.metadata"):
        (bench.directory / name).write_bytes(b"version: 0")
    bench.open()
    assert bench.values()
    assert (bench.directory / "partition.metadata").exists()


def test_leader_epochs_are_read_from_the_batches(bench: Workbench) -> None:
    for epoch in (0, 3, 3, 8):
        data = bench.append(b"x")
        assert not data.duplicate
        from broker_core.protocol.batch_builder import build_batch

        bench.log.append(build_batch([(NOW, b"k", b"y", [])]), leader_epoch=epoch, now_ms=NOW)
    entries = bench.log.leader_epochs.entries
    assert not (bench.directory / "leader-epoch-checkpoint").exists()  # a flush writes it
    bench.open()
    assert bench.log.leader_epochs.entries == entries == [(0, 0), (3, 3), (8, 7)]


_WRITER = """
import sys, time
from pathlib import Path
from broker_core.environment import Environment, SystemDisk
from broker_core.log import Log, LogConfig
from broker_core.protocol.batch_builder import build_batch

config = LogConfig(segment_bytes=20_000, index_interval_bytes=500)
log = Log.open(Path(sys.argv[1]), "location", 0, config, Environment.real())
now = int(time.time() * 1000)
sequence = log.log_end_offset
while True:
    for _ in range(5):
        records = [(now, b"k", b"%d" % (sequence + i) + b"x" * 90, []) for i in range(7)]
        batch = build_batch(
            records, producer_id=5, producer_epoch=0, base_sequence=sequence
        )
        assert log.append(batch, leader_epoch=0, now_ms=now).base_offset == sequence
        sequence += 7
    print(log.flush(), flush=True)
"""


def test_nothing_that_was_flushed_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "location-0"
    acknowledged = 0
    for round_number in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(directory)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        try:
            # A different moment in every round: some processes die in the middle of a roll.
            for _ in range(40 + 17 * round_number):
                line = writer.stdout.readline()
                assert line
                acknowledged = int(line)
        finally:
            writer.send_signal(signal.SIGKILL)
            # Lines that were written before the end are acknowledgements too.
            rest = writer.stdout.read().split("\n")[:-1]
            writer.stdout.close()
            writer.wait()
        acknowledged = int(rest[-1]) if rest else acknowledged
        log = Log.open(directory, "location", 0, LogConfig(), Environment.real())
        assert log.log_end_offset >= acknowledged
        offset = 0
        while data := log.read(offset, 100_000):
            for found, _, _, value, _ in iterate_records(data):
                assert found == offset
                assert value == b"%d" % offset + b"x" * 90
                offset += 1
        assert offset == log.log_end_offset
        # Their producer, which got no acknowledgement, sends the last batches again.
        producer = log.producers.get(5)
        assert producer is not None
        assert producer.batches[-1].last_offset == offset - 1
    assert acknowledged > 1000


def test_a_log_that_is_only_read_stays_as_it_was_closed(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    bench.append(b"a")
    bench.log.close()
    before = bench.disk.syncs
    for _ in range(3):
        bench.open()
        assert bench.values() == [(0, b"a")]
        bench.log.close()
    # A crash leaves nothing to recover either.
    bench.open()
    bench.open()
    assert bench.log.bytes_cut == 0
    assert bench.disk.syncs == before


def test_what_is_appended_to_a_log_that_was_closed_is_recovered(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    bench.append(b"a")
    bench.log.close()
    bench.open()
    bench.append(b"b")
    path = bench.log.segments[-1].path
    bench.open()
    assert bench.values() == [(0, b"a"), (1, b"b")]
    bench.append(b"c")
    with path.open("ab") as file:
        file.write(b"torn")
    bench.open()
    assert bench.log.bytes_cut == 4
    assert bench.values() == [(0, b"a"), (1, b"b"), (2, b"c")]


def _with_producers(bench: Workbench, count: int) -> None:
    for number in range(count):
        bench.append(b"%d" % number, producer_id=number + 1, producer_epoch=0, base_sequence=0)


def test_a_full_disk_leaves_no_piece_of_the_state_of_producers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Workbench(tmp_path)
    _with_producers(bench, 20)
    bench.disk.room = 200  # the indexes fit
    with pytest.raises(KafkaStorageError):
        bench.log.roll()
    assert bench.files(".snapshot") == []
    bench.disk.room = None
    bench.open()
    assert len(bench.log.producers) == 20
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_damaged_states_of_producers_are_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Workbench(tmp_path)
    for _ in range(5):
        bench.append(b"x")
        bench.log.roll()
    bench.log.flush()
    _with_producers(bench, 3)
    names = bench.files(".snapshot")
    for name in names:
        (bench.directory / name).write_bytes(b"")
    bench.open()
    assert len(bench.log.producers) == 3
    (said,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert said.startswith(f"{bench.directory / names[-1]} is damaged, and 4 older ones; ")
