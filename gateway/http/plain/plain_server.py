"""The connections of the HTTP listener, and the enforcement of their timeouts."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Final

from gateway.http.plain.plain_connection import PlainConnection
from gateway.http.plain.shared_state import Accept, SharedState
from gateway.http.requests.services import Services

_SWEEP_S: Final = 0.5
#: Thousands of connections are looked after in steps: all at once would keep everybody waiting.
_STEP_S: Final = 0.02
_CONNECTIONS_A_STEP: Final = 100


class PlainServer:
    """Makes the connections of a listener, looks after them, and closes them."""

    def __init__(self, services: Services, accept: Accept) -> None:
        self.connections: set[PlainConnection] = set()
        self._shared = SharedState(services, accept)
        self._loop = asyncio.get_running_loop()
        self._half_closed: dict[PlainConnection, None] = {}
        # What is left of a round over all connections.
        self._round: list[PlainConnection] = []
        self._round_began = self._step_at = self._loop.time()
        self._timer = self._loop.call_at(self._step_at, self._step)

    def connection(self) -> asyncio.Protocol:
        """Return a new connection; the protocol factory of the acceptor."""
        return PlainConnection(self._shared, self)

    def opened(self, connection: PlainConnection) -> None:
        """Look after a connection from now on."""
        self.connections.add(connection)

    def has_half_closed(self, connection: PlainConnection) -> None:
        """Close a connection soon after its last answer, since its client sends no more."""
        self._half_closed[connection] = None
        self._step_in(_STEP_S)

    def lost(self, connection: PlainConnection) -> None:
        """Forget a connection that has ended."""
        self.connections.discard(connection)
        self._half_closed.pop(connection, None)

    async def close(self, timeout_s: float) -> None:
        """Take no more requests, and wait until those in progress are answered."""
        self._shared.closing = True
        for connection in list(self.connections):
            connection.close_when_idle()
        deadline = self._loop.time() + timeout_s
        while any(each.busy for each in self.connections) and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        self._timer.cancel()
        for connection in list(self.connections):
            connection.abort()

    def _step_in(self, seconds: float) -> None:
        at = self._loop.time() + seconds
        if not self._timer.cancelled() and self._step_at <= at:
            return
        self._timer.cancel()
        self._step_at = at
        self._timer = self._loop.call_at(at, self._step)

    def _step(self) -> None:
        now = self._loop.time()
        self._timer.cancel()
        if now - self._round_began >= _SWEEP_S:
            self._shared.renew_date()
            if not self._round:
                self._round_began = now
                self._round = list(self.connections)
        for connection in list(islice(self._half_closed, _CONNECTIONS_A_STEP)):
            del self._half_closed[connection]
            if connection.look_after(now):
                self._half_closed[connection] = None
        for connection in self._round[-_CONNECTIONS_A_STEP:]:
            connection.look_after(now)
        del self._round[-_CONNECTIONS_A_STEP:]
        self._step_in(_STEP_S if self._round or self._half_closed else _SWEEP_S)
