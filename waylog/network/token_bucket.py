"""A token bucket: limits how often something may happen. Sans-IO."""

from __future__ import annotations


class TokenBucket:
    """Allows `rate` events a second, with bursts of as many; counts the others in `refused`."""

    __slots__ = ("_left", "_rate", "_then", "refused")

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left = rate
        self._then = 0.0
        self.refused = 0

    def take(self, now: float) -> bool:
        """Return whether an event may happen at `now` (s); take a token if so."""
        self._left = min(self._rate, self._left + (now - self._then) * self._rate)
        self._then = now
        if self._left < 1:
            self.refused += 1
            return False
        self._left -= 1
        return True
