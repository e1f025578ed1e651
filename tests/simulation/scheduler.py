"""Simulated time: a queue of actions."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable


class Scheduler:
    """Runs actions in the order of their times, and of their creation for equal times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.executed = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Run an action at a time, now if that is past."""
        heapq.heappush(self._queue, (max(time, self.now), next(self._numbers), action))

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Run an action in `delay` seconds."""
        self.at(self.now + delay, action)

    def run_until(self, time: float) -> None:
        """Run everything that is due up to a time."""
        while self._queue and self._queue[0][0] <= time:
            self.now, _, action = heapq.heappop(self._queue)
            self.executed += 1
            action()
        self.now = time
