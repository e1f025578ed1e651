"""Measures how long the event loop is blocked, in processor time: the machine may be busy."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

#: Limit (ms) for one turn. On an idle machine all values are below 4 ms; without steps they were 20
#: to 900. A kernel that counts processor time in ticks may add ten without any cause.
TURN_MS_MAX = 20.0
#: Limit (ms) above which `least_worst` measures again: real costs occur each time.
REPEATED_TURN_MS_MAX = 10.0
_TIMES = 3


class Turns:
    """Measures the maximal processor time (ms) of one turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self.worst_ms = 0.0
        self._next: asyncio.Handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now = time.thread_time()
        self.worst_ms = max(self.worst_ms, (now - self._last) * 1000)
        self._last = time.thread_time()
        self._next = self._loop.call_later(0.0005, self._turn)

    def worst(self) -> float:
        """Return the maximum since the last call."""
        worst, self.worst_ms = self.worst_ms, 0.0
        return worst

    async def least_worst(self, act: Callable[[], Awaitable[None]]) -> float:
        """Return the least maximum of up to three calls, which end at the first short one."""
        least = float("inf")
        for _ in range(_TIMES):
            await asyncio.sleep(0.01)
            self.worst()
            await act()
            least = min(least, self.worst())
            if least <= REPEATED_TURN_MS_MAX:
                break
        return least

    def close(self) -> None:
        """Stop measuring."""
        self._next.cancel()


@contextmanager
def measured_turns() -> Iterator[Turns]:
    """Measure the running loop, without collecting the garbage of other tests."""
    turns = Turns()
    gc.collect()
    gc.disable()
    try:
        yield turns
    finally:
        gc.enable()
        turns.close()
