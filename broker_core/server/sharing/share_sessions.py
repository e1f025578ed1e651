"""Share sessions: the partitions that each member of a share group reads (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker_core import errors

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        ShareFetchRequestForgottenTopicsData,
        ShareFetchRequestTopic,
    )

_OPENS: Final = 0
CLOSES: Final = -1
_EPOCH_MAX: Final = 2**31 - 1

#: A partition: (topic id, number).
Place = tuple[bytes, int]


class ShareSession:
    """The share session of one member."""

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = _OPENS
        # A dictionary keeps the order: a partition that returned records moves to the end.
        self._places: dict[Place, None] = {}

    def update(
        self,
        topics: Iterable[ShareFetchRequestTopic],
        forgotten: Iterable[ShareFetchRequestForgottenTopicsData],
    ) -> None:
        """Add the partitions in `topics`, and remove those in `forgotten`."""
        for topic in topics:
            for each in topic["partitions"]:
                self._places.setdefault((topic["topic_id"], each["partition_index"]))
        for gone in forgotten:
            for partition in gone["partitions"]:
                self._places.pop((gone["topic_id"], partition), None)

    def places(self) -> list[Place]:
        """Return the partitions in the order in which they are to be read."""
        return list(self._places)

    def served(self, place: Place) -> None:
        """Move a partition that returned records to the end, so that others come first."""
        if place in self._places:
            del self._places[place]
            self._places[place] = None


class ShareSessions:
    """All share sessions of this broker."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def find(self, group_id: str, member_id: str) -> ShareSession | None:
        """Return a member's session, or None."""
        return self._sessions.get((group_id, member_id))

    def open(self, group_id: str, member_id: str) -> ShareSession:
        """Open a session, which replaces an earlier one of the same member.

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
        """Return the session of a request that continues or closes it.

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
        """Remove a session; return whether it was still the member's."""
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        return True


def is_opening(epoch: int) -> bool:
    """Tell whether a request with this epoch opens a session."""
    return epoch == _OPENS
