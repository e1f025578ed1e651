"""Ports that nobody listens on, for processes that must find theirs free again after a restart."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path
from typing import Final

from waylog.config import Endpoint

_LOWEST: Final = 10_000
#: Linux gives outgoing connections ports of this range.
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES: Final = 1_000


class PortTaken(OSError):
    """The address cannot be listened on; `strerror` says why."""


class FreePorts:
    """Settles the ports of processes that are to be started; gives none out twice.

    A port is free when it is given out, and lies below those of outgoing connections, so that it
    stays free while its process is started again.
    """

    def __init__(self) -> None:
        self._given: set[Endpoint] = set()

    @property
    def given(self) -> frozenset[Endpoint]:
        """What has been given out."""
        return frozenset(self._given)

    def settle(self, wanted: Endpoint) -> Endpoint:
        """The address, with a free port in place of port 0. Raises PortTaken."""
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
                    raise  # no other port would be better
                refusal = error
                continue
            self._given.add(found)
            return found
        raise PortTaken(*(refusal.args if refusal else (0, "no free port was found")))

    def settle_near(self, wanted: Endpoint) -> Endpoint:
        """The address if it is free, else one with another port. Raises PortTaken."""
        try:
            return self.settle(wanted)
        except PortTaken:
            return self.settle(Endpoint(wanted.host, 0))

    def take(self, endpoint: Endpoint) -> None:
        """See that it is free; raises PortTaken."""
        bound_socket(endpoint).close()


def free_ports(count: int) -> list[int]:
    """So many different ports that nobody listens on now on loopback."""
    ports = FreePorts()
    return [ports.settle(Endpoint("127.0.0.1", 0)).port for _ in range(count)]


def _lowest_ephemeral() -> int:
    return int(_EPHEMERAL.read_text(encoding="ascii").split()[0])


def bound_socket(endpoint: Endpoint) -> socket.socket:
    """A socket that is bound to an address where nobody else listens; raises PortTaken."""
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    bound: socket.socket | None = None
    try:
        bound = socket.socket(family, socket.SOCK_STREAM)
        # As servers do: what is left of connections that are over does not matter.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((endpoint.host, endpoint.port))
    except OSError as error:
        if bound is not None:
            bound.close()
        raise PortTaken(error.errno, error.strerror) from None
    return bound
