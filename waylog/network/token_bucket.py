"""A token bucket: how often something may happen. Sans-IO."""

from __future__ import annotations


class TokenBucket:
    """`rate` a second, with bursts of as many; what exceeds it is counted in `refused`."""

    __slots__ = ("_left", "_rate", "_then", "refused")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left = rate
        self._then = 0.0
        self.refused = 0

    def take(self, now: float) -> bool:
        """Tell whether it may happen at `now` (s)."""
        self._left = min(self._rate, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < 1:
            self.refused += 1
            return False
        self._left -= 1
        return True
