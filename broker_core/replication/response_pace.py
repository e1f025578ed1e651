"""Pacing of a leader's responses to waiting followers: at once, or a little later with more.

A response costs leader and followers the same whether it has the records of one append or of many.
If appends come faster than the interval, they are gathered in one response. That must not slow down
producers that wait for an acknowledgement before they send more: during such a wait no further
append comes. A useless wait is therefore followed by a growing number of responses without one.
"""

from __future__ import annotations

from typing import Final

#: Most responses without a wait, before the next wait is tried.
_AT_ONCE_MAX: Final = 64


class FollowerResponsePacer:
    """Decides for all followers of a leader together; times are monotonic seconds."""

    __slots__ = ("_appended_at", "_at_once", "_at_once_next", "_interval", "_last", "_moments")

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last = float("-inf")  # when the last response was sent
        # Number of distinct times since then at which something was appended, and the last of them.
        self._moments = 0
        self._appended_at = float("-inf")
        # The number of responses that do not wait, now and after the next useless wait.
        self._at_once = 0
        self._at_once_next = 1

    def appended(self, now: float) -> float:
        """Record an append; return when to respond to the followers."""
        if now != self._appended_at:
            self._appended_at = now
            self._moments += 1
        if self._at_once:
            return now
        return max(now, self._last + self._interval)

    def answered(self, now: float, *, has_waited: bool) -> None:
        """Record that followers got the appended records, and whether they had to wait."""
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
