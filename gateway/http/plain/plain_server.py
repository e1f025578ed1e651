"""State shared by the connections of the HTTP listener, and the enforcement of timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import Final

from gateway.http.plain.plain_connection import PlainConnection
from gateway.http.requests.services import Services
from gateway.limits.pools import Shares
from waylog.process.background import TaskSet

_SWEEP_S: Final = 0.5

Accept = Callable[[], asyncio.Protocol]


class PlainServer:
    """State shared by all connections of a listener. Also enforces their timeouts."""

    def __init__(self, services: Services, accept: Accept) -> None:
        self.services = services
        self.addresses = services.addresses
        self.accept = accept
        self.connections: set[PlainConnection] = set()
        self.pool = services.connections.part(services.limits.connections_max, "HTTP")
        #: Bytes of incomplete requests. They count for the address; on loopback they count for the
        #: connection or, when the pool is half full, for the account.
        limits = services.limits
        self.partial = Shares(limits.partial_bytes_max, limits.partial_bytes_each_max)
        self.authentications = TaskSet("an authentication over HTTP")
        self.closing = False
        self.date = b""
        self._loop = asyncio.get_running_loop()
        self._sweep()

    def connection(self) -> asyncio.Protocol:
        """Return a new connection; the protocol factory of create_server."""
        return PlainConnection(self)

    async def close(self, timeout_s: float) -> None:
        """Take no more requests, and wait until those in progress are answered."""
        self.closing = True
        for connection in list(self.connections):
            connection.close_when_idle()
        deadline = self._loop.time() + timeout_s
        while any(each.busy for each in self.connections) and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()

    def _sweep(self) -> None:
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep)
        self.date = formatdate(usegmt=True).encode()
        now = self._loop.time()
        for connection in list(self.connections):
            connection.look_after(now)
