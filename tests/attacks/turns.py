"""How long the event loop is kept from others: processor time, so that the machine may be busy."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

#: Of one turn. On an idle machine every figure is below 4 ms; before there were steps, 20 to 900.
#: A kernel that counts processor time by its own ticks may add ten to what nobody has done.
TURN_MS_MAX = 20.0
#: Of what is done again where it took longer: what costs it each time costs it then, too.
REPEATED_TURN_MS_MAX = 10.0
_TIMES = 3


class Turns:
    """The most processor time that one turn of the loop has taken, ms."""

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
        """Of the time since it was last asked for."""
        worst, self.worst_ms = self.worst_ms, 0.0
        return worst

    async def least_worst(self, act: Callable[[], Awaitable[None]]) -> float:
        """Of what is done once, or up to three times as long as it takes too long."""
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
        """Measure no more."""
        self._next.cancel()


@contextmanager
def measured_turns() -> Iterator[Turns]:
    """Measure the loop that runs. The garbage of other tests is not the gateway's."""
    turns = Turns()
    gc.collect()
    gc.disable()
    try:
        yield turns
    finally:
        gc.enable()
        turns.close()
