"""The host names that an HTTP listener answers to; it refuses requests with any other Host.

A page of another site can have its own name resolve to this machine (DNS rebinding); the browser
then takes our answers for that site's. But the name in Host (RFC 9110, section 7.2) is that site's.
An address in Host is no danger, because addresses are not resolved.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

#: Addresses on which a server listens, and to which nobody connects.
WILDCARDS = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 compared with, not listened on

# RFC 9110, section 7.2: a host and perhaps a port. Names in other letters than ASCII are tolerated.
_FORBIDDEN = r"\s/?#@\\\[\]\x00-\x1f\x7f"
_AUTHORITY = re.compile(rf"(?:\[[^{_FORBIDDEN}]+\]|[^{_FORBIDDEN}:]*)(?::[0-9]*)?")


def is_authority(text: str) -> bool:
    """Tell whether a text is `HOST`, `HOST:PORT` or `[IPV6]:PORT`, without a user before it."""
    return _AUTHORITY.fullmatch(text) is not None


def host_of(authority: str) -> str:
    """Return the host of `HOST`, `HOST:PORT` or `[IPV6]:PORT`, in lower case."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower().removesuffix(".")


class ServedHosts:
    """The accepted values of Host for a listener on `listening`, and the origins of its own pages.

    Always accepted: loopback, the machine's own name, and the address that is listened on; any
    address if that is a wildcard.
    """

    def __init__(self, listening: str = "127.0.0.1", more: Iterable[str] = ()) -> None:
        """`more` are NAME or NAME:PORT. Raises ValueError for anything else."""
        self._any_address = listening in WILDCARDS
        self._authorities = frozenset(each.lower() for each in more)
        for each in self._authorities:
            if not each or any(character in each for character in "/@ \t") or not host_of(each):
                raise ValueError(f"{each!r} is not the name of a host, with or without :PORT")
        machine = socket.gethostname().lower()
        short = machine.partition(".")[0]
        # mDNS finds a machine by its name with .local.
        self._names = frozenset(("localhost", machine, short, f"{short}.local")) | {
            host_of(each) for each in (listening, *self._authorities)
        }

    def serves(self, authority: str | None) -> bool:
        """Return whether a request with this Host is accepted; browsers never omit Host."""
        if authority is None:
            return True
        if not is_authority(authority):
            return False
        host = host_of(authority)
        if host in self._names:
            return True
        try:
            return ipaddress.ip_address(host).is_loopback or self._any_address
        except ValueError:
            return False

    def is_own_origin(self, origin: str, authority: str) -> bool:
        """Return whether an Origin (RFC 6454) is that of our page, requested as `authority`.

        A proxy may have changed Host, so the names given at the start count as well.
        """
        _, separator, from_where = origin.partition("://")
        return bool(separator) and (
            from_where.lower() == authority.lower() or from_where.lower() in self._authorities
        )
