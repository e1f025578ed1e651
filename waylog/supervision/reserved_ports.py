"""Ports that the supervisor of a platform keeps bound for its processes, over all restarts.

While a process is down, a program of another account could bind its port, and would receive what
services and devices send there. So the supervisor stays bound to each port without listening (a
client is refused meanwhile, as at any closed port), and its processes share the port
(SO_REUSEPORT), which Linux allows only to the same account (socket(7)).
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

from waylog.config import Endpoint
from waylog.network.bind_addresses import bind_addresses
from waylog.network.free_ports import FreePorts, PortTaken, bound_socket
from waylog.network.listeners import listener_of

logger = logging.getLogger(__name__)

_VARIABLE: Final = "WAYLOG_HELD_PORTS"
#: The other address that `localhost` may mean; programs try one after the other.
_OTHER_LOOPBACK: Final = {
    "127.0.0.1": "::1",
    "0.0.0.0": "::1",  # noqa: S104 compared with
    "::1": "127.0.0.1",
    "::": "127.0.0.1",
}


class ReservedPorts(FreePorts):
    """Chooses the ports of a platform, and keeps them bound until it is closed.

    For a loopback address the same port of the other family is bound as well, if it is free: a
    browser may try that one first for `localhost`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release all ports."""
        for each in self._held:
            each.close()
        self._held.clear()

    def environment(self) -> Mapping[str, str]:
        """Return the variable that tells processes which ports are held for them (`is_held`)."""
        return {_VARIABLE: " ".join(sorted(map(str, self.given)))}

    def take(self, endpoint: Endpoint) -> None:
        """Bind to all addresses of the endpoint's host and stay bound; raises PortTaken."""
        addresses = _addresses(endpoint)
        before = len(self._held)
        try:
            for each in addresses:
                self._hold(each)
        except PortTaken:
            for held in self._held[before:]:
                held.close()
            del self._held[before:]
            raise
        for each in addresses:
            other = _OTHER_LOOPBACK.get(each.host)
            beside = None if other is None else Endpoint(other, each.port)
            if beside is not None and beside not in addresses:
                self._hold_beside(beside, endpoint)

    def _hold_beside(self, beside: Endpoint, endpoint: Endpoint) -> None:
        try:
            self._hold(beside)
        except PortTaken as error:
            if error.errno != errno.EADDRINUSE:
                return  # this machine lacks the address family
            logger.warning(
                "%s is in use, by %s: clients that are told `localhost` may get there instead of "
                "%s",
                beside,
                listener_of(beside.port) or "a program of another account",
                endpoint,
            )

    def _hold(self, endpoint: Endpoint) -> None:
        held = bound_socket(endpoint)
        # The port is shared only after it was bound exclusively, so no other socket has it. With
        # SO_REUSEADDR another socket with that option could bind too, as nothing listens here.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        self._held.append(held)


def _addresses(endpoint: Endpoint) -> list[Endpoint]:
    """Return the addresses on which a server for the endpoint listens."""
    try:
        found = bind_addresses(endpoint)
    except OSError as error:
        raise PortTaken(error.errno, error.strerror) from None
    return [Endpoint(address, endpoint.port) for address in found]


def is_held(endpoint: Endpoint) -> bool:
    """Return whether a supervisor holds the port for this process, which then has to share it."""
    return str(endpoint) in os.environ.get(_VARIABLE, "").split()
