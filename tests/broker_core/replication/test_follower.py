"""Followers with real logs fetch from a leader's log and end with the same batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core import errors
from broker_core.log import Log
from broker_core.protocol.batch_builder import build_batch
from broker_core.replication.follower import (
    Fetched,
    FetchPosition,
    Outcome,
    PartitionFollower,
)
from tests.broker_core.log.support import NOW, Workbench


def append(log: Log, epoch: int, *values: str) -> None:
    rows = [(NOW, b"k", value.encode(), ()) for value in values]
    log.append(build_batch(rows), leader_epoch=epoch, now_ms=NOW)


def answer(leader: Log, asked: FetchPosition, high_watermark: int, size: int = 400) -> Fetched:
    """Return a leader's response; see `ReplicatedPartition.read_as_leader`."""
    start = leader.log_start_offset
    if asked.last_epoch >= 0:
        epoch, end = leader.leader_epochs.end_offset(asked.last_epoch, leader.log_end_offset)
        if epoch >= 0 and (epoch < asked.last_epoch or end < asked.offset):
            return Fetched(0, high_watermark, start, (epoch, end), b"")
    try:
        data = leader.read(asked.offset, size)
    except errors.OffsetOutOfRange as error:
        return Fetched(error.code, -1, start, None, b"")
    return Fetched(0, high_watermark, start, None, data)


def follow(follower: PartitionFollower, leader: Log, high_watermark: int) -> list[Outcome]:
    """Fetch until there is nothing new; return the outcomes."""
    outcomes = []
    while True:
        asked = follower.position()
        outcomes.append(follower.take(asked, answer(leader, asked, high_watermark), NOW))
        if outcomes[-1] is Outcome.NOTHING:
            return outcomes
        assert len(outcomes) < 100


def bench_in(folder: Path) -> Workbench:
    return Workbench(folder, segment_bytes=600, index_interval_bytes=100)


def raw(log: Log) -> bytes:
    parts = []
    offset = log.log_start_offset
    while data := log.read(offset, 1):
        parts.append(data)
        offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
    return b"".join(parts)


def test_a_follower_gets_everything_and_knows_what_is_committed(tmp_path: Path) -> None:
    leader, copy = bench_in(tmp_path / "1"), bench_in(tmp_path / "2")
    for number in range(20):
        append(leader.log, number // 7, f"{number}")
    follower = PartitionFollower(copy.log, 1, 2, 0)
    outcomes = follow(follower, leader.log, 15)
    assert set(outcomes[:-1]) == {Outcome.APPENDED}
    assert raw(copy.log) == raw(leader.log)
    assert copy.log.leader_epochs.entries == leader.log.leader_epochs.entries
    assert follower.high_watermark == copy.log.high_watermark == 15


def test_the_high_watermark_never_goes_back_nor_beyond_the_log(tmp_path: Path) -> None:
    leader, copy = bench_in(tmp_path / "1"), bench_in(tmp_path / "2")
    append(leader.log, 0, "a", "b")
    follower = PartitionFollower(copy.log, 1, 0, 0)
    follow(follower, leader.log, 100)
    assert follower.high_watermark == 2
    follow(follower, leader.log, 1)
    assert follower.high_watermark == 2


def test_an_outdated_response_tells_a_high_watermark_and_nothing_else(tmp_path: Path) -> None:
    leader, copy = bench_in(tmp_path / "1"), bench_in(tmp_path / "2")
    append(leader.log, 0, "a")
    append(leader.log, 0, "b")
    follower = PartitionFollower(copy.log, 1, 0, 0)
    asked = follower.position()
    old = answer(leader.log, asked, 1)
    follow(follower, leader.log, 0)
    assert follower.take(asked, old, NOW) is Outcome.NOTHING
    assert (copy.log.log_end_offset, follower.high_watermark) == (2, 1)
    # Nothing is known of a log that has been cut since.
    copy.log.truncate_to(1)
    ahead = FetchPosition(0, 2, 0, 0)
    assert follower.take(ahead, answer(leader.log, ahead, 2), NOW) is Outcome.NOTHING
    for refusal in (Fetched(1, 2, 0, None, b""), Fetched(0, 2, 0, (0, 0), b"")):
        assert follower.take(asked, refusal, NOW) is Outcome.NOTHING
    other_epoch = asked._replace(leader_epoch=1)
    assert follower.take(other_epoch, answer(leader.log, asked, 2), NOW) is Outcome.NOTHING
    assert (copy.log.log_end_offset, follower.high_watermark) == (1, 1)


def test_two_fast_changes_of_leader_leave_no_divergence(tmp_path: Path) -> None:
    """KIP-279: both logs have records of epochs that the other one does not know."""
    one, two = bench_in(tmp_path / "1"), bench_in(tmp_path / "2")
    for each in (one, two):
        append(each.log, 0, "both")
    append(one.log, 1, "one alone")
    append(two.log, 2, "two alone")
    append(one.log, 3, "one again")
    follower = PartitionFollower(two.log, 1, 3, 0)
    assert Outcome.TRUNCATED in follow(follower, one.log, 0)
    assert raw(two.log) == raw(one.log)
    assert two.log.leader_epochs.entries == [(0, 0), (1, 1), (3, 2)]


def test_what_the_leader_has_deleted_is_given_up(tmp_path: Path) -> None:
    leader, copy = bench_in(tmp_path / "1"), bench_in(tmp_path / "2")
    append(copy.log, 0, "old")
    leader.log.truncate_fully_and_start_at(30)
    append(leader.log, 5, "new")
    follower = PartitionFollower(copy.log, 1, 5, 0)
    follow(follower, leader.log, 31)
    assert copy.values() == [(30, b"new")]
    assert follower.high_watermark == 31


def test_a_follower_deletes_with_its_leader(tmp_path: Path) -> None:
    leader, copy = bench_in(tmp_path / "1"), bench_in(tmp_path / "2")
    for number in range(4):
        append(leader.log, 0, f"{number}")
    leader.log.delete_records(3)
    follower = PartitionFollower(copy.log, 1, 0, 0)
    follow(follower, leader.log, 2)
    assert copy.log.log_start_offset == 3
    leader.log.delete_records(4)
    follow(follower, leader.log, 4)
    assert copy.log.log_start_offset == 4


def test_answers_that_come_too_late_change_nothing(tmp_path: Path) -> None:
    leader, copy = bench_in(tmp_path / "1"), bench_in(tmp_path / "2")
    append(leader.log, 0, "a")
    append(leader.log, 0, "b")
    follower = PartitionFollower(copy.log, 1, 0, 0)
    asked = follower.position()
    late = answer(leader.log, asked, 2)
    follow(follower, leader.log, 2)
    assert follower.take(asked, late, NOW) is Outcome.NOTHING
    newer = PartitionFollower(copy.log, 3, 1, 2)
    asked = follower.position()
    assert newer.take(asked, Fetched(0, 2, 0, (0, 1), b""), NOW) is Outcome.NOTHING
    assert copy.log.log_end_offset == 2


@pytest.mark.parametrize(
    "error", [errors.NotLeaderOrFollower, errors.UnknownLeaderEpoch, errors.UnknownTopicId]
)
def test_a_leader_that_is_not_ready_is_asked_again(
    tmp_path: Path, error: type[errors.BrokerError]
) -> None:
    follower = PartitionFollower(bench_in(tmp_path).log, 1, 0, 0)
    refused = Fetched(error.code, -1, -1, None, b"")
    assert follower.take(follower.position(), refused, NOW) is Outcome.LATER


_EVENTS = st.lists(
    st.tuples(
        st.integers(0, 2),  # the leader
        st.integers(0, 3),  # number of batches that it writes
        st.lists(st.integers(0, 2), max_size=3),  # who fetches in the meantime
        st.integers(0, 3),  # how much they get
    ),
    min_size=1,
    max_size=12,
)


@given(_EVENTS)
@settings(max_examples=40)
def test_after_any_leaders_all_logs_become_the_last_leaders(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[int, int, list[int], int]]
) -> None:
    """However unclean the elections are, all logs are equal in the end."""
    folder = tmp_path_factory.mktemp("logs")
    benches = [bench_in(folder / str(number)) for number in range(3)]
    leader = 0
    for epoch, (leader, batches, fetchers, size) in enumerate(events):
        log = benches[leader].log
        for number in range(batches):
            append(log, epoch, f"{epoch}.{number}")
        for other in fetchers:
            if other == leader:
                continue
            follower = PartitionFollower(benches[other].log, leader, epoch, 0)
            for _ in range(size):
                asked = follower.position()
                follower.take(asked, answer(log, asked, 0, 1), NOW)
    last = benches[leader].log
    for number, bench in enumerate(benches):
        if number == leader:
            continue
        follow(PartitionFollower(bench.log, leader, len(events), 0), last, last.log_end_offset)
        assert raw(bench.log) == raw(last)
        assert bench.log.leader_epochs.entries == last.leader_epochs.entries
        bench.open()
        assert raw(bench.log) == raw(last)
        assert bench.log.leader_epochs.entries == last.leader_epochs.entries
