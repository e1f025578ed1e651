"""A timer wheel: one timer of the event loop serves all connections and sessions."""

from __future__ import annotations

from typing import Final, Protocol


class Timer(Protocol):
    """An entry of the wheel. The wheel sets `timer_tick`, which starts as 0 (not scheduled)."""

    timer_tick: int


class TimerWheel:
    """Timers by the tick in which they are due; sans-IO, the caller passes the time (s).

    A timer never fires early, and fires up to one tick late. Moving a deadline into the future
    costs nothing: a timer that fires too early is scheduled again by its owner.
    """

    TICK_S: Final = 0.25

    def __init__(self, now: float) -> None:
        self._tick = int(now / self.TICK_S)
        self._slots: dict[int, set[Timer]] = {}

    def schedule(self, timer: Timer, deadline: float) -> None:
        """Fire `timer` after `deadline`, or earlier if it is scheduled earlier already."""
        tick = max(int(deadline / self.TICK_S), self._tick) + 1
        if timer.timer_tick:
            if timer.timer_tick <= tick:
                return
            self.cancel(timer)
        timer.timer_tick = tick
        slot = self._slots.get(tick)
        if slot is None:
            slot = self._slots[tick] = set()
        slot.add(timer)

    def cancel(self, timer: Timer) -> None:
        """Remove `timer`; it uses no memory here afterwards."""
        slot = self._slots.get(timer.timer_tick)
        if slot is not None:
            slot.discard(timer)
            if not slot:
                del self._slots[timer.timer_tick]
        timer.timer_tick = 0

    def advance(self, now: float, most: int | None = None) -> list[Timer]:
        """Remove and return the timers that are due at `now`.

        With `most`, at most that many are returned; the rest stays scheduled and due.
        """
        due: list[Timer] = []
        last = int(now / self.TICK_S)
        if last - self._tick > len(self._slots):
            ticks = sorted(tick for tick in self._slots if tick <= last)
        else:
            ticks = list(range(self._tick + 1, last + 1))
        for tick in ticks:
            slot = self._slots.get(tick)
            if slot is None:
                continue
            while slot:
                if len(due) == most:
                    self._tick = max(self._tick, tick - 1)
                    return due
                timer = slot.pop()
                timer.timer_tick = 0
                due.append(timer)
            del self._slots[tick]
        self._tick = max(self._tick, last)
        return due

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))
