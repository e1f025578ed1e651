"""Who is a friend of whom, by topic `friendship` (waylog.friendships).

Two users are friends here if both may see each other, from the later of the two times on.
"""

from __future__ import annotations

from waylog.friendships import Friendship


class Friends:
    """All friendships. Used in one thread."""

    def __init__(self) -> None:
        self._since: dict[str, dict[str, int]] = {}

    def put(self, key: str, friendship: Friendship | None) -> None:
        """Take a record, None for a tombstone."""
        user, _, friend = key.partition("\n")
        if friendship is not None:
            self._since.setdefault(user, {})[friend] = friendship.since
            return
        friends = self._since.get(user)
        if friends is not None:
            friends.pop(friend, None)
            if not friends:
                del self._since[user]

    def has_any(self, user: str) -> bool:
        """Tell whether anybody may see a user's devices."""
        return user in self._since

    def are_friends(self, user: str, other: str, time: int) -> bool:
        """Tell whether both may see each other at a time in ms."""
        since = self._since.get(user, {}).get(other)
        back = self._since.get(other, {}).get(user)
        return since is not None and back is not None and max(since, back) <= time
