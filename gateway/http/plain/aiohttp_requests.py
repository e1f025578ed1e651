"""Bounds what aiohttp keeps of requests: of a head that is not complete, and of those that wait.

aiohttp itself bounds the lines of a head and their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from waylog.network.aiohttp_answers import awaits_client, owes_answers

#: Requests of a connection that aiohttp has parsed and not begun, when it reads no more. A parsed
#: head takes several times its bytes; aiohttp's own limit is 32.
_WAITING_MAX: Final = 4


class AiohttpRequests:
    """The requests of a connection that aiohttp serves.

    Counts the bytes of a head, which aiohttp keeps until it is complete.
    """

    def __init__(
        self, protocol: asyncio.Protocol, bytes_max: int, refuse: Callable[[bool], None]
    ) -> None:
        """`refuse` is called once there are more than `bytes_max`.

        It is told whether earlier requests have not been answered.
        """
        assert isinstance(protocol, RequestHandler)
        protocol._max_msg_queue_size = _WAITING_MAX
        protocol._msg_queue_resume_size = _WAITING_MAX // 2
        self._protocol = protocol
        self._bytes_max = bytes_max
        self._refuse: Callable[[bool], None] | None = refuse
        self._requests = 0
        self._body: StreamReader | None = None
        self._in_body = False
        self._bytes = 0

    @property
    def is_between_requests(self) -> bool:
        """Tell whether what comes next begins a request, as far as is known."""
        return not self._in_body and not self._bytes

    @property
    def awaits_client(self) -> bool:
        """Tell whether nothing can happen before the client sends more."""
        return awaits_client(self._protocol)

    @property
    def owes_answers(self) -> bool:
        """Tell whether an answer to a complete request has not been written, or not all of it."""
        return owes_answers(self._protocol)

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
        if self._bytes > self._bytes_max and self._refuse is not None:
            self._refuse(bool(protocol._messages) or protocol._current_request is not None)

    def connection_lost(self) -> None:
        """Take note that the connection ends, before aiohttp does."""
        protocol = self._protocol
        # A WebSocket leaves its callback here, and would keep the request that began it.
        protocol._data_received_cb = None
        task = protocol._task_handler
        if protocol._current_request is None and task is not None:
            # It would begin a request of a connection that has gone, and fail.
            task.cancel()
        # Whoever is called back refers to this object, too.
        self._refuse = None

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
