"""What the URL of a server has to be before anything is sent there."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final
from urllib.parse import SplitResult, urlsplit

#: The end of a host that is a number, in decimal, octal or hexadecimal digits: the name of no
#: server (WHATWG URL, section 3.5, "ends in a number").
_NUMBER: Final = re.compile(r"(?:^|\.)(?:\d+|0x[0-9a-f]*)\.?$")


class BadServerUrl(ValueError):
    """The URL of no server; the text shows nothing of it, since it may have a secret in it."""


class LoginInUrl(BadServerUrl):
    """The URL has a name or a password in it."""


def server_url(url: str, schemes: Collection[str]) -> SplitResult:
    """Return the parts of a server's URL, which has one of some schemes. Raises BadServerUrl."""
    expected = "not " + " or ".join(f"{each}://HOST" for each in schemes)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadServerUrl(expected) from None
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        raise BadServerUrl(expected)
    if "@" in parts.netloc:
        raise LoginInUrl("it has a user or a password in it")
    if not url.isascii() or any(each.isspace() or not each.isprintable() for each in url):
        raise BadServerUrl("other characters than those of ASCII have to be percent-encoded")
    # One with colons is an IPv6 address, whose end may be written as an IPv4 address.
    host = parts.hostname
    if ":" not in host and _NUMBER.search(host) and not _is_ipv4(host):
        raise BadServerUrl("an IPv4 address has four decimal numbers, as in 192.0.2.1")
    return parts


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True
