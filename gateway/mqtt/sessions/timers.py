"""A timer wheel: one timer of the event loop serves all connections and sessions."""

from __future__ import annotations

from typing import Final, Protocol


class Timer(Protocol):
    """An entry of the wheel, which owns `timer_tick`; that starts as 0 (not scheduled)."""

    timer_tick: int


class TimerWheel:
    """Timers by the tick in which they are due; sans-IO, the caller brings the time (s).

    A timer is never early, and late by up to one tick. To move a deadline into the future costs
    nothing: whoever is woken too early schedules itself again.
    """

    TICK_S: Final = 0.25

    def __init__(self, now: float) -> None:
        self._tick = int(now / self.TICK_S)
        self._slots: dict[int, set[Timer]] = {}

    def schedule(self, timer: Timer, deadline: float) -> None:
        """Wake `timer` after `deadline`, or earlier if that was asked for before."""
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
        """Forget `timer`; it holds no memory here afterwards."""
        slot = self._slots.get(timer.timer_tick)
        if slot is not None:
            slot.discard(timer)
            if not slot:
                del self._slots[timer.timer_tick]
        timer.timer_tick = 0

    def advance(self, now: float, most: int | None = None) -> list[Timer]:
        """Take what is due at `now`; it is not scheduled any more.

        With `most` no more than so many: the rest is still scheduled, and due.
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
