"""An HTTP server as small as it can be, for measurements: it answers each request by a function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

_END_OF_HEAD: Final = b"\r\n\r\n"
#: An answer that says all is well.
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class PlainHttp(asyncio.Protocol):
    """A connection; requests have a Content-Length, or no body."""

    def __init__(self, answer: Callable[[bytes, bytes], bytes]) -> None:
        """`answer` returns the answer to a request's head, in small letters, and its body."""
        self._answer: Final = answer
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        # uvloop's transports are none of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._data += data
        while True:
            head, found, rest = self._data.partition(_END_OF_HEAD)
            if not found:
                return
            head = head.lower()
            length = int(header(head, b"content-length") or b"0")
            if len(rest) < length:
                return
            self._data = rest[length:]
            self._transport.write(self._answer(head, rest[:length]))


def header(head: bytes, name: bytes) -> bytes:
    """Return a header of a head in small letters, empty if it is not there."""
    return head.partition(b"\r\n%b:" % name)[2].split(b"\r", 1)[0].strip()
