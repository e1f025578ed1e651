"""Queues of parties that are served one after the other; sans-IO."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class PartyQueues(Generic[T]):
    """A queue for each party. Each operation but `drop` takes the same time whatever waits."""

    def __init__(self) -> None:
        # The party that is served next is the first.
        self._queues: dict[str, deque[T]] = {}
        #: The number of items.
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def add(self, party: str, item: T) -> None:
        """Add an item at the end of a party's queue."""
        self._queues.setdefault(party, deque()).append(item)
        self.size += 1

    def put_back(self, party: str, item: T) -> None:
        """Add an item of which something is left at the beginning of its party's queue."""
        self._queues.setdefault(party, deque()).appendleft(item)
        self.size += 1

    def next(self) -> tuple[str, T]:
        """Take the oldest item of the party whose turn it is; return both.

        Raises StopIteration if there is none.
        """
        party = next(iter(self._queues))
        queue = self._queues.pop(party)
        item = queue.popleft()
        if queue:
            self._queues[party] = queue
        self.size -= 1
        return party, item

    def drop(self) -> T:
        """Take the oldest item of the party with the most, in time linear in the parties.

        Raises ValueError if there is none.
        """
        party = max(self._queues, key=lambda each: len(self._queues[each]))
        queue = self._queues[party]
        item = queue.popleft()
        if not queue:
            del self._queues[party]
        self.size -= 1
        return item
