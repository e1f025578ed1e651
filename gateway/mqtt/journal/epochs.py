"""The clock by which all workers of a machine tell which connection of a client came last."""

from __future__ import annotations

from collections.abc import Callable


class Epochs:
    """Of one worker. `wall_ms` is Unix time; `clock` the monotonic one (s) that all workers share.

    The wall clock may be set back, and the monotonic one stands while a machine sleeps: the later
    of both counts, and the greatest epoch that is known (Lamport, Time, Clocks, and the Ordering of
    Events in a Distributed System, 1978).
    """

    def __init__(self, wall_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        self._wall_ms = wall_ms
        self._clock = clock
        #: Unix time (us) when the monotonic clock stood at 0.
        self.clock_began_us = 1000 * wall_ms() - round(1_000_000 * clock())
        self._latest = 0

    def after(self, epoch: int) -> int:
        """A new epoch: Unix time in us, greater than `epoch` and all that are known here."""
        now_us = self.clock_began_us + round(1_000_000 * self._clock())
        now_us = max(now_us, 1000 * self._wall_ms())
        self._latest = max(now_us, self._latest + 1, epoch + 1)
        return self._latest

    def heard(self, epoch: int) -> None:
        """Another worker has given this epoch: the next one here is greater."""
        self._latest = max(self._latest, epoch)

    def keep_pace(self, clock_began_us: int) -> None:
        """A worker that began when the wall clock was ahead of ours gives later epochs: so do we.

        Somebody has set the clock back since.
        """
        self.clock_began_us = max(self.clock_began_us, clock_began_us)
