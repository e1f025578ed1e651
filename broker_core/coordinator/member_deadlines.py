"""Until when the members of a group have to do what they owe it."""

from __future__ import annotations

from enum import Enum


class Wait(Enum):
    """What a member owes; the values are what the log says of one that did not."""

    SESSION = "was not heard of"
    REVOCATION = "did not give up its partitions"
    #: Members of the classic protocol only.
    JOIN = "did not join again"
    SYNC = "did not ask for its partitions"


class MemberDeadlines:
    """Ends of waits in monotonic ms, by member and kind."""

    def __init__(self) -> None:
        self._ends: dict[Wait, dict[str, int]] = {wait: {} for wait in Wait}

    def set(self, member_id: str, wait: Wait, end_ms: int) -> None:
        """Begin to wait, or wait longer."""
        self._ends[wait][member_id] = end_ms

    def set_if_absent(self, member_id: str, wait: Wait, end_ms: int) -> None:
        """Begin to wait unless that has begun."""
        self._ends[wait].setdefault(member_id, end_ms)

    def clear(self, member_id: str, *waits: Wait) -> None:
        """The member has done it, or is no longer asked."""
        for wait in waits:
            self._ends[wait].pop(member_id, None)

    def forget(self, member_id: str) -> None:
        """The member is gone."""
        self.clear(member_id, *Wait)

    def next_deadline(self) -> int | None:
        """When the next wait ends; None if nobody is waited for."""
        return min((end for ends in self._ends.values() for end in ends.values()), default=None)

    def due(self, now_ms: int) -> list[tuple[str, Wait]]:
        """The members that have waited too long."""
        return [
            (member_id, wait)
            for wait, ends in self._ends.items()
            for member_id, end in ends.items()
            if end <= now_ms
        ]
