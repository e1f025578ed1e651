"""Friendships, as the records of topic `friendship` hold them.

The key is `user LF friend`, and says that the friend may see the devices of the user; the value is
JSON with the time from which on: {"since": 1700000000000}. A tombstone ends it. Two users are
friends here if both may see each other, from the later of the two times on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from consumers.streams.definitions import write_definitions
from waylog.kafka.topics import FRIENDSHIP_TOPIC
from waylog.malformed import MALFORMED


class Friendship(msgspec.Struct, frozen=True):
    """The value of a record of topic `friendship`."""

    since: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # ms since 1970


_decode = msgspec.json.Decoder(Friendship).decode


def decode_friendship(key: str, value: bytes) -> Friendship:
    """Return the friendship of a record; raises ValueError."""
    user, _, friend = key.partition("\n")
    if not user or not friend or user == friend or "/" in key or "\n" in friend:
        raise ValueError("the key is user LF friend")
    try:
        return _decode(value)
    except MALFORMED as error:
        raise ValueError(f"no friendship: {error}") from None


def write_friendships(
    bootstrap_servers: str, friendships: Mapping[tuple[str, str], int | None]
) -> None:
    """Write since when friendships are, by user and friend; None ends one.

    Raises LogUnreachable.
    """
    records = {
        f"{user}\n{friend}": None if since is None else msgspec.json.encode(Friendship(since))
        for (user, friend), since in friendships.items()
    }
    write_definitions(bootstrap_servers, FRIENDSHIP_TOPIC, records, "a friendship")


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
