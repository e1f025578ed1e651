"""A clock by which turns of the event loop are short, however fast the machine is."""

from __future__ import annotations

from broker_core.environment import SystemClock


class HastyClock(SystemClock):
    """A clock on which `step_s` pass whenever somebody looks at it."""

    now_s = 1_000.0

    def __init__(self, step_s: float = 0.0001) -> None:
        self._step_s = step_s

    def monotonic(self) -> float:
        """See Clock."""
        self.now_s += self._step_s
        return self.now_s
