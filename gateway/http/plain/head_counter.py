"""Bounds the head of a request that is not complete; aiohttp bounds its lines and their number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler


class HeadCounter:
    """Counts the bytes of a head that aiohttp keeps until it is complete."""

    def __init__(
        self, protocol: asyncio.Protocol, bytes_max: int, refuse: Callable[[bool], None]
    ) -> None:
        """`refuse` is called once there are more than `bytes_max`.

        It is told whether earlier requests have not been answered.
        """
        assert isinstance(protocol, RequestHandler)
        self._protocol = protocol
        self._bytes_max = bytes_max
        self._refuse = refuse
        self._requests = 0
        self._body: StreamReader | None = None
        self._in_body = False
        self._bytes = 0

    @property
    def is_between_requests(self) -> bool:
        """Tell whether what comes next begins a request, as far as is known."""
        return not self._in_body and not self._bytes

    def passed_on(self, size: int) -> None:
        """Take note that aiohttp has been passed so many bytes."""
        protocol = self._protocol
        is_new = protocol._request_count != self._requests
        if is_new:
            self._requests = protocol._request_count
            self._body = self._newest_body()
        was_in_body = self._in_body
        self._in_body = protocol._upgraded or not (self._body is None or self._body.is_eof())
        if is_new or was_in_body or self._in_body:
            # Where in these bytes a request or its body has ended, nobody tells.
            self._bytes = 0
            return
        self._bytes += size
        if self._bytes > self._bytes_max:
            self._refuse(bool(protocol._messages) or protocol._current_request is not None)

    def _newest_body(self) -> StreamReader | None:
        """Return the body of the newest request, or None if all have been answered.

        The request may have come to a handler already: aiohttp keeps some of a pipeline, and what
        follows a request for an upgrade, and parses that later.
        """
        protocol = self._protocol
        if protocol._messages:
            return protocol._messages[-1][1]
        current = protocol._current_request
        return None if current is None else current.content
