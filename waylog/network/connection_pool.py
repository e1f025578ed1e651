"""Connections that a process, or a part of it, may hold; none of those who connect takes them all.

A connection is a file that the process has open, and costs whoever opens it nothing. So accounts of
this machine have shares as addresses have: ports of loopback are open to all of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from waylog.process.seldom import SeldomSaid

logger = logging.getLogger(__name__)

#: Names the party of a connection; one whose name is empty may have all (waylog.network.peer_parties).
PartyOf = Callable[[asyncio.BaseTransport], str]


class ConnectionPool:
    """So many connections.

    Up to half of them nobody is asked who it is: that is where a pool is nearly always. From there
    on a party holds no more than it leaves free for all others, a dynamic threshold (Choudhury and
    Hahne, 1998). Alone it ends at three quarters of the pool, and whoever comes next finds room.
    """

    def __init__(
        self,
        total: int,
        party_of: PartyOf | None = None,
        *,
        name: str = "this process",
        within: ConnectionPool | None = None,
    ) -> None:
        """Without `party_of` nobody is asked; `name` is for lines of the log."""
        #: May change at any time.
        self.total = total
        self.used = 0
        self._party_of = party_of
        self._name = name
        self._within = within
        # Of the connections that were asked.
        self._held: dict[str, int] = {}
        self._refusals = SeldomSaid()

    def part(self, total: int, name: str) -> ConnectionPool:
        """A pool whose connections take up room in this one, too."""
        return ConnectionPool(total, self._party_of, name=name, within=self)

    @property
    def is_full(self) -> bool:
        """Tell whether nobody finds room any more."""
        return self.used >= self.total or (self._within is not None and self._within.is_full)

    def enter(self, transport: asyncio.BaseTransport) -> str | None:
        """Count a connection; None (and not counted) where there is no room for it.

        Returns the party that `leave` has to be told. A party that has its share already is named
        in the log.
        """
        if self.is_full:
            return None
        party = ""
        if self._party_of is not None and self._is_pressed():
            party = self._party_of(transport)
            crowded = self._crowded_by(party) if party else None
            if crowded is not None:
                self._say(party, crowded)
                return None
        self._change(party, 1)
        return party

    def leave(self, party: str) -> None:
        """A connection that was counted has ended."""
        self._change(party, -1)

    def party_of(self, transport: asyncio.BaseTransport) -> str:
        """The party of a connection, whether it is counted or not."""
        return "" if self._party_of is None else self._party_of(transport)

    def _is_pressed(self) -> bool:
        within = self._within
        return 2 * self.used >= self.total or (within is not None and within._is_pressed())

    def _crowded_by(self, party: str) -> ConnectionPool | None:
        """This pool or one around it, of which a party has its share already."""
        if self._held.get(party, 0) >= self.total - self.used:
            return self
        return None if self._within is None else self._within._crowded_by(party)

    def _say(self, party: str, crowded: ConnectionPool) -> None:
        unsaid = self._refusals.count(time.monotonic())
        if unsaid is not None:
            logger.warning(
                "%s: a connection of %s is refused, which has its share: of those of %s %d of %d "
                "are taken, and from half of them on nobody has more than is free%s",
                self._name,
                party,
                crowded._name,
                crowded.used,
                crowded.total,
                f" ({unsaid} more were refused before)" if unsaid else "",
            )

    def _change(self, party: str, by: int) -> None:
        self.used += by
        if party:
            held = self._held.get(party, 0) + by
            if held:
                self._held[party] = held
            else:
                del self._held[party]
        if self._within is not None:
            self._within._change(party, by)
