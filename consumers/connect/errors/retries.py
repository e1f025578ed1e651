"""When a failed operation is tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

#: The first pause; each further one is twice as long.
RETRY_DELAY_MIN_MS: Final = 300
#: Doublings after which any pause is longer than any limit.
_DOUBLINGS_MAX: Final = 60


class Retries:
    """The attempts at one operation, by `errors.retry.timeout` and `errors.retry.delay.max.ms`.

    It waits for nothing itself: `delay_ms` says how long to wait.
    """

    __slots__ = ("_deadline_ms", "_delay_max_ms", "_draw", "attempts")

    def __init__(
        self, now_ms: int, timeout_ms: int, delay_max_ms: int, draw: Callable[[int], int]
    ) -> None:
        """`timeout_ms` negative is for ever. `draw(n)` returns a random number from 0 to n-1."""
        self._deadline_ms: Final = now_ms + timeout_ms if timeout_ms >= 0 else None
        self._delay_max_ms: Final = delay_max_ms
        self._draw: Final = draw
        self.attempts = 1

    def delay_ms(self, now_ms: int) -> int | None:
        """Return the milliseconds until the next attempt, None if there is no time for one.

        Called once for each failed attempt.
        """
        if self._deadline_ms is not None and now_ms >= self._deadline_ms:
            return None
        delay = RETRY_DELAY_MIN_MS << min(self.attempts - 1, _DOUBLINGS_MAX)
        if delay > self._delay_max_ms:
            # Tasks that failed at the same time do not try again at the same time.
            delay = self._draw(self._delay_max_ms) if self._delay_max_ms > 0 else 0
        self.attempts += 1
        if self._deadline_ms is not None:
            delay = min(delay, self._deadline_ms - now_ms)
        return delay
