"""Limits log messages about events that strangers can cause as often as they like."""

from __future__ import annotations

from typing import Final

_SAY_AGAIN_S: Final = 10.0


class LogThrottle:
    """Limits a log message to one every ten seconds."""

    def __init__(self) -> None:
        self._said_at = -_SAY_AGAIN_S
        self._unsaid = 0

    def count(self, now_s: float) -> int | None:
        """Count an event; return the number of earlier ones not logged, or None not to log now.

        `now_s` is from a monotonic clock.
        """
        if now_s - self._said_at < _SAY_AGAIN_S:
            self._unsaid += 1
            return None
        self._said_at = now_s
        unsaid, self._unsaid = self._unsaid, 0
        return unsaid
