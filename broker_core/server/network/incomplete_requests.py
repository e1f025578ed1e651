"""Bounds the memory of requests that have not arrived completely or that nobody has taken yet."""

from __future__ import annotations

from typing import Protocol


class Holder(Protocol):
    """A connection that has received a part of a request, or requests that wait."""

    #: Time since which it has them; None if it has none.
    frame_since: float | None

    def drop(self, reason: str) -> None:
        """Close at once and reserve nothing; log the reason."""


class _Party:
    """What the connections of one user or address occupy."""

    __slots__ = ("bytes", "holders")

    def __init__(self) -> None:
        self.bytes = 0
        self.holders: set[Holder] = set()


class IncompleteRequests:
    """Counts bytes of all listeners' connections; beyond the limit the largest party loses some."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        #: Bytes that are occupied, of all parties.
        self.bytes = 0
        self._parties: dict[str, _Party] = {}

    def resize(self, party: str, holder: Holder, former: int, size: int) -> None:
        """Count `size` bytes of a connection instead of `former`.

        Above the limit, drop the connections with the oldest requests of the party that occupies
        most: O(parties + connections of that party).
        """
        of_party = self._parties.setdefault(party, _Party())
        self.bytes += size - former
        of_party.bytes += size - former
        if size:
            of_party.holders.add(holder)
        else:
            of_party.holders.discard(holder)
            if not of_party.holders:
                del self._parties[party]
        if size > former:
            self._make_room()

    def _make_room(self) -> None:
        while self.bytes > self.bytes_max:
            name, largest = max(self._parties.items(), key=lambda each: each[1].bytes)
            oldest = min(largest.holders, key=lambda each: each.frame_since or 0.0)
            oldest.drop(
                f"queued.max.request.bytes={self.bytes_max}: {name} has most of it, and this is "
                "its oldest request"
            )
