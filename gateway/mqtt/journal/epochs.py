"""Session epochs: they order the connections of a client across all workers of a machine."""

from __future__ import annotations

from collections.abc import Callable


class Epochs:
    """Issues the epochs of one worker.

    `wall_ms` returns Unix time (ms), `clock` the monotonic time (s) that all workers share.

    The wall clock may be set back, and the monotonic clock stops while a machine sleeps, so epochs
    follow the later of both. An epoch is also greater than every epoch that is known here (Lamport,
    Time, Clocks, and the Ordering of Events in a Distributed System, 1978).
    """

    def __init__(self, wall_ms: Callable[[], int], clock: Callable[[], float]) -> None:
        self._wall_ms = wall_ms
        self._clock = clock
        #: Unix time (us) when the monotonic clock stood at 0.
        self.clock_began_us = 1000 * wall_ms() - round(1_000_000 * clock())
        self._latest = 0

    def after(self, epoch: int) -> int:
        """Return a new epoch: Unix time in us, greater than `epoch` and all that are known here."""
        now_us = self.clock_began_us + round(1_000_000 * self._clock())
        now_us = max(now_us, 1000 * self._wall_ms())
        self._latest = max(now_us, self._latest + 1, epoch + 1)
        return self._latest

    def heard(self, epoch: int) -> None:
        """Take note of another worker's epoch; later epochs of this worker are greater."""
        self._latest = max(self._latest, epoch)

    def keep_pace(self, clock_began_us: int) -> None:
        """Catch up with a worker that started when the wall clock was ahead of this worker's.

        The clock has been set back since, but that worker goes on issuing later epochs.
        """
        self.clock_began_us = max(self.clock_began_us, clock_began_us)
