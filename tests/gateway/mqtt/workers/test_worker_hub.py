"""The worker hub knows to which worker each client came last."""

from __future__ import annotations

from typing import Any, Final

import pytest

from gateway.mqtt.sessions.handover import ASK_AGAIN
from gateway.mqtt.workers import worker_hub as module
from gateway.mqtt.workers.worker_hub import WorkerHub

ADA: Final = ("ada", "phone")
RECORD: Final = b"a session"


class Worker:
    """A worker that records the frames of the worker hub, except those at its start."""

    def __init__(self, worker_hub: WorkerHub, name: str, clock_began_us: int = 0) -> None:
        self.worker_hub = worker_hub
        self.name = name
        self.told: list[tuple[Any, ...]] = []
        self.say("hello", name, clock_began_us)
        self.clocks = [frame[1] for frame in self.take("clock")]

    def send(self, *frame: Any) -> None:
        self.told.append(frame)

    def say(self, kind: str, *arguments: Any) -> None:
        self.worker_hub.on_frame(self, kind, list(arguments))

    def came(self, epoch: int, key: tuple[str, str] = ADA) -> None:
        self.say("came", [(*key, epoch)])

    def claim(
        self, number: int, epoch: int = 100, named: str | None = None, key: tuple[str, str] = ADA
    ) -> None:
        self.say("claim", number, named, *key, epoch)

    def take(self, kind: str) -> list[tuple[Any, ...]]:
        taken = [frame for frame in self.told if frame[0] == kind]
        self.told = [frame for frame in self.told if frame[0] != kind]
        return taken

    def hand_over(self, record: bytes | None = RECORD) -> None:
        """Answer the one claim that this worker has received."""
        ((_, question, *_),) = self.take("claim")
        self.say("answered", question, record)


@pytest.fixture
def worker_hub() -> WorkerHub:
    return WorkerHub(lambda _s, callback: callback(), lambda *_: False)


@pytest.fixture
def workers(worker_hub: WorkerHub) -> list[Worker]:
    return [Worker(worker_hub, name) for name in "abcd"]


def asked(workers: list[Worker]) -> list[str]:
    """Return the names of the workers that were asked for a session."""
    return [each.name for each in workers if each.take("claim")]


@pytest.mark.parametrize(
    ("announced", "last"),
    [
        ([(0, 1), (1, 2)], "b"),
        ([(1, 2), (0, 1)], "b"),
        ([(1, 1), (0, 2)], "a"),
        ([(0, 2), (1, 1)], "a"),
        # In the same microsecond: all workers choose the same one.
        ([(0, 1), (1, 1)], "b"),
        ([(1, 1), (0, 1)], "b"),
        # At the first worker again.
        ([(0, 1), (1, 2), (0, 3)], "a"),
    ],
)
def test_a_session_is_asked_of_the_worker_to_which_its_client_came_last(
    workers: list[Worker], announced: list[tuple[int, int]], last: str
) -> None:
    for number, epoch in announced:
        workers[number].came(epoch)
    workers[2].claim(7, epoch=9, named="d")
    frames = {each.name: each.take("claim") for each in workers}
    assert {name for name, told in frames.items() if told} == {last}
    ((_, _, user, client_id, claimer, epoch),) = frames[last]
    assert ((user, client_id), claimer, epoch) == (ADA, "c", 9)


def test_a_worker_that_says_too_late_who_came_is_told_who_came_after(worker_hub: WorkerHub) -> None:
    first = Worker(worker_hub, "a")
    first.came(5)
    # The second worker was not connected then.
    second = Worker(worker_hub, "b")
    second.came(3)
    assert second.take("came") == [("came", "a", [(*ADA, 5)])]
    assert first.take("came") == [("came", "b", [(*ADA, 3)])]
    second.came(6)
    assert not second.take("came")


def test_a_worker_that_is_gone_is_not_asked_for_a_session(workers: list[Worker]) -> None:
    first, second, third, _ = workers
    first.came(5)
    first.worker_hub.leave(first)
    third.claim(1, named="b")
    assert asked(workers) == ["b"]
    second.worker_hub.leave(second)
    assert third.take("answer") == [("answer", 1, None)]


def test_a_worker_that_was_let_have_a_session_of_nobody_is_asked_for_it(
    workers: list[Worker],
) -> None:
    _, second, third, _ = workers
    third.claim(1)
    assert third.take("answer") == [("answer", 1, None)]
    second.claim(1)
    assert asked(workers) == ["c"]


def test_a_worker_is_not_asked_for_what_it_has_not_itself(workers: list[Worker]) -> None:
    first = workers[0]
    first.came(5)
    first.claim(1)
    assert asked(workers) == []
    assert first.take("answer") == [("answer", 1, None)]


def test_a_worker_that_was_handed_a_session_is_asked_for_it(workers: list[Worker]) -> None:
    first, second, third, fourth = workers
    first.came(10)
    third.claim(1)
    first.hand_over()
    assert third.take("answer") == [("answer", 1, RECORD)]
    # Its worker announces an older connection only now.
    second.came(5)
    fourth.claim(1)
    assert asked(workers) == ["c"]


def test_a_session_that_is_handed_over_is_not_asked_of_a_worker_that_is_gone(
    workers: list[Worker],
) -> None:
    first, second, third, fourth = workers
    first.came(5)
    third.claim(1)
    second.came(6)
    second.worker_hub.leave(second)
    first.hand_over()
    fourth.claim(1)
    assert asked(workers) == ["c"]


def test_a_session_that_is_not_handed_over_yet_is_asked_of_the_same_worker(
    workers: list[Worker],
) -> None:
    first, second, third, _ = workers
    first.came(5)
    third.claim(1)
    first.hand_over(ASK_AGAIN)
    assert third.take("answer") == [("answer", 1, ASK_AGAIN)]
    second.claim(1)
    assert asked(workers) == ["a"]


@pytest.mark.parametrize(
    ("record", "returned"),
    [(RECORD, [("returned", *ADA, RECORD)]), (None, []), (ASK_AGAIN, [])],
)
def test_what_is_handed_over_to_a_worker_that_is_gone_goes_back(
    workers: list[Worker], record: bytes | None, returned: list[tuple[Any, ...]]
) -> None:
    first, second, third, _ = workers
    first.came(5)
    third.claim(1)
    third.worker_hub.leave(third)
    second.claim(1)
    assert second.take("answer") == [("answer", 1, ASK_AGAIN)]
    first.hand_over(record)
    assert first.take("returned") == returned
    second.claim(2)
    assert asked(workers) == ["a"]


def test_of_more_clients_than_there_is_room_for_those_that_came_first_are_forgotten(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_OWNERS_MAX", 3)
    first, _, third, _ = workers
    for epoch, number in enumerate((0, 1, 2, 0, 3), 1):
        first.came(epoch, ("ada", f"{number}"))
    for number in (0, 2, 3, 1):
        third.claim(number, key=("ada", f"{number}"))
    assert [frame[3] for frame in first.take("claim")] == ["0", "2", "3"]
    assert third.take("answer") == [("answer", 1, None)]


def test_workers_are_told_of_the_clock_that_is_ahead_of_all_others(worker_hub: WorkerHub) -> None:
    first = Worker(worker_hub, "a", 50)
    second = Worker(worker_hub, "b", 70)
    third = Worker(worker_hub, "c", 60)
    assert [each.clocks for each in (first, second, third)] == [[50], [70], [70]]
    assert first.take("clock") == [("clock", 70)]
    assert not second.take("clock")
    # The worker is gone, but what it has announced is in the log.
    worker_hub.leave(second)
    assert Worker(worker_hub, "d", 55).clocks == [70]
