"""Names the party that a connection counts for: a local account, or an address.

An address is an IPv4 address or the /64 network of an IPv6 address: the owner of one address in it
has all of them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from typing import Final, Self

from waylog.network.local_peers.accounts import LocalAccounts
from waylog.network.local_peers.connection_ends import ConnectionEnds
from waylog.network.local_peers.peers import LocalAddresses

#: The party of connections that are not limited: of root and the account that runs this process.
OWN: Final = ""
#: The shared party of local connections whose account the kernel does not tell.
_UNTOLD: Final = "an account of this machine"
_ROOT: Final = 0


def party_of(address: str) -> str:
    """Return the party of an address: the address itself, or the /64 of IPv6."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


class ClientIdentifier:
    """Asks the kernel for the account of a connection, in about 15 us.

    Before it is opened, and where the kernel does not tell, all local accounts are one party,
    including root's and our own.
    """

    def __init__(self, *, count_addresses: bool = True) -> None:
        """Without `count_addresses`, connections from other machines are not limited either."""
        self._count_addresses = count_addresses
        self._own = frozenset((_ROOT, os.geteuid()))
        self._accounts = LocalAccounts(None)
        self._addresses = LocalAddresses(None)

    def open(self) -> Self:
        """Use what this system offers to look up accounts."""
        self._accounts = LocalAccounts.open()
        self._addresses = LocalAddresses.open()
        return self

    def of(self, transport: asyncio.BaseTransport) -> str:
        """Return the party of a connection, or OWN."""
        peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        try:
            ends = ConnectionEnds.of_names(peer, own)
        except (TypeError, ValueError, IndexError):
            return _UNTOLD  # the peer has gone, and its address is not known any more
        if not self._addresses.may_have(ends):
            return self._address_party(peer[0])
        uid = self._accounts.of_peer(ends)
        if uid is not None:
            return OWN if uid in self._own else f"uid {uid}"
        return _UNTOLD if ends.is_of_this_machine else self._address_party(peer[0])

    def _address_party(self, address: str) -> str:
        return party_of(address) if self._count_addresses else OWN

    def close(self) -> None:
        """Close the netlink sockets."""
        self._accounts.close()
        self._addresses.close()
