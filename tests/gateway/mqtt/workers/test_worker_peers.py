"""Workers announce the clients that have come to them, and learn which have gone elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from gateway.mqtt.journal.journal import Journal
from gateway.mqtt.requests import RelayUnavailable
from gateway.mqtt.sessions.claims import SessionClaims
from gateway.mqtt.sessions.link import CLOSED
from gateway.mqtt.workers import worker_peers as module
from gateway.mqtt.workers.interest import interest_of
from gateway.mqtt.workers.worker_peers import WorkerPeers
from tests.gateway.mqtt.in_memory import User, Wire, new_router
from tests.gateway.mqtt.journal_worker import TOPIC, Log, payloads, publish
from tests.gateway.mqtt.journal_worker import Worker as JournalWorker

ADA: Final = User("ada")


class Worker:
    """A worker whose turns of the loop the test runs; it is also the channel of its neighbours."""

    def __init__(self) -> None:
        self.is_open = True
        self.told: list[tuple[Any, ...]] = []
        self.woken = 0
        self.wall_ms = 1_000_000
        self._scheduled: list[Callable[[], None]] = []
        self.router = new_router()
        self.journal = Journal(
            *("b", lambda *_: None, lambda: self.wall_ms, lambda: 50.0, lambda _: None), shared=True
        )
        self.router.keep(self.journal, 0.0)
        self.neighbours = WorkerPeers(
            self.router,
            self.journal,
            self,
            clock=lambda: 50.0,
            schedule=self._scheduled.append,
            wake=self._wake,
            in_flight=lambda *_: None,
        )

    def _wake(self) -> None:
        self.woken += 1

    def send(self, *frame: Any) -> None:
        self.told.append(frame)

    def come(self, name: str = "phone", clean: bool = True) -> Wire:
        wire = Wire(self.router, 0.0)
        wire.connect(name, ADA, clean=clean)
        return wire

    def epoch(self, name: str = "phone") -> int:
        return self.router.sessions[("ada", name)].epoch

    def turn(self) -> bool:
        scheduled, self._scheduled[:] = self._scheduled[:], []
        for callback in scheduled:
            callback()
        return bool(scheduled)

    def announced(self) -> list[list[tuple[str, int]]]:
        """Return names and epochs of the announced clients, grouped by frame."""
        while self.turn():
            pass
        came = [frame[1] for frame in self.told if frame[0] == "came"]
        self.told.clear()
        return [[(name, epoch) for _, name, epoch in each] for each in came]


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_client_is_announced_with_the_epoch_of_its_last_connection(worker: Worker) -> None:
    worker.come()
    first = worker.epoch()
    assert worker.announced() == [[("phone", first)]]
    worker.come()
    worker.come()
    assert worker.epoch() > first
    assert worker.announced() == [[("phone", worker.epoch())]]


def test_who_comes_while_the_others_cannot_be_reached_is_announced_as_soon_as_they_can(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CAME_MAX", 3)
    worker.is_open = False
    for name in ("v", "w", "x", "v", "y"):
        worker.come(name)
    assert worker.announced() == []
    worker.is_open = True
    worker.neighbours.opened()
    (told,) = worker.announced()
    # Of more clients than can be remembered, the last ones are announced.
    assert told == [(name, worker.epoch(name)) for name in ("x", "v", "y")]


def test_many_that_come_at_once_are_announced_in_several_turns(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CAME_A_FRAME", 2)
    for name in "vwxyz":
        worker.come(name)
    told = worker.announced()
    assert [[name for name, _ in each] for each in told] == [["v", "w"], ["x", "y"], ["z"]]


@pytest.mark.parametrize(
    ("later", "elsewhere", "is_over"),
    [(-1, "c", False), (0, "a", False), (0, "c", True), (60_000_000, "a", True)],
)
def test_a_connection_is_over_when_a_later_one_has_come_elsewhere(
    worker: Worker, later: int, elsewhere: str, is_over: bool
) -> None:
    wire, other = worker.come(), worker.come("bike")
    epoch = worker.epoch() + later
    came = [["ada", "nobody", epoch], ["ada", "phone", epoch]]
    worker.neighbours.on_frame("came", [elsewhere, came])
    assert (wire.connection.state == CLOSED) == is_over
    assert other.connection.state != CLOSED
    assert worker.woken  # so that the client is told
    # The clocks stand still, but a client that comes now has the greatest epoch.
    worker.come("car")
    assert worker.epoch("car") > epoch


def test_a_session_that_nobody_is_connected_to_is_over_when_its_client_has_come_elsewhere(
    worker: Worker,
) -> None:
    before = Worker()
    before.come(clean=False)
    claim = before.epoch() + 10
    before.neighbours.on_frame("claim", [7, "ada", "phone", "b", claim])
    # Its client vanishes before it is connected there.
    worker.journal.claimed(("ada", "phone"), before.told[-1][2], claim)
    worker.neighbours.on_frame("came", ["c", [["ada", "phone", claim - 1]]])
    assert worker.journal.knows(("ada", "phone"))
    worker.neighbours.on_frame("came", ["c", [["ada", "phone", claim + 1]]])
    assert not worker.journal.knows(("ada", "phone"))


def test_a_worker_that_is_asked_for_a_session_tells_its_client(worker: Worker) -> None:
    wire = worker.come()
    worker.neighbours.on_frame("claim", [7, "ada", "phone", "a", worker.epoch() - 1])
    assert worker.told[-1] == ("answered", 7, b"")
    assert wire.connection.state != CLOSED
    worker.neighbours.on_frame("claim", [8, "ada", "phone", "a", worker.epoch() + 1])
    assert worker.told[-1][:2] == ("answered", 8)
    assert worker.told[-1][2] != b""
    assert wire.connection.state == CLOSED
    assert worker.woken == 2


def test_workers_whose_clock_was_set_back_go_by_that_of_those_before(worker: Worker) -> None:
    worker.neighbours.opened()
    hello = worker.told[0]
    assert hello == ("hello", "b", 1_000_000_000 - 50_000_000)
    worker.neighbours.on_frame("clock", [hello[2] + 3_600_000_000])
    worker.come()
    assert worker.epoch() == 4_600_000_000


async def test_who_comes_while_its_worker_is_away_gets_what_was_published_here_meanwhile() -> None:
    log = Log()
    away, here = (JournalWorker(log, name, shared=True) for name in "ah")
    away.client()[0].subscribe(TOPIC)
    away.turn()

    class Closed:
        is_open = False

        def send(self, *frame: Any) -> None:
            raise AssertionError(frame)

    WorkerPeers(
        *(here.router, here.journal, Closed()),
        clock=lambda: 0.0,
        schedule=lambda _: None,
        wake=lambda: None,
        in_flight=lambda *_: None,
    )
    here.router.elsewhere.change([(interest_of("#") or "", True)])
    away.crash()
    publish(here.router, b"meanwhile")
    publish(here.router, b"of another topic", topic="devices/alice/phone/other")

    async def request(*_: Any, **__: Any) -> Any:
        raise RelayUnavailable

    claims = SessionClaims(here.router, here.journal, request, lambda: 0.0)
    await claims.claim(("alice", "phone"), clean_start=False)
    publish(here.router, b"later")
    wire, is_present = here.client()
    assert is_present
    assert payloads(wire.first) == [b"meanwhile", b"later"]  # type: ignore[attr-defined]
    publish(here.router, b"now")
    assert payloads(wire.received()) == [b"now"]
