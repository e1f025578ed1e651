"""When a leader answers the followers that wait: at once, or a little later with more.

An answer costs leader and followers the same whether it has the records of one append or of many:
where appends come faster than the interval, they gather. That must not slow down producers that
send the next records only when the last are acknowledged. During such a wait nothing more comes:
it is followed by ever more answers without one.
"""

from __future__ import annotations

from typing import Final

#: Answers without a wait, at most, before it is tried again whether one gathers something.
_AT_ONCE_MAX: Final = 64


class AnswerPace:
    """Decides for all followers of a leader together; times are monotonic seconds."""

    __slots__ = ("_appended_at", "_at_once", "_at_once_next", "_interval", "_last", "_moments")

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last = float("-inf")  # answer
        # How many moments there were since then at which something was appended, and the last.
        self._moments = 0
        self._appended_at = float("-inf")
        # How many answers are not to wait now, and how many after the next useless wait.
        self._at_once = 0
        self._at_once_next = 1

    def appended(self, now: float) -> float:
        """Something is there to be told: when to tell it."""
        if now != self._appended_at:
            self._appended_at = now
            self._moments += 1
        if self._at_once:
            return now
        return max(now, self._last + self._interval)

    def answered(self, now: float, *, has_waited: bool) -> None:
        """Followers have been told what has been appended; whether after a wait."""
        if self._at_once:
            self._at_once -= 1
        elif has_waited:
            if self._moments > 1 and now - self._appended_at <= self._interval / 2:
                self._at_once_next = 1
            else:
                self._at_once = self._at_once_next
                self._at_once_next = min(2 * self._at_once_next, _AT_ONCE_MAX)
        self._moments = 0
        self._last = now
