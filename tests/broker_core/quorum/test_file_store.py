from __future__ import annotations

import errno
import os
import random
import re
from pathlib import Path

import pytest

from broker_core.environment import Buffer, Environment, SystemClock, SystemDisk
from broker_core.errors import KafkaStorageError
from broker_core.quorum.entries import Entry, EntryKind, EpochEnd, ReplicaKey, Snapshot
from broker_core.quorum.file_store import FileElectionStore, FileMetadataLog
from broker_core.quorum.replica import QuorumReplica
from broker_core.quorum.settings import QuorumSettings
from broker_core.quorum.storage import Election, MetadataLog

ENVIRONMENT = Environment.real()
VOTERS = frozenset({ReplicaKey(1, ""), ReplicaKey(2, "x")})


def opened(directory: Path, *, is_only_voter: bool = False) -> FileMetadataLog:
    return FileMetadataLog(directory, ENVIRONMENT, is_only_voter=is_only_voter)


def election_store(directory: Path, *, is_only_voter: bool = False) -> FileElectionStore:
    return FileElectionStore(directory, ENVIRONMENT, is_only_voter=is_only_voter)


def entry(epoch: int, value: bytes = b"v") -> Entry:
    return Entry(epoch, EntryKind.DATA, value)


class Model:
    """The simplest model of a log's content."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []

    @property
    def start(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.end_offset

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    def truncate(self, end: int) -> None:
        del self.entries[end - self.start :]

    def install(self, snapshot: Snapshot) -> None:
        last = snapshot.end_offset - 1 - self.start
        continues = 0 <= last < len(self.entries) and self.entries[last].epoch == snapshot.epoch
        self.entries = self.entries[last + 1 :] if continues else []
        self.snapshot = snapshot

    def contents(self) -> tuple[object, ...]:
        before = 0 if self.snapshot is None else self.snapshot.epoch
        epochs = [before, *(each.epoch for each in self.entries)]

        def end_of_epoch(epoch: int) -> EpochEnd:
            at = max((at for at, found in enumerate(epochs) if found <= epoch), default=0)
            return EpochEnd(epochs[at], self.start + at)

        return (
            self.start,
            self.end,
            self.end,
            epochs[-1],
            self.snapshot,
            tuple(self.entries),
            [end_of_epoch(epoch) for epoch in range(8)],
        )


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
    store = election_store(tmp_path)
    assert store.load() == Election(0, None)
    store.save(Election(7, ReplicaKey(2, "d")))
    assert election_store(tmp_path).load() == Election(7, ReplicaKey(2, "d"))


def test_a_vote_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "quorum-state").write_bytes(b"[")
    with pytest.raises(
        KafkaStorageError, match=r"quorum-state: is damaged .* majority of the other"
    ):
        election_store(tmp_path).load()
    (tmp_path / "quorum-state").unlink()
    (tmp_path / "entries-00000000000000000000").write_bytes(b"x")
    with pytest.raises(KafkaStorageError, match=r"quorum-state: is missing"):
        election_store(tmp_path).load()


@pytest.mark.parametrize("content", [b"[", None], ids=["damaged", "missing"])
def test_an_only_voter_goes_on_without_its_vote(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    log = opened(tmp_path)
    log.append([entry(7)])
    log.flush()
    if content is not None:
        (tmp_path / "quorum-state").write_bytes(content)
    only = ReplicaKey(1, "")
    replica = QuorumReplica(
        only,
        log,
        election_store(tmp_path, is_only_voter=True),
        frozenset({only}),
        QuorumSettings(),
        random.Random(1),
        0.0,
    )
    assert "quorum-state" in caplog.text
    while not replica.is_leader:
        replica.tick(replica.next_deadline())
    assert [each.epoch for each in log.read(0, 10)] == [7, 8]


@pytest.mark.parametrize("seed", range(6))
def test_the_files_hold_what_was_put_into_them(tmp_path: Path, seed: int) -> None:
    """Random steps, with occasional restarts."""
    chance = random.Random(seed)
    model, log, epoch = Model(), opened(tmp_path), 1
    for _ in range(60):
        match chance.randrange(5):
            case 0 | 1:
                epoch += chance.randrange(2)
                entries = [entry(epoch, chance.randbytes(9)) for _ in range(chance.randint(1, 5))]
                model.entries += entries
                log.append(entries)
                log.flush()
            case 2 if model.entries:
                end = chance.randint(model.start, model.end)
                model.truncate(end)
                log.truncate(end)
            case 3:
                end = chance.randint(model.start + 1, model.end + 3)
                taken = Snapshot(end, epoch, VOTERS, chance.randbytes(20))
                model.install(taken)
                log.install(taken)
            case 4:
                log.close()
                log = opened(tmp_path)
        assert contents(log) == model.contents()


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


@pytest.mark.parametrize("byte", [0, 5, 9, 15])
def test_damage_before_later_entries_is_refused(tmp_path: Path, byte: int) -> None:
    log = opened(tmp_path)
    for value in (b"first", b"second", b"third"):
        log.append([entry(1, value)])
        log.flush()
    log.close()
    (path,) = tmp_path.glob("entries-*")
    whole = path.read_bytes()
    data = bytearray(whole)
    data[whole.index(b"second") - 14 + byte] ^= 1
    path.write_bytes(data)
    with pytest.raises(KafkaStorageError, match=r"offset 1 .* is damaged"):
        opened(tmp_path)
    assert path.read_bytes() == data
    path.write_bytes(whole)
    assert opened(tmp_path).end_offset == 3


def test_what_was_never_durable_may_be_torn_in_the_middle(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append([entry(1, b"durable")])
    log.flush()
    log.append([entry(1, b"torn")])
    log.append([entry(1, b"whole")])
    log.close()
    (path,) = tmp_path.glob("entries-*")
    path.write_bytes(path.read_bytes().replace(b"torn", b"\0\0\0\0"))
    assert opened(tmp_path).read(0, 10) == (entry(1, b"durable"),)


def test_a_log_continues_after_a_truncation_and_a_restart(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for value in (b"a", b"b", b"c"):
        log.append([entry(1, value)])
        log.flush()
    log.truncate(1)
    log.append([entry(2, b"d")])
    log.flush()
    log.close()
    again = opened(tmp_path)
    again.append([entry(2, b"e")])
    again.close()
    expected = (entry(1, b"a"), entry(2, b"d"), entry(2, b"e"))
    assert opened(tmp_path).read(0, 10) == expected


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


class FullDisk(SystemDisk):
    """A disk that has no room for files of these names."""

    def __init__(self) -> None:
        self.refused = re.compile("(?!)")

    def replace(self, path: Path, data: Buffer) -> None:
        if self.refused.match(path.name):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        super().replace(path, data)


def test_a_snapshot_without_room_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    disk = FullDisk()
    log = FileMetadataLog(tmp_path, Environment(SystemClock(), disk), is_only_voter=True)
    log.append([entry(1), entry(1), entry(2)])
    log.flush()
    before = contents(log)
    disk.refused = re.compile("snapshot")
    with pytest.raises(OSError, match="No space left"):
        log.install(Snapshot(2, 1, VOTERS, b"state"))
    assert contents(log) == before
    log.append([entry(3)])
    log.flush()
    assert opened(tmp_path).end_offset == 4


def test_a_log_goes_on_in_a_file_that_cannot_be_shortened(tmp_path: Path) -> None:
    disk = FullDisk()
    environment = Environment(SystemClock(), disk)
    model = Model()
    log: MetadataLog = FileMetadataLog(tmp_path, environment, is_only_voter=True)

    def append(*entries: Entry) -> None:
        model.entries += entries
        log.append(entries)
        log.flush()

    append(entry(1), entry(1), entry(2))
    disk.refused = re.compile("entries-")
    for end_offset, epoch in ((2, 1), (3, 2), (5, 2)):
        snapshot = Snapshot(end_offset, epoch, VOTERS, b"state")
        model.install(snapshot)
        log.install(snapshot)
        assert contents(log) == model.contents()
        append(entry(2), entry(2, b"cut off"))
        model.truncate(model.end - 1)
        log.truncate(log.end_offset - 1)
        assert contents(log) == model.contents()
        # A start has no room either.
        log = FileMetadataLog(tmp_path, environment, is_only_voter=True)
        assert contents(log) == model.contents()
        append(entry(2))
    assert [path.name for path in tmp_path.glob("entries-*")] == [f"entries-{0:020d}"]
    log = opened(tmp_path)
    assert contents(log) == model.contents()
    assert [path.name for path in tmp_path.glob("entries-*")] == [f"entries-{5:020d}"]


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


def test_a_log_that_was_told_of_no_news_is_whole_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened(tmp_path)
    log.append([entry(1)])
    log.flush()
    size = (tmp_path / "entries-00000000000000000000").stat().st_size
    log.append([])
    log.flush()
    log.close()
    assert (tmp_path / "entries-00000000000000000000").stat().st_size == size
    assert opened(tmp_path).end_offset == 1
    assert not caplog.records


def _filled(directory: Path, *, with_snapshot: bool) -> list[int]:
    """Write five entries, with a snapshot of the first two; return the sizes after each entry."""
    log = opened(directory)
    sizes = []
    for number in range(5):
        log.append([entry(1, b"%d" % number)])
        log.flush()
        (path,) = directory.glob("entries-*")
        sizes.append(path.stat().st_size)
        if number == 1 and with_snapshot:
            log.install(Snapshot(2, 1, VOTERS, b"state"))
    log.close()
    return sizes


@pytest.mark.parametrize("with_snapshot", [False, True])
@pytest.mark.parametrize("damage", ["at a frame's end", "within a frame", "empty", "missing"])
def test_entries_that_were_durable_and_are_gone_are_missed(
    tmp_path: Path, damage: str, with_snapshot: bool
) -> None:
    sizes = _filled(tmp_path, with_snapshot=with_snapshot)
    (path,) = tmp_path.glob("entries-*")
    whole = path.read_bytes()
    end = {"at a frame's end": 3, "within a frame": 4}.get(damage, 2 if with_snapshot else 0)
    if damage == "missing":
        path.unlink()
    else:
        size = {"at a frame's end": sizes[2], "within a frame": sizes[4] - 1, "empty": 0}[damage]
        path.write_bytes(whole[:size])
    left = {each: each.read_bytes() for each in tmp_path.iterdir()}
    said = rf"entries at the offsets {end} to 4 are missing.*put a copy of {tmp_path} back.*remove"
    with pytest.raises(KafkaStorageError, match=said):
        opened(tmp_path, is_only_voter=True)
    with pytest.raises(KafkaStorageError, match="majority of the other controllers"):
        opened(tmp_path)
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == left
    path.write_bytes(whole)
    log = opened(tmp_path, is_only_voter=True)
    assert log.end_offset == 5
    log.close()
    # As the error advises who has no copy.
    path.write_bytes(b"")
    (tmp_path / "durable-end").unlink()
    assert opened(tmp_path, is_only_voter=True).end_offset == (2 if with_snapshot else 0)


def test_entries_that_were_cut_by_decision_are_not_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened(tmp_path)
    log.append([entry(1) for _ in range(9)])
    log.flush()
    log.truncate(7)
    log.close()
    log = opened(tmp_path)
    log.install(Snapshot(6, 2, VOTERS, b"of another leader"))
    assert log.end_offset == 6
    log.close()
    assert opened(tmp_path).end_offset == 6
    assert not caplog.records


def test_a_damaged_mark_of_the_durable_end_is_named_and_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _filled(tmp_path, with_snapshot=False)
    mark = tmp_path / "durable-end"
    right = mark.read_bytes()
    mark.write_bytes(bytes([right[0] ^ 1, *right[1:]]))
    opened(tmp_path).close()
    assert f"{mark} is damaged" in caplog.text
    assert mark.read_bytes() == right
