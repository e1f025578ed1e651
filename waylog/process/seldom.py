"""Lines of the log about what strangers can bring about as often as they like."""

from __future__ import annotations

from typing import Final

_SAY_AGAIN_S: Final = 10.0


class SeldomSaid:
    """Something that is said every ten seconds at most."""

    def __init__(self) -> None:
        self._said_at = -_SAY_AGAIN_S
        self._unsaid = 0

    def count(self, now_s: float) -> int | None:
        """It has happened: how often before without being said, or None to say nothing now.

        `now_s` is of a clock that does not jump.
        """
        if now_s - self._said_at < _SAY_AGAIN_S:
            self._unsaid += 1
            return None
        self._said_at = now_s
        unsaid, self._unsaid = self._unsaid, 0
        return unsaid
