"""The PROXY protocol, versions 1 and 2: a proxy names the client whose connection it passes on.

https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt. Sans-IO.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final, NamedTuple

_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_V1_BYTES_MAX: Final = 107
_V2_BYTES_MAX: Final = 16 + 536
_HEADER = struct.Struct("!12sBBH")
_ADDRESS_BYTES: Final = {1: 4, 2: 16}  # AF_INET, AF_INET6


class ProxyHeader(NamedTuple):
    """A header that has been parsed."""

    address: str | None  # None: the proxy's own connection (health checks)
    size: int


class ProxyHeaderReader:
    """A parser for the header at the start of a connection."""

    def read(self, data: bytes) -> ProxyHeader | str | None:
        """Return the header, None while it is incomplete, or a text about its error."""
        start = data[: len(_SIGNATURE)]
        if start == _SIGNATURE[: len(start)]:
            return self._version_2(data)
        if start[:6] == b"PROXY "[: len(start)]:
            return self._version_1(data)
        return "neither version 1 nor 2"

    def _version_1(self, data: bytes) -> ProxyHeader | str | None:
        end = data.find(b"\r\n", 0, _V1_BYTES_MAX)
        if end < 0:
            return None if len(data) < _V1_BYTES_MAX else "version 1 without an end"
        words = data[:end].decode("ascii", "replace").split(" ")
        if words[1:2] == ["UNKNOWN"]:
            return ProxyHeader(None, end + 2)
        if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
            return "malformed version 1"
        try:
            return ProxyHeader(str(ipaddress.ip_address(words[2])), end + 2)
        except ValueError:
            return "no address in version 1"

    def _version_2(self, data: bytes) -> ProxyHeader | str | None:
        if len(data) < _HEADER.size:
            return None
        _, version_command, family, length = _HEADER.unpack_from(data)
        size = _HEADER.size + length
        if version_command >> 4 != 2 or size > _V2_BYTES_MAX:
            return "malformed version 2"
        if len(data) < size:
            return None
        address_bytes = _ADDRESS_BYTES.get(family >> 4)
        if version_command & 0xF == 0 or address_bytes is None:
            return ProxyHeader(None, size)
        if length < 2 * address_bytes + 4:
            return "version 2 without its addresses"
        start = _HEADER.size
        return ProxyHeader(str(ipaddress.ip_address(data[start : start + address_bytes])), size)
