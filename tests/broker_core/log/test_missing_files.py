"""Logs of which files are gone or damaged: what is said, and which offsets come next."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker_core.environment import SystemDisk
from broker_core.errors import CorruptMessage, OffsetOutOfRange
from broker_core.log.log import Log
from broker_core.log.verification import Verified, verify_log
from broker_core.protocol.stored_batches import scan_batches
from tests.broker_core.log.support import NOW, Workbench

RECORDS = 40


@pytest.fixture
def filled(tmp_path: Path) -> Workbench:
    """Give a log of several segments, closed cleanly."""
    bench = Workbench(tmp_path, segment_bytes=1000, index_interval_bytes=200)
    for number in range(RECORDS):
        bench.append(b"%d" % number + b"x" * 50, timestamp=NOW + number)
    assert len(bench.log.segments) > 4
    bench.log.close()
    return bench


def remove(bench: Workbench, *numbers: int) -> None:
    """Remove all files of some segments."""
    segments = bench.files(".log")
    for number in numbers:
        stem = Path(segments[number]).stem
        for path in bench.directory.glob(f"{stem}.*"):
            path.unlink()


def reopen(bench: Workbench) -> Log:
    """Open the log as the only one that has its records."""
    log = bench.open()
    log.continue_behind_acknowledged()
    return log


def verified(bench: Workbench) -> Verified:
    outcome = verify_log(SystemDisk(), bench.directory, lambda _: None)
    assert outcome is not None
    return outcome


def test_missing_first_segments_are_named_once_with_their_offsets(
    filled: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    second = int(Path(filled.files(".log")[2]).stem)
    remove(filled, 0, 1)
    caplog.clear()
    log = reopen(filled)
    (said,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert said.startswith(f"location-0: offsets 0 to {second - 1} are lost: ")
    assert f"{second:020d}.log" in said
    assert (log.log_start_offset, log.log_end_offset) == (second, RECORDS)
    assert [offset for offset, _ in filled.values()] == list(range(second, RECORDS))
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 1000)
    (damage,) = verified(filled).damage
    assert f"offsets 0 to {second - 1} are lost" in damage.problem


def test_what_retention_deletes_is_not_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Workbench(tmp_path, segment_bytes=1000, retention_bytes=2000)
    for number in range(RECORDS):
        bench.append(b"%d" % number + b"x" * 50)
    assert bench.log.apply_retention(NOW) > 0
    start = bench.log.log_start_offset
    for clean in (True, False):
        if clean:
            bench.log.close()
        assert reopen(bench).log_start_offset == start > 0
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert verified(bench).damage == ()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("missing", ["all", "last"])
def test_offsets_never_begin_again_below_what_was_acknowledged(
    filled: Workbench, caplog: pytest.LogCaptureFixture, missing: str, is_clean: bool
) -> None:
    names = filled.files(".log")
    left = 0 if missing == "all" else int(Path(names[-1]).stem)
    remove(filled, *(range(len(names)) if missing == "all" else [len(names) - 1]))
    if not is_clean:
        (filled.directory / "clean-shutdown").unlink()
    log = reopen(filled)
    assert log.log_end_offset == RECORDS
    (said,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert said.startswith(f"location-0: offsets {left} to {RECORDS - 1} are lost: ")
    assert str(filled.directory) in said
    assert filled.append(b"new").base_offset == RECORDS
    before = filled.values()
    for clean in (False, True, False):
        if clean:
            filled.log.close()
        assert reopen(filled).log_end_offset == RECORDS + 1
        assert filled.values() == before
    assert filled.log.high_watermark == RECORDS + 1


def test_a_replica_is_left_to_get_again_what_it_has_lost(filled: Workbench) -> None:
    remove(filled, *range(len(filled.files(".log"))))
    log = filled.open()
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    log.truncate_to(0)
    log.continue_behind_acknowledged()
    assert log.log_end_offset == 0


def test_what_was_cut_off_with_its_batch_is_not_missed(tmp_path: Path) -> None:
    bench = Workbench(tmp_path)
    bench.append(b"a", b"b", b"c")
    bench.log.close()
    log = bench.open()
    log.truncate_to(1)  # the batch reaches beyond that
    assert log.log_end_offset == 0
    log.continue_behind_acknowledged()
    assert log.log_end_offset == 0


def test_what_is_appended_after_a_loss_is_checked_at_the_next_start(filled: Workbench) -> None:
    names = filled.files(".log")
    remove(filled, len(names) - 1)
    log = filled.open()
    kept = log.log_end_offset
    # These are below what was durable once, and are not durable themselves.
    for _ in range(3):
        assert filled.append(b"never synced" * 50).last_offset < RECORDS
    path = filled.directory / filled.files(".log")[-2]
    data = bytearray(path.read_bytes())
    data[-5:] = bytes(5)
    path.write_bytes(data)
    end = filled.open().log_end_offset
    assert kept <= end < kept + 3
    assert [offset for offset, _ in filled.values()] == list(range(end))


def test_a_reader_gets_over_what_is_lost_at_the_end(filled: Workbench) -> None:
    names = filled.files(".log")
    lost = int(Path(names[-1]).stem)
    remove(filled, len(names) - 1)
    log = reopen(filled)
    for offset in range(lost, RECORDS):
        assert log.read(offset, 1000) == b""
        (header,), _, problem = scan_batches(log.read_gap(offset, RECORDS))
        assert problem is None
        assert (header.base_offset, header.next_offset) == (offset, RECORDS)
        assert header.record_count == 0
    (header,), _, _ = scan_batches(log.read_gap(lost, lost + 1))
    assert header.next_offset == lost + 1
    for offset in (0, lost - 1, RECORDS):
        assert log.read_gap(offset, RECORDS) == b""
    filled.append(b"new")
    assert log.read_gap(lost, RECORDS + 1) == b""


def test_a_replica_takes_over_what_is_lost_and_keeps_it_after_a_crash(
    filled: Workbench, tmp_path: Path
) -> None:
    names = filled.files(".log")
    remove(filled, len(names) - 1)
    leader = reopen(filled)
    replica = Workbench(tmp_path / "replica")
    while replica.log.log_end_offset < RECORDS:
        offset = replica.log.log_end_offset
        data = leader.read(offset, 1000) or leader.read_gap(offset, RECORDS)
        replica.log.append_as_follower(data, NOW)
    filled.append(b"new")
    replica.log.append_as_follower(leader.read(RECORDS, 1000), NOW)
    replica.log.flush()
    assert replica.open().log_end_offset == RECORDS + 1
    assert replica.values() == filled.values()
    assert verified(replica).damage == ()


def test_a_replica_that_comes_late_to_lost_offsets_keeps_what_follows_after_a_crash(
    filled: Workbench, tmp_path: Path
) -> None:
    names = filled.files(".log")
    lost = int(Path(names[-1]).stem)
    remove(filled, len(names) - 1)
    leader = reopen(filled)
    filled.append(b"new")
    replica = Workbench(tmp_path / "replica")
    while replica.log.log_end_offset <= RECORDS:
        replica.log.append_as_follower(leader.read(replica.log.log_end_offset, 1000), NOW)
    replica.log.flush()
    assert replica.values() == filled.values()
    assert replica.open().log_end_offset == RECORDS + 1
    assert replica.values() == filled.values()
    assert [offset for offset, _ in replica.values()] == [*range(lost), RECORDS]


GARBAGE = [b"\0" * 100, b"\xff" * 100, bytes(range(100, 200)), b"\x00\x00\x00\x7f" * 25]


@pytest.mark.parametrize("garbage", GARBAGE, ids=["zeros", "ones", "numbers", "lengths"])
@pytest.mark.parametrize("from_offset", ["before", "within"])
def test_damage_in_the_middle_is_an_error_that_is_logged_once(
    filled: Workbench, caplog: pytest.LogCaptureFixture, garbage: bytes, from_offset: str
) -> None:
    base, following = (int(Path(name).stem) for name in filled.files(".log")[1:3])
    path = filled.directory / f"{base:020d}.log"
    data = bytearray(path.read_bytes())
    position = scan_batches(data)[0][3].position
    data[position : position + len(garbage)] = garbage
    path.write_bytes(data)
    log = reopen(filled)
    caplog.clear()
    offset = base if from_offset == "before" else base + 3
    for _ in range(3):
        reached = offset
        with pytest.raises(CorruptMessage):
            while True:
                read = log.read(reached, 100)
                assert read
                reached += 1
        assert reached == base + 3
    (said,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert said.startswith(f"{path}, byte {position}: ")
    # What lies behind can be read.
    assert log.read(following, 1000)
    (damage,) = verified(filled).damage
    assert (damage.file, damage.position, damage.harmless) == (path, position, False)


def test_a_sound_log_and_a_torn_end_are_no_damage(filled: Workbench) -> None:
    outcome = verified(filled)
    assert outcome.damage == ()
    assert (outcome.batches, outcome.segments) == (RECORDS, len(filled.files(".log")))
    (filled.directory / "clean-shutdown").unlink()
    last = filled.directory / filled.files(".log")[-1]
    with last.open("ab") as file:
        file.write(b"\0\0\0\0\0\0\0\x28\0\0\0\x50")
    (damage,) = verified(filled).damage
    assert damage.harmless


def test_a_log_that_is_compacted_while_it_is_verified_is_sound(tmp_path: Path) -> None:
    bench = Workbench(
        tmp_path, segment_bytes=1000, cleanup_policy="compact", min_cleanable_dirty_ratio=0.0
    )

    def fill(*keys: str) -> None:
        for key in keys:
            bench.append_records([(NOW, key.encode(), b"x" * 50, [])])
        bench.log.roll()
        bench.log.flush()

    fill(*(f"first {number}" for number in range(6)))
    for number in range(6):
        fill(f"{number}", *"abcdef")
    # Leaves small segments behind a large one; the next compaction joins them.
    bench.log.compact(NOW)
    fill(*"abcdef")
    before = bench.files(".log")

    def progress(_: int) -> None:
        if bench.files(".log") == before:
            bench.log.compact(NOW)

    outcome = verify_log(SystemDisk(), bench.directory, progress)
    assert len(bench.files(".log")) < len(before)
    assert outcome is not None
    assert outcome.damage == ()


def test_a_log_that_is_deleted_while_it_is_verified_is_left_out(filled: Workbench) -> None:
    log = reopen(filled)
    deleted = False

    def progress(_: int) -> None:
        nonlocal deleted
        if not deleted:
            deleted = True
            log.delete()

    assert verify_log(SystemDisk(), filled.directory, progress) is None
    assert verify_log(SystemDisk(), filled.directory, progress) is None


def read_all_sound(log: Log) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the offsets that can be read, and the ranges of those that cannot."""
    offsets: list[int] = []
    unreadable = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read_sound(offset, 200)
        assert read.next_offset > offset or read.headers
        offset = read.next_offset
        offsets += [each.base_offset for each in read.headers]
        if read.damage is not None:
            unreadable.append(read.damage[:2])
    return offsets, unreadable


@pytest.mark.parametrize("at", range(0, 130, 3))
def test_what_is_sound_is_read_whatever_byte_is_damaged(filled: Workbench, at: int) -> None:
    path = filled.directory / filled.files(".log")[1]
    base = int(path.stem)
    data = bytearray(path.read_bytes())
    second = scan_batches(data)[0][1]
    data[second.position + at % second.size] ^= 0x41
    path.write_bytes(data)
    offsets, unreadable = read_all_sound(reopen(filled))
    lost = sorted(set(range(RECORDS)) - set(offsets))
    # The epoch and the magic byte of a header, and the batch's offset, are not covered by its CRC.
    assert base + 1 not in lost or unreadable
    # As far as the next entry of the index, where the length is damaged.
    assert len(lost) <= 4
    assert offsets == sorted(set(offsets))


def test_several_places_of_damage_are_passed_over(filled: Workbench) -> None:
    lost = []
    for name in filled.files(".log")[1:4]:
        path = filled.directory / name
        data = bytearray(path.read_bytes())
        header = scan_batches(data)[0][2]
        data[header.position + header.size - 1] ^= 1
        path.write_bytes(data)
        lost.append(header.base_offset)
    offsets, unreadable = read_all_sound(reopen(filled))
    assert offsets == [offset for offset in range(RECORDS) if offset not in lost]
    assert unreadable == [(offset, offset + 1) for offset in lost]
