"""The weight of each user's data in a shared pool, and the user with the most."""

from __future__ import annotations

import heapq
from typing import Final

#: A user with less weight than this is never the first to be asked to free something.
FAIR_WEIGHT: Final = 8
_NEWS: Final = 1.25
#: Bytes per unit of weight; every value counts as one more.
WEIGHT_BYTES: Final = 512


class UserWeights:
    """The weight of each user's part of one pool.

    A change costs O(1), or O(log n) when a weight has grown by a quarter.
    """

    def __init__(self) -> None:
        self.weight = 0
        self._weights: dict[str, int] = {}
        # Max-heap of weights at the time of the push; an entry is valid if `_listed` has the same
        # weight.
        self._heap: list[tuple[int, str]] = []
        self._listed: dict[str, int] = {}

    def of(self, user: str) -> int:
        """Return the weight of a user's part."""
        return self._weights.get(user, 0)

    def change(self, user: str, by: int) -> None:
        """Add `by`, which may be negative, to a user's weight."""
        weight = self._weights.get(user, 0) + by
        self.weight += by
        if weight:
            self._weights[user] = weight
        else:
            self._weights.pop(user, None)
        if by > 0 and weight >= FAIR_WEIGHT and weight >= _NEWS * self._listed.get(user, 0):
            self._list(user, weight)

    def heaviest(self) -> str | None:
        """Return a user with at least 64 % of the greatest weight; None if nobody has much."""
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
