"""Limits the connections of a process, or of a part of it, so that no client takes them all.

A connection takes a file descriptor of the process, and costs the client nothing. Local accounts
have shares as addresses have, because ports of loopback are open to all accounts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

#: Returns the party (account or address) of a connection; a party with an empty name has no limit
#: (waylog.network.peer_parties).
PartyOf = Callable[[asyncio.BaseTransport], str]


class ConnectionPool:
    """A bounded number of connections, shared between parties.

    Up to half of the total no party is determined, since that takes time and is rarely needed.
    Above it a party may hold no more connections than are free for all others, a dynamic threshold
    (Choudhury and Hahne, 1998). A single party gets at most three quarters of the pool, so that
    other parties still find room.
    """

    def __init__(
        self,
        total: int,
        party_of: PartyOf | None = None,
        *,
        name: str = "this process",
        within: ConnectionPool | None = None,
    ) -> None:
        """Without `party_of`, parties have no limits; `name` appears in log messages."""
        #: May change at any time.
        self.total = total
        self.used = 0
        self._party_of = party_of
        self._name = name
        self._within = within
        # The connections of each party that was determined.
        self._held: dict[str, int] = {}
        self._refusals = LogThrottle()

    def part(self, total: int, name: str) -> ConnectionPool:
        """Return a pool whose connections count in this one, too."""
        return ConnectionPool(total, self._party_of, name=name, within=self)

    @property
    def is_full(self) -> bool:
        """True if there is no room for any connection."""
        return self.used >= self.total or (self._within is not None and self._within.is_full)

    def enter(self, transport: asyncio.BaseTransport) -> str | None:
        """Count a connection; return its party for `leave`, or None if there is no room for it.

        A connection without room is not counted. If its party is at its limit, the log names it.
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
        """Stop counting a connection that has ended."""
        self._change(party, -1)

    def party_of(self, transport: asyncio.BaseTransport) -> str:
        """Return the party of a connection, whether it is counted or not."""
        return "" if self._party_of is None else self._party_of(transport)

    def _is_pressed(self) -> bool:
        within = self._within
        return 2 * self.used >= self.total or (within is not None and within._is_pressed())

    def _crowded_by(self, party: str) -> ConnectionPool | None:
        """Return this pool or one around it in which the party is at its limit, if any."""
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
