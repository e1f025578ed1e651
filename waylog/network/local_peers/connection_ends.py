"""Both ends of a TCP connection, in the form of the kernel's tables."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from socket import AF_INET, AF_INET6
from typing import Any, Final

#: States of a socket (include/net/tcp_states.h).
ESTABLISHED: Final = 1
FIN_WAIT_1: Final = 4
FIN_WAIT_2: Final = 5
CLOSE: Final = 7
CLOSE_WAIT: Final = 8


@dataclass(frozen=True, slots=True)
class ConnectionEnds:
    """The addresses and ports of a connection; IPv4 also for an IPv6 socket that carries it."""

    family: int
    peer: bytes
    peer_port: int
    own: bytes
    own_port: int
    #: The interface of link-local addresses, else 0.
    scope: int

    @classmethod
    def of_names(cls, peer: tuple[Any, ...], own: tuple[Any, ...]) -> ConnectionEnds:
        """Build it from the results of `getpeername` and `getsockname`."""
        peer_address, own_address = packed(peer[0]), packed(own[0])
        return cls(
            AF_INET if len(own_address) == 4 else AF_INET6,
            peer_address,
            peer[1],
            own_address,
            own[1],
            own[3] if len(own) > 3 else 0,
        )

    @property
    def is_of_this_machine(self) -> bool:
        """True if the addresses alone show that the peer is on this machine."""
        return self.peer == self.own or is_loopback(self.peer) or is_loopback(self.own)


_MAPPED_PREFIX: Final = b"\0" * 10 + b"\xff\xff"
_IPV6_LOOPBACK: Final = b"\0" * 15 + b"\x01"


def packed(host: str) -> bytes:
    """Return the bytes of an address; an IPv4-mapped one gives those of IPv4.

    Raises ValueError for anything else.
    """
    address = host.partition("%")[0]
    try:
        # The ipaddress module takes ten times as long, for each new connection.
        return unmapped(socket.inet_pton(AF_INET6 if ":" in address else AF_INET, address))
    except OSError:
        raise ValueError(f"{host!r} is no IP address") from None


def unmapped(address: bytes) -> bytes:
    """Return the four bytes of an IPv4-mapped address (RFC 4291, 2.5.5.2), any other unchanged."""
    return address[12:] if address.startswith(_MAPPED_PREFIX) and len(address) == 16 else address


def is_loopback(address: bytes) -> bool:
    """Return whether the address is in 127.0.0.0/8, or ::1."""
    return address[0] == 127 if len(address) == 4 else address == _IPV6_LOOPBACK
