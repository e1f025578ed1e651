"""Deadlines by which members of a consumer group have to act."""

from __future__ import annotations

from enum import Enum


class Wait(Enum):
    """An action that a member has to take; the values are log texts for members that did not."""

    SESSION = "was not heard of"
    REVOCATION = "did not give up its partitions"
    #: Members of the classic protocol only.
    JOIN = "did not join again"
    SYNC = "did not ask for its partitions"


class MemberDeadlines:
    """Deadlines in monotonic ms, by member and kind."""

    def __init__(self) -> None:
        self._ends: dict[Wait, dict[str, int]] = {wait: {} for wait in Wait}

    def set(self, member_id: str, wait: Wait, end_ms: int) -> None:
        """Set or replace a deadline."""
        self._ends[wait][member_id] = end_ms

    def set_if_absent(self, member_id: str, wait: Wait, end_ms: int) -> None:
        """Set a deadline unless it is set already."""
        self._ends[wait].setdefault(member_id, end_ms)

    def clear(self, member_id: str, *waits: Wait) -> None:
        """Remove deadlines that the member has met or that no longer apply."""
        for wait in waits:
            self._ends[wait].pop(member_id, None)

    def forget(self, member_id: str) -> None:
        """Remove all deadlines of a member."""
        self.clear(member_id, *Wait)

    def next_deadline(self) -> int | None:
        """Return the next deadline; None if there is none."""
        return min((end for ends in self._ends.values() for end in ends.values()), default=None)

    def due(self, now_ms: int) -> list[tuple[str, Wait]]:
        """Return the members whose deadlines have passed, with the action that they missed."""
        return [
            (member_id, wait)
            for wait, ends in self._ends.items()
            for member_id, end in ends.items()
            if end <= now_ms
        ]
