"""Where a connection comes from, and what it counts for while it is open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway.http.plain.shared_state import SharedState
from gateway.http.requests.authentication import stranger_party
from gateway.limits.addresses import is_loopback
from waylog.network.peer_parties import party_of


class Origin:
    """The address of a connection, and its places in the pool and among those of the address."""

    __slots__ = (
        *("_counted", "_pool_party", "_shared", "_transport"),
        *("address", "is_local", "party", "stranger"),
    )

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._transport: asyncio.BaseTransport | None = None
        # None if the connection holds no place in the pool.
        self._pool_party: str | None = None
        self._counted = False
        #: The address of the client, or of a proxy if that has not named another one.
        self.address = ""
        self.is_local = False
        #: Who is charged for bytes of which no user is known.
        self.party = ""
        #: The party of a turn of the loop for whoever has not signed in.
        self.stranger = ""

    def enter(self, transport: asyncio.BaseTransport) -> str | None:
        """Take a place in the pool. Return why the connection is refused, if it is."""
        peer = transport.get_extra_info("peername")
        self._comes_from(peer[0] if isinstance(peer, tuple) and peer else "")
        pool = self._shared.pool
        self._pool_party = pool.enter(transport)
        if self._pool_party is None:
            self._shared.services.metrics.connections_refused += 1
            return "too many connections" if pool.is_full else "too many connections of yours"
        self._transport = transport
        return None

    @property
    def is_proxy(self) -> bool:
        """Tell whether a PROXY header has to name the client."""
        services = self._shared.services
        return services.proxy_protocol and self.address in services.proxies

    def passes_on(self, address: str) -> None:
        """Take a proxy's word for the address of the client."""
        self._comes_from(address)
        if self._transport is not None:
            self._shared.services.remotes[self._transport] = address

    def count(self) -> str | None:
        """Count the connection for its address. Return why it is refused, if it is."""
        if not self._shared.addresses.connect(self.address):
            self._shared.services.metrics.connections_refused += 1
            return "too many connections from your address"
        self._counted = True
        return None

    def client(self, headers: Mapping[str, str]) -> str:
        """Return the address of who has sent these headers, perhaps by way of a proxy."""
        return self._shared.services.proxies.client(self.address, headers.get("X-Forwarded-For"))

    def find_account(self) -> None:
        """Let the account of a local client be charged from now on, not only this connection."""
        if self._transport is not None and self.party == self._own_party:
            self.party = self._shared.pool.party_of(self._transport) or self.party

    def leave(self) -> None:
        """Give the places back: the connection has ended."""
        self._shared.services.remotes.pop(self._transport, None)
        self._transport = None
        if self._pool_party is not None:
            self._shared.pool.leave(self._pool_party)
            self._pool_party = None
        if self._counted:
            self._shared.addresses.disconnect(self.address)

    def _comes_from(self, address: str) -> None:
        self.address = address
        self.is_local = is_loopback(address)
        # The client behind a proxy on this machine is not known yet, so each connection counts
        # alone.
        self.party = self._own_party if self.is_local else party_of(address)
        self.stranger = stranger_party(address, self._shared.services.proxies, self)

    @property
    def _own_party(self) -> str:
        return f"{self.address} {id(self)}"
