"""Finds the addresses that a forwarding may reach, without telling its user which there are.

The answer to a user is the same for a name that nobody knows and for one whose address may not be
reached: otherwise anybody could list the names of the operator's network. Who gives an address
knows it.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from aiohttp.abc import ResolveResult

from waylog.config import ConfigError, is_address
from waylog.network.outbound.name_lookups import NameLookups
from waylog.network.outbound.reachable_networks import AddressRefused, ReachableNetworks
from waylog.process.log_throttle import LogThrottle, since_last_line

logger = logging.getLogger(__name__)

UNREACHABLE: Final = "nobody knows its name, or forwardings may not reach its address"
NOT_ALLOWED: Final = "forwardings may not reach this address"


def trusted_authorities(more: Path | None) -> ssl.SSLContext:
    """Return what checks certificates of servers: by the system's authorities, and those of a file.

    Raises ConfigError for a file (PEM) that cannot be read.
    """
    context = ssl.create_default_context()
    try:
        if more is not None:
            context.load_verify_locations(cafile=more)
    except ssl.SSLError as error:
        raise ConfigError(f"{more}: no certificates in it, PEM is expected") from error
    except OSError as error:
        raise ConfigError(f"{more}: {error.strerror}") from error
    return context


class WaysOut:
    """Looks names up and makes sockets; used on one event loop."""

    def __init__(self, networks: ReachableNetworks, names: NameLookups) -> None:
        self._networks: Final = networks
        self._names: Final = names
        self._throttle: Final = LogThrottle()
        #: The user whose request is under way, in its context.
        self.user: Final[ContextVar[str]] = ContextVar("user", default="")
        #: The host in its URL, as the user has written it.
        self.host: Final[ContextVar[str]] = ContextVar("host", default="")

    def begin(self, user: str, host: str) -> None:
        """Say in a task whose request is under way, and to which host."""
        self.user.set(user)
        self.host.set(host)

    def unreachable(self) -> str:
        """Return what the user is told of a host that cannot be reached."""
        return NOT_ALLOWED if is_address(self.host.get()) else UNREACHABLE

    async def look_up(
        self, host: str, port: int, family: socket.AddressFamily
    ) -> list[ResolveResult]:
        """Return the addresses of a name; raises OSError."""
        user = self.user.get()
        try:
            return await self._names.look_up(user, host, port, family)
        except OSError as error:
            raise self._unreachable(str(error)) from None

    def reachable(self, host: str, found: list[ResolveResult], port: int) -> str:
        """Return the first of the addresses of a name that may be reached; raises OSError."""
        refusal: str | None = f"{host} has no address"
        for each in found:
            refusal = self._networks.refusal(each["host"], port)
            if refusal is None:
                return each["host"]
        raise self._unreachable(f"{host}: {refusal}")

    def socket_for(self, addr_info: tuple[Any, ...]) -> socket.socket:
        """See ReachableNetworks."""
        try:
            return self._networks.socket_for(addr_info)
        except AddressRefused as error:
            raise self._unreachable(str(error.strerror)) from None

    def _unreachable(self, reason: str) -> OSError:
        unsaid = self._throttle.count(time.monotonic())
        if unsaid is not None:
            logger.info(
                "a forwarding of %s goes nowhere: %s%s",
                *(self.user.get() or "somebody", reason, since_last_line(unsaid)),
            )
        # With a number, clients show the text in their own errors.
        return OSError(errno.EACCES, self.unreachable())
