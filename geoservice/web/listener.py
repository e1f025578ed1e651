"""The geocoder's listening socket, whose connections are shared out among its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from waylog.config import Endpoint
from waylog.network.acceptor import Acceptor
from waylog.network.aiohttp_answers import owes_answers
from waylog.network.connection_pool import ConnectionPool
from waylog.supervision.reserved_ports import is_held

#: Limit of open connections; an idle one takes about 10 kB.
CONNECTIONS_MAX: Final = 4096

#: Seconds between looks at what a client that has closed its side has still to be answered.
_LOOK_AGAIN_S: Final = 0.02
_LOOK_AGAIN_S_MAX: Final = 0.5

Accept = Callable[[], asyncio.Protocol]


class CountedConnection(asyncio.Protocol):
    """An aiohttp connection that has a place in a pool, or is closed at once."""

    def __init__(self, pool: ConnectionPool, accept: Accept) -> None:
        self._pool = pool
        self._accept = accept
        #: The party of the pool that the connection counts for; None if it was refused.
        self.party: str | None = None
        self._inner: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.party = self._pool.enter(transport)
        if self.party is None:
            self._transport.abort()
            return
        self._inner = self._accept()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._inner is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        if self._inner is None:
            return None
        self._inner.eof_received()
        if not self._owes_answers():
            return None
        # The client still reads, perhaps. aiohttp would keep the connection open after its answers.
        self._close_when_answered(_LOOK_AGAIN_S)
        return True

    def _owes_answers(self) -> bool:
        return isinstance(self._inner, RequestHandler) and owes_answers(self._inner)

    def _close_when_answered(self, look_again_s: float) -> None:
        if self._transport is None:
            return
        if not self._owes_answers():
            self._transport.close()
            return
        asyncio.get_running_loop().call_later(
            look_again_s, self._close_when_answered, min(2 * look_again_s, _LOOK_AGAIN_S_MAX)
        )

    def pause_writing(self) -> None:
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.party is not None:
            self._pool.leave(self.party)
            self.party = None
        if self._inner is not None:
            self._inner.connection_lost(exc)
        self._inner = self._transport = None


def party_of_request(request: web.BaseRequest) -> str:
    """Return the party of a request's connection, the client's address if nobody counts it."""
    transport = request.transport
    connection = None if transport is None else transport.get_protocol()
    party = connection.party if isinstance(connection, CountedConnection) else None
    return party or request.remote or ""


def listen(accept: Accept, endpoint: Endpoint, pool: ConnectionPool) -> Acceptor:
    """Listen, with a protocol made by `accept` for each connection; raises OSError."""
    acceptor = Acceptor(lambda: CountedConnection(pool, accept))
    acceptor.bind(endpoint, reuse_port=is_held(endpoint))
    acceptor.listen()
    return acceptor
