"""Collects the first message of a TLS client, and tells when it is complete. Sans-IO.

TLS records: RFC 8446, section 5.1; handshake messages: section 4.
"""

from __future__ import annotations

import struct
from typing import Final

_RECORD: Final = struct.Struct(">BHH")
_MESSAGE_HEADER_BYTES: Final = 4
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_RECORD_BYTES_MAX: Final = 2**14


class ClientHelloTooLong(Exception):
    """A client has sent more than any ClientHello needs, before it got an answer."""


class ClientHello:
    """Collects bytes until a ClientHello is complete, or cannot be one."""

    #: The largest real ones have 2 kB, with post-quantum keys.
    BYTES_MAX: Final = 16 * 1024

    __slots__ = ("_message", "_next_record", "data")

    def __init__(self) -> None:
        #: All bytes received so far.
        self.data = bytearray()
        self._message = bytearray()
        self._next_record = 0

    def add(self, data: bytes) -> bool:
        """Add received bytes; return whether TLS can answer now, even if with an alert.

        Raises ClientHelloTooLong.
        """
        self.data += data
        while True:
            start = self._next_record
            if len(self.data) > start and self.data[start] != _HANDSHAKE:
                return True
            if len(self.data) < start + _RECORD.size:
                break
            _, _, size = _RECORD.unpack_from(self.data, start)
            if not 0 < size <= _RECORD_BYTES_MAX:
                return True
            end = start + _RECORD.size + size
            if len(self.data) < end:
                break
            self._message += self.data[start + _RECORD.size : end]
            self._next_record = end
            if self._is_answerable():
                return True
        if len(self.data) > self.BYTES_MAX:
            raise ClientHelloTooLong
        return False

    def _is_answerable(self) -> bool:
        message = self._message
        if message[0] != _CLIENT_HELLO:
            return True
        if len(message) < _MESSAGE_HEADER_BYTES:
            return False
        size = int.from_bytes(message[1:_MESSAGE_HEADER_BYTES], "big")
        return len(message) >= _MESSAGE_HEADER_BYTES + size
