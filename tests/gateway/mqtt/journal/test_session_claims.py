"""Sessions that move between workers: claims, handovers, and the news of them in the log."""

from __future__ import annotations

import msgspec
import pytest

from gateway.mqtt.journal import journal as module
from gateway.mqtt.packets.packets import ReasonCode
from gateway.mqtt.sessions.handover import ASK_AGAIN
from gateway.mqtt.sessions.link import CLOSED
from tests.gateway.mqtt.in_memory import Wire
from tests.gateway.mqtt.journal_worker import (
    KEY,
    TOPIC,
    Log,
    Record,
    Worker,
    claimed,
    payloads,
    publish,
    read_all,
)


def test_a_client_that_comes_to_another_worker_is_taken_over() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    old, _ = first.client()
    old.subscribe(TOPIC)
    first.turn()
    new, present = second.client()
    assert present
    second.turn()
    assert old.connection.state == CLOSED
    assert old.connection.closing is not None
    assert old.connection.closing[0] == ReasonCode.SESSION_TAKEN_OVER
    assert not first.router.sessions
    publish(second.router, b"to the new one")
    assert payloads(new.received()) == [b"to the new one"]
    publish(first.router, b"nobody is here")
    assert not payloads(old.received())
    # The client goes back when all workers know the end of its connection.
    _, present = first.client()
    assert present
    first.turn()
    assert new.connection.state == CLOSED
    assert not first.client(clean=True)[1]
    first.turn()
    assert not second.client()[1]


def test_a_client_whose_session_is_not_kept_is_taken_over_by_another_worker_all_the_same() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    old, _ = first.client(clean=True)
    first.turn()
    second.client(clean=True)
    second.turn()
    assert old.connection.state == CLOSED
    assert not first.router.sessions


def test_a_session_is_its_claimers_in_whichever_order_the_log_has_the_news() -> None:
    log = Log()
    first, second, third = (Worker(log, name, shared=True) for name in "abc")
    first.client()[0].subscribe(TOPIC)
    first.journal.flush()
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(("alice", "phone"), record)
    assert len(log.records) == 2
    # Each worker appends over a connection of its own, so the order may be any.
    log.records.reverse()
    third.turn()
    # Only the claimer writes the session once more.
    assert len(log.records) == 3
    assert [each.journal.owner_of(("alice", "phone")) for each in (first, second, third)] == [
        "b",
        None,
        "b",
    ]


def test_a_session_is_handed_over_once() -> None:
    log = Log()
    first = Worker(log, "a", shared=True)
    first.client()[0].subscribe(TOPIC)
    assert claimed(first, "b") is not None
    # The second claim comes from a worker that does not know of the first.
    assert claimed(first, "c") is None
    assert first.journal.owner_of(("alice", "phone")) == "b"


def test_a_session_that_was_handed_over_is_not_written_by_the_worker_before() -> None:
    log = Log()
    first = Worker(log, "a", shared=True)
    first.client()[0].subscribe(TOPIC)  # to be written soon
    key = ("alice", "phone")
    assert first.journal.hand_over(key, first.router.sessions[key], "b") is not None
    first.journal.flush()
    assert not log.records
    assert first.journal.owner_of(key) == "b"


def test_a_worker_that_has_not_heard_of_the_end_of_a_session_is_told_when_it_claims_it() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    assert second.journal.owner_of(("alice", "phone")) == "a"
    wire, _ = first.client(clean=True)
    wire.lose()
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(("alice", "phone"), record)
    assert not second.client()[1]


def test_a_worker_remembers_the_sessions_that_ended_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDED_MAX", 3)
    worker = Worker(Log(), "a", shared=True)
    for number in (0, 1, 2, 0, 3):
        worker.journal.ended(("alice", f"{number}"), 1)
    ends = [worker.journal.hand_over(("alice", f"{number}"), None, "b") for number in range(4)]
    assert [end is not None for end in ends] == [True, False, True, True]


def test_of_more_sessions_than_there_is_room_for_those_written_longest_ago_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SESSIONS_MAX", 3)
    first = Worker(Log(), "a")
    first.client()[0].subscribe(TOPIC)
    first.turn()
    (written,) = first.log.records
    worker = Worker(Log(), "b", shared=True)
    worker.journal.on_records(
        [Record(b"session\0alice\0%d" % number, written.value(), 0) for number in (0, 1, 2, 0, 3)]
    )
    assert len(worker.journal) == 3
    known = [worker.journal.knows(("alice", f"{number}")) for number in range(4)]
    assert known == [True, False, True, True]


def test_a_worker_does_not_take_up_again_what_it_has_written_and_ended_itself() -> None:
    log = Log()
    worker = Worker(log, "a")
    worker.client()[0].subscribe(TOPIC)
    worker.journal.flush()
    wire, _ = worker.client(clean=True)
    wire.lose()
    assert log.records
    worker.turn()
    assert not worker.client()[1]


def test_an_end_that_is_older_than_a_session_does_not_end_it() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    first.client(clean=True)[0].lose()
    end = claimed(first, "b")
    assert end is not None
    first.client()[0].subscribe(TOPIC)
    first.turn()
    second.journal.claimed(KEY, end)
    assert second.journal.owner_of(KEY) == "a"


def test_what_waits_is_handed_over_and_not_written_with_the_session() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    publish(first.router, b"it waits")
    record = claimed(first, "b")
    assert record is not None
    second.journal.claimed(KEY, record)
    second.turn()
    waiting = msgspec.json.encode(b"it waits")[1:-1]
    assert b"it waits" in record
    for each in log.records:
        assert waiting not in (each.value() or b"")
        assert b'"parts"' not in (each.value() or b"")
    wire, present = second.client()
    assert present
    assert payloads(wire.first) == [b"it waits"]  # type: ignore[attr-defined]


def test_all_workers_hear_of_the_end_of_a_session() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    assert second.journal.knows(KEY)
    first.journal.ended(KEY)
    first.turn()
    assert not second.journal.knows(KEY)


def came_to_the_second() -> tuple[Log, Worker, Worker, Wire]:
    """Have a clean session at one worker of two, while a kept one at the other ends unclaimed.

    No worker has read yet what the other has written of it.
    """
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    for each in (first, second):
        each.journal.writes_all = False  # as with gateway.mqtt.workers.worker_peers
    first.client()[0].subscribe(TOPIC)
    first.journal.flush()
    assert not second.journal.knows(KEY)
    log.wall_ms += 1
    wire, present = second.client(clean=True)
    assert not present
    first.router.give_up(KEY)
    return log, first, second, wire


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_clean_session_ends_a_kept_one_of_which_the_log_had_not_told_yet(is_gone: bool) -> None:
    log, first, second, wire = came_to_the_second()
    if is_gone:
        wire.lose()
    first.turn()
    first.turn()
    assert (KEY in second.router.sessions) != is_gone
    assert not first.journal.knows(KEY) and not second.journal.knows(KEY)
    for each in (first, second):
        each.crash()
    assert not Worker(log, "c").client()[1]


def test_a_session_that_is_kept_stands_in_the_log_after_an_older_one() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    log.wall_ms += 1
    second.client()
    # Each worker appends over a connection of its own, so the order may be any.
    second.journal.flush()
    first.turn()
    first.turn()
    second.turn()
    assert second.router.sessions and not first.router.sessions
    written = len(log.records)
    second.turn()
    assert len(log.records) == written
    for each in (first, second):
        each.crash()
    third = Worker(log, "c")
    assert not third.router.sessions[KEY].subscriptions


def test_a_session_that_was_claimed_stands_in_the_log_after_an_older_one() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    first.journal.flush()
    wire.subscribe(TOPIC)
    record = claimed(first, "b")
    assert record is not None
    # Its client vanishes before it is connected there.
    second.journal.claimed(KEY, record)
    log.records.reverse()
    for _ in range(2):
        second.turn()
        written = len(log.records)
    assert len(log.records) == written == 3
    for each in (first, second):
        each.crash()
    assert Worker(log, "c").router.sessions[KEY].subscriptions


@pytest.mark.parametrize(("claimer", "is_given"), [("a", False), ("c", True)])
def test_of_two_connections_of_the_same_microsecond_the_worker_with_the_greater_name_has_one(
    claimer: str, is_given: bool
) -> None:
    worker = Worker(Log(), "b", shared=True)
    worker.client()
    came = worker.router.sessions[KEY].epoch, claimer
    answers: list[bytes | None] = []
    worker.router.handover.hand_over(KEY, came, answers.append, 0.0)
    assert (answers == [ASK_AGAIN]) != is_given
    assert (KEY in worker.router.sessions) != is_given


def handed_over() -> tuple[Log, Worker, Worker, bytes]:
    """Have the first of two workers hand over a session with a subscription.

    No other worker knows of it yet.
    """
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    log.wall_ms += 1
    record = claimed(first, "b")
    assert record is not None
    return log, first, second, record


def test_a_session_that_comes_back_ends_none_that_has_begun_since() -> None:
    log, first, _, record = handed_over()
    log.wall_ms += 1
    first.client(clean=True)[0].lose()
    first.client()[0].subscribe("devices/alice/+/sign")
    first.turn()
    first.router.handover.take_back(KEY, record)
    first.turn()
    first.crash()
    assert list(Worker(log, "c").router.sessions[KEY].subscriptions) == ["devices/alice/+/sign"]


@pytest.mark.parametrize("later", [-1, 0])
def test_a_session_that_was_claimed_is_later_than_the_one_before_and_than_its_claim(
    later: int,
) -> None:
    log, first, second, record = handed_over()
    third = Worker(log, "c", shared=True)
    assert third.journal.owner_of(KEY) == "a"
    before = msgspec.msgpack.decode(record)["epoch"]
    second.journal.claimed(KEY, record, before + 1_000 * later)
    assert second.journal.next_epoch(KEY) > before + 1
    first.turn()
    assert [each.journal.owner_of(KEY) for each in (first, second, third)] == ["b", None, "b"]


def test_a_session_that_arrives_late_is_no_later_than_its_claim() -> None:
    log, _, second, record = handed_over()
    epoch = second.journal.next_epoch(KEY)
    log.wall_ms += 1
    # A third worker has a session that no worker had to hand over.
    third = Worker(log, "c", shared=True)
    third.client(clean=True)[0].lose()
    third.client()
    third.journal.flush()
    log.wall_ms += 1
    second.journal.claimed(KEY, record, epoch)
    second.turn()
    second.turn()
    assert second.journal.owner_of(KEY) == "c"
    assert KEY in third.router.sessions


def test_a_claimed_session_is_kept_until_its_client_has_come_elsewhere_later() -> None:
    _, _, second, record = handed_over()
    epoch = second.journal.next_epoch(KEY)
    second.journal.claimed(KEY, record, epoch)
    second.journal.came_elsewhere(KEY, epoch - 1)
    assert second.journal.knows(KEY)
    second.journal.came_elsewhere(KEY, epoch + 1)
    assert not second.journal.knows(KEY)


def test_a_session_that_has_ended_is_not_found_where_nobody_has_read_of_its_end() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    first.turn()
    assert second.journal.knows(KEY)
    wire.lose()
    first.router.end(first.router.sessions[KEY])
    end = claimed(first, "b")
    assert end is not None
    second.journal.claimed(KEY, end)
    assert not second.client()[1]


def test_each_session_of_a_client_comes_after_the_one_before() -> None:
    worker = Worker(Log(), "a", shared=True)
    epochs = []
    for clean in (False, True, False, True, True):
        wire, _ = worker.client(clean=clean)
        wire.subscribe(TOPIC)
        worker.turn()
        epochs.append(worker.router.sessions[KEY].epoch)
        wire.lose()
    # The clock stands still all the time; a session that is resumed is the same session.
    assert epochs == sorted(set(epochs))


def test_a_session_comes_after_one_that_ended_elsewhere_though_the_clock_was_set_back() -> None:
    log = Log()
    first = Worker(log, "a", shared=True)
    first.client()[0].subscribe(TOPIC)
    first.turn()
    log.wall_ms -= 3_600_000
    second = Worker(log, "b", shared=True)
    wire, _ = first.client(clean=True)
    epoch = first.router.sessions[KEY].epoch
    first.turn()
    wire.lose()
    first.turn()
    second.client()
    assert second.router.sessions[KEY].epoch > epoch


def test_of_two_workers_that_have_begun_a_session_in_the_same_moment_not_both_give_it_up() -> None:
    log = Log()
    workers = [Worker(log, name, shared=True) for name in "ab"]
    wires = [each.client()[0] for each in workers]
    for each in workers:
        each.journal.flush()
    workers[0].turn()
    assert any(wire.connection.state != CLOSED for wire in wires)
    # They do not overwrite each other's records for ever, either.
    written = len(log.records)
    for each in workers * 2:
        each.turn()
    assert len(log.records) == written


def test_a_session_that_was_elsewhere_since_it_was_read_for_a_client_is_read_again() -> None:
    log = Log()
    first, second = Worker(log, "a", shared=True), Worker(log, "b", shared=True)
    wire, _ = first.client()
    wire.subscribe(TOPIC)
    wire.lose()
    publish(first.router, b"1")

    def move(owner: Worker, claimer: Worker, name: str) -> None:
        record = claimed(owner, name)
        assert record is not None
        claimer.journal.claimed(KEY, record)

    move(first, second, "b")
    for _ in second.journal.prepare(KEY):
        pass
    move(second, first, "a")
    wire, _ = first.client()
    assert read_all(wire) == [b"1"]
    wire.lose()
    publish(first.router, b"2")
    move(first, second, "b")
    wire, _ = second.client()
    assert read_all(wire) == [b"2"]
