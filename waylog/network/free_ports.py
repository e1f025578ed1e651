"""Finds free ports, for processes that must find theirs still free after a restart."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path
from typing import Final

from waylog.config import Endpoint

_LOWEST: Final = 10_000
#: The range of ports that Linux gives to outgoing connections.
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES: Final = 1_000


class PortTaken(OSError):
    """The address cannot be bound; `strerror` says why."""


class FreePorts:
    """Chooses ports for processes that are to be started; chooses none twice.

    A port is free when it is chosen, and lies below those of outgoing connections, so that it
    stays free while its process is restarted.
    """

    def __init__(self) -> None:
        self._given: set[Endpoint] = set()

    @property
    def given(self) -> frozenset[Endpoint]:
        """The endpoints that were chosen."""
        return frozenset(self._given)

    def settle(self, wanted: Endpoint) -> Endpoint:
        """Return the address, with a free port in place of port 0. Raises PortTaken."""
        if wanted.port:
            if wanted in self._given:
                raise PortTaken(0, "another part of this platform listens there")
            self.take(wanted)
            self._given.add(wanted)
            return wanted
        ports = {endpoint.port for endpoint in self._given}
        refusal: PortTaken | None = None
        for _ in range(_TRIES):
            port = random.randrange(_LOWEST, _lowest_ephemeral())
            if port in ports:
                continue
            found = Endpoint(wanted.host, port)
            try:
                self.take(found)
            except PortTaken as error:
                if error.errno != errno.EADDRINUSE:
                    raise  # another port would not help
                refusal = error
                continue
            self._given.add(found)
            return found
        raise PortTaken(*(refusal.args if refusal else (0, "no free port was found")))

    def settle_near(self, wanted: Endpoint) -> Endpoint:
        """Return the address if it is free, else one with another port. Raises PortTaken."""
        try:
            return self.settle(wanted)
        except PortTaken:
            return self.settle(Endpoint(wanted.host, 0))

    def take(self, endpoint: Endpoint) -> None:
        """Check that an address is free; raises PortTaken."""
        bound_socket(endpoint).close()


def free_ports(count: int) -> list[int]:
    """Return this many different ports of 127.0.0.1 that are free now."""
    ports = FreePorts()
    return [ports.settle(Endpoint("127.0.0.1", 0)).port for _ in range(count)]


def _lowest_ephemeral() -> int:
    return int(_EPHEMERAL.read_text(encoding="ascii").split()[0])


def bound_socket(endpoint: Endpoint, *, shared: bool = False) -> socket.socket:
    """Return a socket that is bound to an address, if nothing listens there; raises PortTaken.

    With `shared` other sockets of this account that share the port may listen (SO_REUSEPORT).
    """
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    bound: socket.socket | None = None
    try:
        bound = socket.socket(family, socket.SOCK_STREAM)
        # As servers do: connections in TIME_WAIT do not matter.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((endpoint.host, endpoint.port))
    except OSError as error:
        if bound is not None:
            bound.close()
        raise PortTaken(error.errno, error.strerror) from None
    return bound
