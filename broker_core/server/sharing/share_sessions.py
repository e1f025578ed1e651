"""Share sessions: what each member of a share group reads, from request to request (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from broker_core import errors

_OPENS: Final = 0
CLOSES: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

#: A partition by its topic's id.
Place = tuple[bytes, int]


class ShareSession:
    """One member's."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = _OPENS
        # A dictionary for its order: who was given records goes behind the others.
        self._places: dict[Place, None] = {}

    def update(self, topics: Iterable[dict[str, Any]], forgotten: Iterable[dict[str, Any]]) -> None:
        """Read these too, and those no longer."""
        for topic in topics:
            for each in topic["partitions"]:
                self._places.setdefault((topic["topic_id"], each["partition_index"]))
        for topic in forgotten:
            for partition in topic["partitions"]:
                self._places.pop((topic["topic_id"], partition), None)

    def places(self) -> list[Place]:
        """What it reads, in the order in which it should be looked at."""
        return list(self._places)

    def served(self, place: Place) -> None:
        """Records of a partition were given: the others come first the next time."""
        if place in self._places:
            del self._places[place]
            self._places[place] = None


class ShareSessions:
    """All sessions of this broker."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def find(self, group_id: str, member_id: str) -> ShareSession | None:
        """A member's session, if there is one."""
        return self._sessions.get((group_id, member_id))

    def open(self, group_id: str, member_id: str) -> ShareSession:
        """A new session in the place of the one that there may be.

        Raises ShareSessionLimitReached.
        """
        key = (group_id, member_id)
        if key not in self._sessions and len(self._sessions) >= self._sessions_max:
            raise errors.ShareSessionLimitReached(
                f"There are {self._sessions_max} share sessions already."
            )
        session = self._sessions[key] = ShareSession(group_id, member_id)
        return session

    def go_on(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """The session that a request goes on with, or closes.

        Raises ShareSessionNotFound, InvalidShareSessionEpoch.
        """
        session = self.find(group_id, member_id)
        if session is None:
            raise errors.ShareSessionNotFound()
        if epoch != CLOSES:
            following = session.epoch % _EPOCH_MAX + 1
            if epoch != following:
                raise errors.InvalidShareSessionEpoch(
                    f"The share session's next epoch is {following}, not {epoch}."
                )
            session.epoch = epoch
        return session

    def has_group(self, group_id: str) -> bool:
        """Tell whether a member of a group has a session."""
        return any(each == group_id for each, _ in self._sessions)

    def close(self, session: ShareSession) -> bool:
        """Forget a session; returns whether it was still the member's."""
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        return True


def is_opening(epoch: int) -> bool:
    """Tell whether a request with this epoch begins a session."""
    return epoch == _OPENS
