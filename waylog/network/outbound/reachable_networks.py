"""Which addresses connections may go to whose target somebody else chooses (a user's URL).

The internet, and networks that the operator names; never this machine, and never its own ports. It
is asked for the address that a connection is made to: what a name stands for may change between
two questions (DNS rebinding).
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeAlias

from waylog.config import ConfigError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

#: All of IPv6 that is given to anybody in the internet (RFC 4291, 2.4); site-local addresses, which
#: Python takes for global ones, are outside of it.
_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
#: Translates IPv6 to IPv4 at the provider (RFC 6052, RFC 8215): the last 32 bits are the address.
_TRANSLATED: Final = (
    ipaddress.IPv6Network("64:ff9b::/96"),
    ipaddress.IPv6Network("64:ff9b:1::/48"),
)
#: IPv4 addresses in the last 32 bits, of which nobody makes use any more (RFC 4291, 2.5.5.1).
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")


class AddressRefused(OSError):
    """A connection to this address is not allowed; the message says which and why."""


class ReachableNetworks:
    """Decides about addresses. It never changes."""

    def __init__(self, allowed: Sequence[str] = (), refused_ports: Collection[int] = ()) -> None:
        """`allowed` are networks beside the internet. `refused_ports` are refused in them and on
        this machine. Raises ConfigError.
        """
        self._allowed: Final[list[Network]] = []
        for text in allowed:
            try:
                self._allowed.append(ipaddress.ip_network(text.strip()))
            except ValueError as error:
                raise ConfigError(
                    f"{text!r} is not a network such as 192.168.1.0/24: {error}"
                ) from (None)
        self._refused_ports: Final = frozenset(refused_ports)

    def refusal(self, host: str, port: int) -> str | None:
        """Return why no connection may go to an address; None if it may."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return f"{host} is not an address"
        parts = _addresses_in(address)
        if all(any(each in network for network in self._allowed) for each in parts):
            if port in self._refused_ports:
                return f"port {port} of {host} is one of the platform's own"
            return None
        if not all(_is_in_the_internet(each) for each in parts):
            return f"{host} is not in the internet, nor in a network that the operator allows"
        if _is_of_this_machine(address):
            return f"{host} is this machine"
        return None

    def socket_for(self, addr_info: tuple[Any, ...]) -> socket.socket:
        """Return a socket for an address as getaddrinfo describes it; raises AddressRefused.

        It has the form of aiohttp's `socket_factory`.
        """
        family, kind, protocol, _, address = addr_info
        refusal = self.refusal(str(address[0]), int(address[1]))
        if refusal is not None:
            # With a number, clients show the text in their own errors.
            raise AddressRefused(errno.EACCES, refusal)
        return socket.socket(family, kind, protocol)


def _is_in_the_internet(address: Address) -> bool:
    is_unicast = address.version == 4 or address in _UNICAST
    return is_unicast and address.is_global and not address.is_multicast


def _addresses_in(address: Address) -> list[Address]:
    """Return an address, or those that it stands for: a router may take one for the other."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _TRANSLATED):
        return [last]
    if address in _COMPATIBLE and int(address) > 1:
        return [address, last]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address.teredo is not None:
        return [address, *address.teredo]
    return [address]


def _is_of_this_machine(address: Address) -> bool:
    """Tell whether an address is one of this machine's own: then it is the way to itself, too."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Sends nothing: the system only looks for the way.
            probe.connect((str(address), 9))
            return ipaddress.ip_address(probe.getsockname()[0].partition("%")[0]) == address
    except OSError:
        return False  # there is no way to it
