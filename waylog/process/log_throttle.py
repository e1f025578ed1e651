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


def since_last_line(unsaid: int) -> str:
    """Return what a line ends with that stands for so many earlier events as well."""
    return f" ({unsaid} more since the last such line)" if unsaid else ""


class RepeatedFailure:
    """Tells failures of repeated work that are new from those that the last round had, too."""

    def __init__(self) -> None:
        self._last: str | None = None

    def is_new(self, error: BaseException) -> bool:
        """Take note of a failure; return whether it differs from the last round's."""
        last, self._last = self._last, f"{type(error).__name__}: {error}"
        return self._last != last

    def succeeded(self) -> None:
        """Take note of a round without a failure."""
        self._last = None
