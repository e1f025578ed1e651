"""The names by which an HTTP listener is asked for: every other Host is refused.

A page of another site can have its own name resolve to this machine (DNS rebinding); the browser
then takes our answers for that site's. What the browser cannot change is the name it sends in
Host (RFC 9110, section 7.2). An address there is no danger: addresses are not resolved.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

_WILDCARDS = frozenset(("", "0.0.0.0", "::"))  # noqa: S104 compared with, not listened on


def host_of(authority: str) -> str:
    """The host in `HOST`, `HOST:PORT` or `[IPV6]:PORT`, in lower case."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0].lower()
    return authority.partition(":")[0].lower().removesuffix(".")


class ServedHosts:
    """What may stand in Host for a listener on `listening`, and the origins of its own pages.

    Without more names: loopback, the machine's own name, and the address that is listened on; any
    address where that is all of them.
    """

    def __init__(self, listening: str = "127.0.0.1", more: Iterable[str] = ()) -> None:
        """`more` are NAME or NAME:PORT. Raises ValueError for what is neither."""
        self._any_address = listening in _WILDCARDS
        self._authorities = frozenset(each.lower() for each in more)
        for each in self._authorities:
            if not each or any(character in each for character in "/@ \t") or not host_of(each):
                raise ValueError(f"{each!r} is not the name of a host, with or without :PORT")
        machine = socket.gethostname().lower()
        short = machine.partition(".")[0]
        # By its name with .local a machine is found by mDNS.
        self._names = frozenset(("localhost", machine, short, f"{short}.local")) | {
            host_of(each) for each in (listening, *self._authorities)
        }

    def serves(self, authority: str | None) -> bool:
        """True if a request with this Host is for us. One without Host comes from no browser."""
        if authority is None:
            return True
        host = host_of(authority)
        if host in self._names:
            return True
        try:
            return ipaddress.ip_address(host).is_loopback or self._any_address
        except ValueError:
            return False

    def is_own_origin(self, origin: str, authority: str) -> bool:
        """Tell whether an Origin (RFC 6454) is that of our page, asked for as `authority`.

        A proxy may have put its own idea into Host; the names we were told of count as well.
        """
        _, separator, from_where = origin.partition("://")
        return bool(separator) and (
            from_where.lower() == authority.lower() or from_where.lower() in self._authorities
        )
