from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from broker_core.replication.response_pace import FollowerResponsePacer

INTERVAL = 0.01
#: Seconds from a response to the append that its acknowledgement lets a producer make.
ROUND_TRIP = 0.001


class Leader:
    """Drives an FollowerResponsePacer over virtual time."""

    def __init__(self) -> None:
        self.pace = FollowerResponsePacer(INTERVAL)
        self.now = 0.0
        self.due: float | None = None
        self.waits = False
        self.answers: list[float] = []

    def append(self) -> None:
        at = self.pace.appended(self.now)
        self.waits = self.waits or at > self.now
        self.due = at if self.due is None else min(self.due, at)

    def answer(self) -> None:
        assert self.due is not None
        self.now = max(self.now, self.due)
        self.pace.answered(self.now, has_waited=self.waits)
        self.due, self.waits = None, False
        self.answers.append(self.now)

    def run(self, appends: list[float]) -> None:
        """Append at the given times, and respond when it is due."""
        for at in appends:
            while self.due is not None and self.due < at:
                self.answer()
            self.now = at
            self.append()
        if self.due is not None:
            self.answer()


def _steady(spacing: float, seconds: float, start: float = 1.0) -> list[float]:
    return [start + number * spacing for number in range(int(seconds / spacing))]


def test_what_comes_now_and_then_is_told_at_once() -> None:
    leader = Leader()
    appends = _steady(2 * INTERVAL, 1)
    leader.run(appends)
    assert leader.answers == appends


def test_what_comes_fast_gathers() -> None:
    leader = Leader()
    leader.run(_steady(INTERVAL / 5, 1))
    assert len(leader.answers) <= 1.1 * 1 / INTERVAL


def test_producers_that_wait_for_acknowledgements_are_not_slowed_down() -> None:
    leader = Leader()
    producers: list[Callable[[], None]] = [leader.append] * 5
    leader.now = 1.0
    for _ in range(1000):
        for append in producers:
            append()
            leader.now += ROUND_TRIP / 50
        leader.answer()
        leader.now += ROUND_TRIP
    # Without any wait it would take 1000 round trips.
    assert leader.now - 1.0 < 1000 * 1.4 * ROUND_TRIP


def test_it_gathers_again_when_producers_no_longer_wait() -> None:
    leader = Leader()
    leader.now = 1.0
    for _ in range(200):
        leader.append()
        leader.answer()
        leader.now += ROUND_TRIP
    appends = _steady(INTERVAL / 5, 2, leader.now)
    before = len(leader.answers)
    leader.run(appends)
    assert len(leader.answers) - before < 0.3 * len(appends)


@given(st.lists(st.floats(min_value=0, max_value=0.05), max_size=200))
def test_nothing_waits_longer_than_the_interval(gaps: list[float]) -> None:
    leader = Leader()
    now, appends = 1.0, []
    for gap in gaps:
        now += gap
        appends.append(now)
    leader.run(appends)
    for at in appends:
        told = next(answer for answer in leader.answers if answer >= at)
        assert told - at <= INTERVAL + 1e-9


def test_an_interval_of_nothing_never_waits() -> None:
    pace = FollowerResponsePacer(0)
    for now in (1.0, 1.0, 1.001):
        assert pace.appended(now) == now
        pace.answered(now, has_waited=False)
