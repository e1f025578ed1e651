"""Limits on the number of connections, on the rate of new ones, and on incomplete requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from broker_core.server.network.incomplete_requests import IncompleteRequests
from waylog.network.connection_pool import ConnectionPool
from waylog.network.peer_parties import party_of

#: Seconds that a new connection waits at most; else a burst would block all clients for minutes.
_PAUSE_S_MAX: Final = 1.0
_ADDRESSES_MAX: Final = 10_000


class ConnectionRefused(Exception):
    """A connection is over a limit. The message names it; it is empty if that has been logged."""


class ConnectionLimits:
    """The limits of all listeners together, and their counts. Limits may change at any time."""

    def __init__(
        self,
        connections_max: int,
        connections_per_ip_max: int = 2**31 - 1,
        per_ip_overrides: Mapping[str, int] | None = None,
        creation_rate_max: float = 2**31 - 1,
        request_bytes_max: int = 2**63 - 1,
        creation_rate_of: Callable[[str], float | None] | None = None,
        pool: ConnectionPool | None = None,
    ) -> None:
        """`pool` counts connections of several such objects; without it this one has its own."""
        whole = pool or ConnectionPool(2**31 - 1)
        self._pool = whole.part(connections_max, "max.connections")
        self.connections_per_ip_max = connections_per_ip_max
        self.per_ip_overrides = per_ip_overrides or {}
        #: New connections a second, of all clients.
        self.creation_rate_max = creation_rate_max
        #: What requests that have not arrived completely occupy, in all connections.
        self.incomplete = IncompleteRequests(request_bytes_max)
        #: Returns the new connections a second that one address may open, None for no limit.
        self.creation_rate_of = creation_rate_of
        self.refused = 0
        self._by_ip: Counter[str] = Counter()
        self._next_creation_s = 0.0
        self._next_of_ip_s: dict[str, float] = {}

    @property
    def connections_max(self) -> int:
        """The setting max.connections."""
        return self._pool.total

    @connections_max.setter
    def connections_max(self, value: int) -> None:
        self._pool.total = value

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return self._pool.used

    def enter(self, host: str, transport: asyncio.BaseTransport) -> str:
        """Count a connection; return its party, which `leave` needs.

        Raises ConnectionRefused.
        """
        try:
            limit = self.per_ip_overrides.get(host, self.connections_per_ip_max)
            if self._by_ip[host] >= limit:
                raise ConnectionRefused(f"max.connections.per.ip={limit}")
            party = self._pool.enter(transport)
            if party is None and self._pool.used >= self.connections_max:
                raise ConnectionRefused(f"max.connections={self.connections_max}")
            if party is None and self._pool.is_full:
                raise ConnectionRefused("this process may hold no more files open (ulimit -n)")
            if party is None:
                raise ConnectionRefused
        except ConnectionRefused:
            self.refused += 1
            raise
        self._by_ip[host] += 1
        return party

    def party_of(self, host: str, transport: asyncio.BaseTransport) -> str:
        """Return a connection's party: an account of this machine, or else the client's address."""
        return self._pool.party_of(transport) or party_of(host)

    def leave(self, host: str, party: str) -> None:
        """Stop counting a connection that is gone."""
        self._pool.leave(party)
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]

    def creation_pause_s(self, host: str, now_s: float) -> float:
        """Return the seconds that a new connection must wait to keep to the allowed rates."""
        pause_s = 0.0
        if self.creation_rate_max < 2**31 - 1:
            self._next_creation_s = _next(self._next_creation_s, now_s, self.creation_rate_max)
            pause_s = self._next_creation_s - now_s
        rate = self.creation_rate_of(host) if self.creation_rate_of is not None else None
        if rate is not None:
            if len(self._next_of_ip_s) >= _ADDRESSES_MAX:
                self._next_of_ip_s.clear()
            next_s = _next(self._next_of_ip_s.get(host, 0.0), now_s, rate)
            self._next_of_ip_s[host] = next_s
            pause_s = max(pause_s, next_s - now_s)
        return min(max(pause_s, 0.0), _PAUSE_S_MAX)


def _next(due_s: float, now_s: float, rate: float) -> float:
    """Return when the next connection is due; a burst of one second's worth is allowed."""
    return max(due_s, now_s - 1.0) + 1 / rate
