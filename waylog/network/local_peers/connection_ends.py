"""Both ends of a TCP connection, as the kernel's tables have them."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any, Final

#: States of a socket (include/net/tcp_states.h).
ESTABLISHED: Final = 1


@dataclass(frozen=True, slots=True)
class ConnectionEnds:
    """Addresses and ports; IPv4 is IPv4 also where a socket of IPv6 is used for it."""

    family: int
    peer: bytes
    peer_port: int
    own: bytes
    own_port: int
    #: The interface of link-local addresses, else 0.
    scope: int

    @classmethod
    def of_names(cls, peer: tuple[Any, ...], own: tuple[Any, ...]) -> ConnectionEnds:
        """From what `getpeername` and `getsockname` return."""
        peer_address, own_address = packed(peer[0]), packed(own[0])
        return cls(
            socket.AF_INET if len(own_address) == 4 else socket.AF_INET6,
            peer_address,
            peer[1],
            own_address,
            own[1],
            own[3] if len(own) > 3 else 0,
        )

    @property
    def is_of_this_machine(self) -> bool:
        """Tell whether the addresses alone say that the peer is on this machine."""
        return self.peer == self.own or is_loopback(self.peer) or is_loopback(self.own)


_MAPPED_PREFIX: Final = b"\0" * 10 + b"\xff\xff"
_IPV6_LOOPBACK: Final = b"\0" * 15 + b"\x01"


def packed(host: str) -> bytes:
    """The bytes of an address; of one that is mapped to IPv6 those of IPv4."""
    return unmapped(ipaddress.ip_address(host.partition("%")[0]).packed)


def unmapped(address: bytes) -> bytes:
    """The four bytes of an IPv4-mapped address (RFC 4291, 2.5.5.2); any other as it is."""
    return address[12:] if address.startswith(_MAPPED_PREFIX) and len(address) == 16 else address


def is_loopback(address: bytes) -> bool:
    """Tell whether it is one of 127.0.0.0/8, or ::1."""
    return address[0] == 127 if len(address) == 4 else address == _IPV6_LOOPBACK
