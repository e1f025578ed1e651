"""A token bucket: limits how often something may happen. Sans-IO."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_BURST_S: Final = 5.0


class TokenBucket:
    """A token bucket that refills `per_second`; it holds five seconds' worth, or `burst`.

    `refused` counts the calls of `take` that got nothing; its reader may set it back.
    """

    __slots__ = ("_capacity", "_clock", "_filled", "_per_second", "_tokens", "refused")

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        burst: float | None = None,
    ) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, _BURST_S * per_second if burst is None else burst)
        self._tokens = self._capacity
        self._clock = clock
        self._filled = clock()
        self.refused = 0

    def take(self, count: float = 1) -> bool:
        """Take `count` tokens and return True, or take none and return False."""
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now - self._filled) * self._per_second)
        self._filled = now
        if self._tokens < count:
            self.refused += 1
            return False
        self._tokens -= count
        return True

    def give_back(self, count: float = 1) -> None:
        """Undo `take`."""
        self._tokens += count
