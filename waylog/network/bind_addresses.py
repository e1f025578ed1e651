"""Finds the addresses that a server binds for a host name, without those the machine cannot have.

/etc/hosts of most systems has `::1 localhost`, even with IPv6 switched off: the name then has an
address that cannot be bound.
"""

from __future__ import annotations

import socket
from typing import Final

from waylog.config import Endpoint, is_address

#: Length of the kernel's queue of connections that are not accepted yet; the kernel may bound it
#: (net.core.somaxconn). When it is full, the handshakes of all clients are dropped, which try again
#: after one, three and seven seconds: a flood of connections would delay everybody by so much.
BACKLOG: Final = 4096

_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def bind_addresses(endpoint: Endpoint) -> list[str]:
    """Return all addresses of the endpoint's host, without those of a missing address family.

    A host that is an address is returned as it is; an empty host means all interfaces. If no
    address would be left, all are returned, so that binding reports the error. Raises OSError for
    an unknown name.
    """
    if is_address(endpoint.host):
        return [endpoint.host]
    found = socket.getaddrinfo(
        endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    addresses = [(family, str(address[0])) for family, *_, address in found]
    families = {family for family, _ in addresses if _is_there(family)}
    had = [address for family, address in addresses if family in families or not families]
    return list(dict.fromkeys(had))


def _is_there(family: socket.AddressFamily) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((_LOOPBACK[family], 0))
    except (OSError, KeyError):
        return False
    return True
