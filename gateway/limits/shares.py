"""Parts of a pool that all users share, and the user who has most of it."""

from __future__ import annotations

import heapq
from typing import Final

#: Who has less than this is never asked to give something back before others.
FAIR_WEIGHT: Final = 8
_NEWS: Final = 1.25
#: A value counts as one, and once more for each of so many bytes.
WEIGHT_BYTES: Final = 512


class UserShares:
    """The weight of each user's part of one pool.

    Changes cost O(1), but for a logarithm at each growth by a quarter.
    """

    def __init__(self) -> None:
        self.weight = 0
        self._weights: dict[str, int] = {}
        # Weights as they were when they were put here, greatest first; `_listed` has the valid one.
        self._heap: list[tuple[int, str]] = []
        self._listed: dict[str, int] = {}

    def of(self, user: str) -> int:
        """The weight of what a user has."""
        return self._weights.get(user, 0)

    def change(self, user: str, by: int) -> None:
        """A user has more, or less."""
        weight = self._weights.get(user, 0) + by
        self.weight += by
        if weight:
            self._weights[user] = weight
        else:
            self._weights.pop(user, None)
        if by > 0 and weight >= FAIR_WEIGHT and weight >= _NEWS * self._listed.get(user, 0):
            self._list(user, weight)

    def heaviest(self) -> str | None:
        """A user who has most, or at least 64 % of that; None when nobody has much."""
        while self._heap:
            weight, user = -self._heap[0][0], self._heap[0][1]
            now = self._weights.get(user, 0)
            if self._listed.get(user) != weight:
                heapq.heappop(self._heap)
            elif now < FAIR_WEIGHT:
                heapq.heappop(self._heap)
                del self._listed[user]
            elif _NEWS * now < weight:
                heapq.heappop(self._heap)
                self._list(user, now)
            else:
                return user
        return None

    def _list(self, user: str, weight: int) -> None:
        self._listed[user] = weight
        heapq.heappush(self._heap, (-weight, user))
