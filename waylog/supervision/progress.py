"""How long a supervised process may still be silent, by what it says with sd_notify(3).

A start has the same time at every start. A process that reports `WATCHDOG=1` has to go on doing so.
Before it is ready it gets more time with `EXTEND_TIMEOUT_USEC=`, or with `STATUS=`, which says what
it does or why it waits. So a start that takes long and says so is not taken for one that hangs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

#: Seconds for a process that has said why it is not ready, e.g. that its log does not answer.
WAITING_S: Final = 3600.0
#: The time for a start doubles with each one in a row that was too long, up to this.
START_LONGEST_S: Final = 3600.0
_EXTEND: Final = b"EXTEND_TIMEOUT_USEC="
#: More than 30,000 years: whoever sends more digits sends no time.
_DIGITS_MAX: Final = 18


def extension_s(lines: Sequence[bytes]) -> float | None:
    """Return the seconds that a notification asks for from now on; None if it asks for none."""
    for line in lines:
        digits = line.removeprefix(_EXTEND)
        if digits != line and digits.isdigit() and len(digits) <= _DIGITS_MAX:
            return int(digits) / 1e6
    return None


class Progress:
    """Counts down the seconds until a process is taken for one that hangs."""

    def __init__(self, start_s: float, watchdog_s: float) -> None:
        """`start_s` is the time to become ready, `watchdog_s` that between two `WATCHDOG=1`."""
        self._start_s = start_s
        self._watchdog_s = watchdog_s
        self._late_starts = 0
        self.begin()

    def begin(self) -> None:
        """Note that the process is started."""
        self._is_ready = False
        self._is_watched = False
        self._age_s = 0.0
        self._left_s = self._limit_s

    @property
    def _limit_s(self) -> float:
        # A start that honestly needs longer gets to its end at last.
        longest = max(self._start_s, START_LONGEST_S)
        return min(self._start_s * 2.0 ** min(self._late_starts, 30), longest)

    def heard(self, lines: Sequence[bytes]) -> None:
        """Note a notification of the process."""
        if b"WATCHDOG=1" in lines:
            self._is_watched = True
            self._left_s = self._watchdog_s
        if b"READY=1" in lines:
            self._is_ready = True
            self._late_starts = 0
            if not self._is_watched:
                self._left_s = math.inf
        if self._is_ready:
            return
        for line in lines:
            if line.startswith(b"STATUS=") and not self._is_watched:
                waits = line.startswith(b"STATUS=not ready")
                self._left_s = WAITING_S if waits else self._limit_s
        self._left_s = max(self._left_s, extension_s(lines) or 0.0)

    def passed(self, seconds: float) -> None:
        """Note that time has passed in which the process could have said something."""
        self._age_s += seconds
        self._left_s -= seconds

    def fault(self) -> str | None:
        """Return what a process that has been silent for too long has failed to do; else None."""
        if self._left_s > 0:
            return None
        if self._is_watched:
            return f"has made no progress for {self._watchdog_s:.0f} s"
        self._late_starts += 1
        return f"is not ready {self._age_s:.0f} s after its start"
