"""Those who go on when something holds for topics, or after a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(eq=False)
class _Waiter:
    """Somebody who waits for topics, each with a number of partitions."""

    missing: dict[str, int]
    then: Callable[[], None]
    timer: asyncio.TimerHandle | None = None


class TopicWaiters:
    """Knows who waits for which topics; all methods are called on the event loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: list[_Waiter] = []

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def wait(self, counts: Mapping[str, int], timeout_s: float, then: Callable[[], None]) -> None:
        """Call `then` when `check` has found each of these topics, or on timeout."""
        waiter = _Waiter(dict(counts), then)
        self._waiters.append(waiter)
        waiter.timer = self._loop.call_later(max(timeout_s, 0.0), self._go_on, waiter)

    def check(self, holds: Callable[[str, int], bool]) -> None:
        """Let those go on who miss no topic any more; one that was found is not asked for again."""
        for waiter in tuple(self._waiters):
            missing = waiter.missing.items()
            waiter.missing = {name: count for name, count in missing if not holds(name, count)}
            if not waiter.missing:
                self._go_on(waiter)

    def close(self) -> None:
        """Let all go on."""
        for waiter in tuple(self._waiters):
            self._go_on(waiter)

    def _go_on(self, waiter: _Waiter) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._waiters.remove(waiter)
        waiter.then()
