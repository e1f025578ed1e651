"""The addresses that a server binds which is told a name, as far as the machine can have them.

/etc/hosts of most systems has `::1 localhost`, with IPv6 switched off too: the name has an address
then that nobody can bind.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from waylog.config import Endpoint

_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


def bind_addresses(endpoint: Endpoint) -> list[str]:
    """All addresses of the endpoint's host, without those of a family that the machine has not.

    An address stands for itself, no host for all. Where none would be left all of them are
    returned, so that binding says what is wrong. Raises OSError for a name that nobody knows.
    """
    if _is_address(endpoint.host):
        return [endpoint.host]
    found = socket.getaddrinfo(
        endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    addresses = [(family, str(address[0])) for family, *_, address in found]
    families = {family for family, _ in addresses if _is_there(family)}
    had = [address for family, address in addresses if family in families or not families]
    return list(dict.fromkeys(had))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_there(family: socket.AddressFamily) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((_LOOPBACK[family], 0))
    except (OSError, KeyError):
        return False
    return True
