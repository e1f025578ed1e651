"""Holds on the shares of a pool, and turns of parties, which are users or addresses.

`waylog.network.shares` refuses more than a party's share. `Turns` makes it wait, in turn with the
other parties that wait.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from waylog.network.shares import ShareExceeded, Shares


class Hold:
    """Units that a party holds for one piece of work, until the log has answered all of it."""

    def __init__(self, shares: Shares, party: str, amount: int) -> None:
        """Raises ShareExceeded."""
        self._shares = shares
        self._party = party
        self._amount = 0
        self._waiting = 0
        self.grow(amount)

    def grow(self, amount: int) -> None:
        """Hold `amount` more. Raises ShareExceeded."""
        if not self._shares.take(self._party, amount):
            raise ShareExceeded
        self._amount += amount

    def keep_until(self, futures: Iterable[asyncio.Future[Any]]) -> None:
        """Release only when all of these are done, even if nobody waits for them any more."""
        for future in futures:
            self._waiting += 1
            future.add_done_callback(self._one_done)

    def _one_done(self, _: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        self.release()

    def release(self) -> None:
        """Return the units to the pool, unless the log has still to answer."""
        if not self._waiting and self._amount:
            amount, self._amount = self._amount, 0
            self._shares.give_back(self._party, amount)


class Turns:
    """Limits concurrency to `total`, and to `each` per party; used on one event loop.

    A party that waits gets a turn after at most one turn of every other waiting party. Waiting
    costs a future, so the number of waiters is limited by the callers, or by `waiting_each`.
    """

    def __init__(self, total: int, each: int, waiting_each: int | None = None) -> None:
        self._free = total
        self._each = each
        self._waiting_each = waiting_each
        self._running: dict[str, int] = {}
        # The first is the party that has waited longest for a turn.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, party: str) -> AsyncIterator[None]:
        """Wait for a turn and hold it in the context. Raises ShareExceeded if too many wait."""
        if not self._begin(party):
            await self._wait(party)
        try:
            yield
        finally:
            self._end(party)

    def _begin(self, party: str) -> bool:
        running = self._running.get(party, 0)
        if not self._free or running >= self._each:
            return False
        self._free -= 1
        self._running[party] = running + 1
        return True

    async def _wait(self, party: str) -> None:
        waiting = self._waiting.get(party)
        if waiting is None:
            waiting = self._waiting[party] = deque()
        elif self._waiting_each is not None and len(waiting) >= self._waiting_each:
            raise ShareExceeded
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._end(party)  # the turn had just come
            else:
                self._leave(party, future)
            raise

    def _leave(self, party: str, future: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(party)
        if waiting is not None and future in waiting:
            waiting.remove(future)
            if not waiting:
                del self._waiting[party]

    def _end(self, party: str) -> None:
        running = self._running[party] - 1
        if running:
            self._running[party] = running
        else:
            del self._running[party]
        self._free += 1
        for other in list(self._waiting):
            if not self._free:
                return
            if self._begin(other):
                self._call(other)

    def _call(self, party: str) -> None:
        """Give a turn to the first waiter of a party, and move the party to the end."""
        waiting = self._waiting.pop(party)
        future = waiting.popleft()
        if waiting:
            self._waiting[party] = waiting
        if not future.done():
            future.set_result(None)
        else:
            self._end(party)
