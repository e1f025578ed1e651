"""Bounds the head of a request that is not complete; aiohttp bounds its lines and their number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler


class HeadCounter:
    """Counts the bytes of a head that aiohttp keeps until it is complete."""

    def __init__(
        self, protocol: asyncio.Protocol, bytes_max: int, refuse: Callable[[], None]
    ) -> None:
        """`refuse` is called once there are more than `bytes_max`."""
        assert isinstance(protocol, RequestHandler)
        self._protocol = protocol
        self._bytes_max = bytes_max
        self._refuse = refuse
        self._requests = 0
        self._body: StreamReader | None = None
        self._bytes = 0

    def passed_on(self, size: int) -> None:
        """Take note that aiohttp has been passed so many bytes."""
        protocol = self._protocol
        if protocol._request_count != self._requests:
            self._requests = protocol._request_count
            # No handler has run yet.
            self._body = protocol._messages[-1][1]
            self._bytes = 0
        elif protocol._upgraded or not (self._body is None or self._body.is_eof()):
            self._bytes = 0
        else:
            self._bytes += size
            if self._bytes > self._bytes_max:
                self._refuse()
