"""Checks, before a service connects to anything, that it will be able to listen."""

from __future__ import annotations

import errno
from typing import Final

from waylog.config import ConfigError, Endpoint
from waylog.network.bind_addresses import bind_addresses
from waylog.network.free_ports import PortTaken, bound_socket
from waylog.network.listeners import listener_of
from waylog.os_errors import describe_os_error
from waylog.supervision.reserved_ports import is_held

_ANY: Final = ("0.0.0.0", "::")  # noqa: S104 compared with


class ListeningCheck:
    """Checks the addresses of one process, each against the machine and against the others."""

    def __init__(self) -> None:
        self._wanted: list[tuple[str, Endpoint]] = []

    def check(self, option: str, endpoint: Endpoint, *, shared: bool = False) -> None:
        """Raise ConfigError if a server could not listen there now.

        `shared` is for servers that share their ports with other processes (SO_REUSEPORT). Ports
        that a supervisor holds for this process are not tried.
        """
        try:
            for address in bind_addresses(endpoint):
                self._compare(option, Endpoint(address, endpoint.port))
                if not is_held(endpoint):
                    bound_socket(Endpoint(address, endpoint.port), shared=shared).close()
        except PortTaken as error:
            raise ConfigError(describe_taken(option, endpoint, error)) from None
        except OSError as error:
            raise ConfigError(f"{option} {endpoint}: {describe_os_error(error)}") from None

    def _compare(self, option: str, wanted: Endpoint) -> None:
        for other, taken in self._wanted:
            same = taken.host == wanted.host or taken.host in _ANY or wanted.host in _ANY
            if wanted.port and taken.port == wanted.port and same and other != option:
                raise ConfigError(f"{other} and {option} both want {wanted}: choose another port")
        self._wanted.append((option, wanted))


def describe_taken(option: str, endpoint: Endpoint, error: PortTaken) -> str:
    """Return one line about an address that cannot be bound: who has it, and what to do."""
    owner = listener_of(endpoint.port) if error.errno == errno.EADDRINUSE else None
    who = f", by {owner}" if owner else ""
    return (
        f"cannot listen on {endpoint}: {(error.strerror or '').lower()}{who}; "
        f"{option} HOST:PORT chooses another address"
    )
