"""A shared pool with a limit for each party, which is a user, an account or an address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class ShareExceeded(Exception):
    """A party already has its share of a pool, or the pool is nearly empty."""


class Shares:
    """A pool of `total` units, of which a party may hold at most `each`, and at most what is free.

    The second limit is a dynamic threshold (Choudhury and Hahne, 1998): a single party may hold
    half of the pool, and the less the more others hold, so that there is always something left for
    another party.
    """

    def __init__(self, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self._held: dict[str, int] = {}
        self.used = 0

    def held_by(self, party: str) -> int:
        """Return the amount that a party holds."""
        return self._held.get(party, 0)

    def take(self, party: str, amount: int = 1) -> bool:
        """Add `amount` to what a party holds. Return False, and add nothing, if it is too much."""
        if not amount:
            return True
        held = self._held.get(party, 0) + amount
        if held > self._each or held > self._total - self.used:
            return False
        self._held[party] = held
        self.used += amount
        return True

    def give_back(self, party: str, amount: int = 1) -> None:
        """Return units to the pool: all of a `take`, or a part of it."""
        if not amount:
            return
        left = self._held[party] - amount
        if left:
            self._held[party] = left
        else:
            del self._held[party]
        self.used -= amount

    @property
    def is_pressed(self) -> bool:
        """Tell whether at least half of the pool is in use."""
        return 2 * self.used >= self._total

    def pass_on(self, party: str, other: str, amount: int) -> None:
        """Move units from one party to another, even if that exceeds the other's share."""
        if amount:
            self.give_back(party, amount)
            self._held[other] = self._held.get(other, 0) + amount
            self.used += amount

    @contextmanager
    def hold(self, party: str, amount: int = 1) -> Iterator[None]:
        """Hold units for the duration of the context. Raises ShareExceeded."""
        if not self.take(party, amount):
            raise ShareExceeded
        try:
            yield
        finally:
            self.give_back(party, amount)
