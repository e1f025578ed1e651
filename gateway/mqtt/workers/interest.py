"""Topics that clients of other workers subscribe to, coarsely: by their first two levels.

Sans-IO. A worker passes a message on only if a client elsewhere may want it, so that messages of
phones that go only to the log cost no more with many workers than with one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from itertools import islice
from typing import Final, Generic, TypeVar

from gateway.mqtt.packets.topics import EVERYTHING

#: Keys of one worker; a worker with more receives all messages.
_KEYS_MAX: Final = 500_000

#: Keys, and whether they are wanted now.
Changes = list[tuple[str, bool]]


def interest_of(topic_filter: str) -> str | None:
    """Return the key of a granted filter; None if only the platform publishes what it matches."""
    levels = topic_filter.split("/")
    if levels[0] in ("+", "#"):
        return EVERYTHING
    if len(levels) == 1:
        return levels[0]
    if levels[1] in ("+", "#"):
        return f"{levels[0]}/"
    if len(levels) == 4 and levels[0] == "devices" and levels[3] == "address":
        return None
    return f"{levels[0]}/{levels[1]}"


class OwnInterest:
    """The interest of one worker's clients, and its changes that other workers do not know yet."""

    def __init__(self, keys_max: int = _KEYS_MAX) -> None:
        self._counts: Counter[str] = Counter()
        self._changed: dict[str, None] = {}
        self._keys_max = keys_max

    def count(self, topic_filters: Iterable[str], wanted: bool) -> None:
        """Count filters that are subscribed to, or (`wanted` False) no longer."""
        for key in map(interest_of, topic_filters):
            if key is None:
                continue
            before = self._counts[key]
            self._counts[key] = before + (1 if wanted else -1)
            if self._counts[key] <= 0:
                del self._counts[key]
            if (before > 0) != (key in self._counts):
                self._changed[key] = None
                if len(self._counts) > self._keys_max and not self._counts[EVERYTHING]:
                    self._counts[EVERYTHING] = 1  # for good
                    self._changed[EVERYTHING] = None

    @property
    def has_changed(self) -> bool:
        """Return whether there are changes that the other workers do not know yet."""
        return bool(self._changed)

    def take_changes(self, most: int) -> Changes:
        """Remove and return up to `most` changes that the other workers do not know yet."""
        taken = list(islice(self._changed, most))
        for key in taken:
            del self._changed[key]
        return [(key, key in self._counts) for key in taken]

    def tell_all(self) -> None:
        """Mark the whole interest as changed, for a peer that knows nothing of it."""
        self._changed = dict.fromkeys(self._counts)


Worker = TypeVar("Worker", bound=Hashable)


class InterestTable(Generic[Worker]):
    """The interest of all workers; computes what each is to know of the others' interest."""

    def __init__(self) -> None:
        self._wanting: dict[str, set[Worker]] = {}
        self._workers: dict[Worker, None] = {}

    def join(self, worker: Worker) -> Changes:
        """Add a worker; return the interest that it is to be told of."""
        self._workers[worker] = None
        return [(key, True) for key, wanting in self._wanting.items() if wanting - {worker}]

    def leave(self, worker: Worker) -> dict[Worker, Changes]:
        """Remove a worker; return the changes that the others are to be told of."""
        self._workers.pop(worker, None)
        lost = [(key, False) for key, wanting in self._wanting.items() if worker in wanting]
        return self.change(worker, lost)

    def change(self, worker: Worker, changes: Iterable[tuple[str, bool]]) -> dict[Worker, Changes]:
        """Change a worker's interest; return the changes that the others are to be told of."""
        news: dict[Worker, Changes] = {}
        for key, wanted in changes:
            wanting = self._wanting.setdefault(key, set())
            before = len(wanting)
            if wanted:
                wanting.add(worker)
            else:
                wanting.discard(worker)
            after = len(wanting)
            if before != after:
                # If two or more want a key, each has another one that wants it; if only one does,
                # that one has none.
                fewest = min(before, after)
                told = (
                    [each for each in self._workers if each is not worker]
                    if fewest == 0
                    else [each for each in wanting if each is not worker]
                    if fewest == 1
                    else []
                )
                for each in told:
                    news.setdefault(each, []).append((key, wanted))
            if not wanting:
                del self._wanting[key]
        return news

    def wanting(self, topic: str, publisher: Worker) -> set[Worker]:
        """Return the workers, except the publisher's, that may want a message."""
        first, slash, rest = topic.partition("/")
        keys = [EVERYTHING, first, f"{first}/"]
        if slash:
            keys.append(f"{first}/{rest.partition('/')[0]}")
        found: set[Worker] = set()
        for key in keys:
            found |= self._wanting.get(key, set())
        found.discard(publisher)
        return found
