"""Friendships, as the records of topic `friendship` hold them.

The key is `user LF friend`, and says that the friend may see the devices of the user; the value is
JSON with the time from which on: {"since": 1700000000000}. A tombstone ends it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from waylog.malformed import MALFORMED


class Friendship(msgspec.Struct, frozen=True):
    """The value of a record of topic `friendship`."""

    since: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]  # ms since 1970


_decode = msgspec.json.Decoder(Friendship).decode


def friendship_key(user: str, friend: str) -> str:
    """Return the key of the record that lets `friend` see the devices of `user`."""
    return f"{user}\n{friend}"


def parse_friendship_key(key: str) -> tuple[str, str]:
    """Return user and friend of a record's key; raises ValueError."""
    user, _, friend = key.partition("\n")
    if not user or not friend or user == friend or "/" in key or "\n" in friend:
        raise ValueError("the key is user LF friend")
    return user, friend


def decode_friendship(key: str, value: bytes) -> Friendship:
    """Return the friendship of a record; raises ValueError."""
    parse_friendship_key(key)
    try:
        return _decode(value)
    except MALFORMED as error:
        raise ValueError(f"no friendship: {error}") from None
