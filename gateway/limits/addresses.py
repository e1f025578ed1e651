"""Limits on connections and requests per address; for guesses see gateway.limits.failed_logins.

Addresses are grouped to parties (waylog.network.peer_parties). Loopback is not limited: its
connections come from a proxy, or from this machine, whose accounts have shares of the listeners'
connections.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from gateway.limits.bounds import HttpLimits
from waylog.network.peer_parties import party_of
from waylog.network.token_bucket import TokenBucket

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_ADDRESSES_MAX: Final = 50_000


@lru_cache(maxsize=4096)
def is_loopback(host: str) -> bool:
    """Tell whether a host is 127.0.0.0/8, ::1 or localhost."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class TrustedProxies:
    """The networks of reverse proxies whose X-Forwarded-For is trusted."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        """Raises ValueError for an invalid network."""
        self._networks: list[Network] = [ipaddress.ip_network(each) for each in networks]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        if not self._networks:
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._networks)

    def client(self, peer: str, forwarded_for: str | None) -> str:
        """Return the address of the client behind trusted proxies.

        It is the last address in `X-Forwarded-For` that is not a trusted proxy: everything to its
        left may be forged.
        """
        if forwarded_for is None or peer not in self:
            return peer
        for hop in reversed(forwarded_for.split(",")):
            address = hop.strip()
            try:
                ipaddress.ip_address(address)
            except ValueError:
                return peer
            peer = address
            if address not in self:
                return address
        return peer


class _Party:
    __slots__ = ("connections", "requests")

    def __init__(self, requests: TokenBucket) -> None:
        self.connections = 0
        self.requests = requests


class Addresses:
    """Connections and requests by address, of one listener, on one event loop."""

    def __init__(self, limits: HttpLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._parties: OrderedDict[str, _Party] = OrderedDict()

    def __len__(self) -> int:
        return len(self._parties)

    def connect(self, address: str) -> bool:
        """Count a connection. Return False, and do not count it, if the address has too many."""
        if is_loopback(address):
            return True
        party = self._party(address)
        if party.connections >= self._limits.connections_per_address_max:
            return False
        party.connections += 1
        return True

    def disconnect(self, address: str) -> None:
        """Count the end of a connection."""
        party = self._parties.get(party_of(address))
        if party is not None and party.connections > 0:
            party.connections -= 1

    def may_ask(self, address: str) -> bool:
        """Count a request. Return False if the address sends too many."""
        return is_loopback(address) or self._party(address).requests.take()

    def _party(self, address: str) -> _Party:
        key = party_of(address)
        party = self._parties.get(key)
        if party is not None:
            self._parties.move_to_end(key)
            return party
        party = self._parties[key] = _Party(
            TokenBucket(self._limits.requests_per_s_per_address, self._clock)
        )
        if len(self._parties) > _ADDRESSES_MAX:
            self._forget_one()
        return party

    def _forget_one(self) -> None:
        # An address with connections is kept, or their count would become wrong.
        for key, party in self._parties.items():
            if not party.connections:
                del self._parties[key]
                return
        self._parties.popitem(last=False)
