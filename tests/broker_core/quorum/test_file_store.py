from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker_core.environment import Environment
from broker_core.errors import KafkaStorageError
from broker_core.quorum.entries import Entry, EntryKind, ReplicaKey, Snapshot
from broker_core.quorum.file_store import FileElectionStore, FileMetadataLog
from broker_core.quorum.storage import Election, MetadataLog
from tests.simulation.quorum_disk import Disk

ENVIRONMENT = Environment.real()
VOTERS = frozenset({ReplicaKey(1, ""), ReplicaKey(2, "x")})


def opened(directory: Path) -> FileMetadataLog:
    return FileMetadataLog(directory, ENVIRONMENT)


def entry(epoch: int, value: bytes = b"v") -> Entry:
    return Entry(epoch, EntryKind.DATA, value)


def contents(log: MetadataLog) -> tuple[object, ...]:
    return (
        log.start_offset,
        log.flushed_offset,
        log.end_offset,
        log.last_epoch,
        log.snapshot,
        log.read(log.start_offset, 1000),
        [log.end_of_epoch(epoch) for epoch in range(8)],
    )


def test_the_vote_is_there_after_a_restart(tmp_path: Path) -> None:
    store = FileElectionStore(tmp_path, ENVIRONMENT)
    assert store.load() == Election(0, None)
    store.save(Election(7, ReplicaKey(2, "d")))
    assert FileElectionStore(tmp_path, ENVIRONMENT).load() == Election(7, ReplicaKey(2, "d"))


def test_a_vote_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "quorum-state").write_bytes(b"[")
    with pytest.raises(KafkaStorageError):
        FileElectionStore(tmp_path, ENVIRONMENT).load()


@pytest.mark.parametrize("seed", range(6))
def test_the_files_hold_what_the_simulated_disk_holds(tmp_path: Path, seed: int) -> None:
    """The simulator's disk is the reference: any steps, and a restart now and then."""
    chance = random.Random(seed)
    model, log, epoch = Disk(chance), opened(tmp_path), 1
    for _ in range(60):
        both: tuple[MetadataLog, MetadataLog] = model, log
        match chance.randrange(5):
            case 0 | 1:
                epoch += chance.randrange(2)
                entries = [entry(epoch, chance.randbytes(9)) for _ in range(chance.randint(1, 5))]
                for each in both:
                    each.append(entries)
                    each.flush()
            case 2 if model.end_offset > model.start_offset:
                end = chance.randint(model.start_offset, model.end_offset)
                for each in both:
                    each.truncate(end)
            case 3:
                end = chance.randint(model.start_offset + 1, model.end_offset + 3)
                taken = Snapshot(end, epoch, VOTERS, chance.randbytes(20))
                for each in both:
                    each.install(taken)
            case 4:
                log.close()
                log = opened(tmp_path)
        assert contents(log) == contents(model)


@pytest.mark.parametrize("cut", [1, 5, 9, 13])
def test_what_was_being_written_when_the_power_went_is_cut_off(tmp_path: Path, cut: int) -> None:
    log = opened(tmp_path)
    log.append([entry(1), entry(1)])
    log.close()
    (path,) = tmp_path.glob("entries-*")
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    again = opened(tmp_path)
    assert again.read(0, 10) == (entry(1),)
    again.append([entry(2)])
    again.close()
    assert opened(tmp_path).read(0, 10) == (entry(1), entry(2))


def test_a_snapshot_whose_entries_were_not_apart_yet_takes_their_place(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([entry(1), entry(1), entry(2)])
    log.flush()
    (path,) = tmp_path.glob("entries-*")
    before = path.read_bytes()
    log.install(Snapshot(2, 1, VOTERS, b"state"))
    log.close()
    for each in tmp_path.glob("entries-*"):
        each.unlink()
    path.write_bytes(before)
    again = opened(tmp_path)
    assert (again.start_offset, again.read(2, 10)) == (2, (entry(2),))
    assert again.snapshot == Snapshot(2, 1, VOTERS, b"state")


def test_a_damaged_snapshot_is_an_error(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([entry(1)])
    log.install(Snapshot(1, 1, VOTERS, b"state"))
    log.close()
    data = bytearray((tmp_path / "snapshot").read_bytes())
    data[-1] ^= 1
    (tmp_path / "snapshot").write_bytes(data)
    with pytest.raises(KafkaStorageError):
        opened(tmp_path)


def test_large_entries_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([entry(1, bytes(3 << 20)) for _ in range(3)])
    assert len(log.read(0, 10)) == 1
