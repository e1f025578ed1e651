"""Answers over HTTP while a gateway starts, so that probes can tell waiting from not running.

The gateway listens from the beginning. Until it knows what the log has, `/healthz` says that the
process lives, `/readyz` says what it waits for, and everything else is answered with 503, after
which apps keep what they have. Then the same sockets, with the connections that have not been
answered yet, pass to the real server: no client is refused in between.

Nobody is identified here, so limits are few and small: the oldest connection goes when there are
too many, one request each is read up to the end of its headers, and its body is thrown away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, cast

import msgspec

from gateway.http.plain.plain_request import response
from gateway.http.requests.responses import Refused, unavailable
from waylog.config import Endpoint
from waylog.network.acceptor import Acceptor
from waylog.network.proxy_protocol import ProxyHeader, ProxyHeaderReader
from waylog.supervision.reserved_ports import is_held

CONNECTIONS_MAX: Final = 256
_HEAD_BYTES_MAX: Final = 16 * 1024
_HEAD_S: Final = 10.0
#: Seconds in which the rest of a request is read, so that the client can read the answer.
_LINGER_S: Final = 2.0

_encode = msgspec.json.Encoder().encode

#: Makes the protocol of a connection.
Accept = Callable[[], asyncio.Protocol]
#: Returns the parts that are not ready, with the reasons.
Problems = Callable[[], dict[str, str]]


def listen(endpoint: Endpoint, accept: Accept, *, reuse_port: bool) -> Acceptor:
    """Listen at all addresses of the endpoint's host. Raises OSError if one cannot be bound."""
    acceptor = Acceptor(accept)
    acceptor.bind(endpoint, reuse_port=reuse_port or is_held(endpoint))
    acceptor.listen()
    return acceptor


class StartingServer:
    """The HTTP listener of a gateway that starts, until the real server takes it over."""

    def __init__(self, problems: Problems, is_proxy: Callable[[str], bool]) -> None:
        """`is_proxy` tells whether connections of an address begin with a PROXY header."""
        self.problems = problems
        self.is_proxy = is_proxy
        #: Those that have not been taken over, the oldest first.
        self.connections: dict[StartingConnection, None] = {}
        self._acceptor: Acceptor | None = None
        self._accept: Accept = lambda: StartingConnection(self)

    def start(self, endpoint: Endpoint, *, reuse_port: bool = False) -> None:
        """Listen. Raises OSError if the address cannot be bound."""
        self._acceptor = listen(endpoint, self._connection, reuse_port=reuse_port)

    def _connection(self) -> asyncio.Protocol:
        return self._accept()

    @property
    def port(self) -> int:
        """Return the port, which the system may have chosen."""
        assert self._acceptor is not None
        return self._acceptor.address.port

    def take_over(self, accept: Accept) -> Acceptor:
        """Pass on what listens, and all connections that have not been answered."""
        assert self._acceptor is not None
        acceptor, self._acceptor = self._acceptor, None
        self._accept = accept
        for connection in list(self.connections):
            connection.pass_on(accept)
        return acceptor

    async def close(self) -> None:
        """Stop listening, unless another server has taken over; close the connections."""
        if self._acceptor is not None:
            acceptor, self._acceptor = self._acceptor, None
            await acceptor.close()
        for connection in list(self.connections):
            connection.close()


class StartingConnection(asyncio.Protocol):
    """A connection that is answered once, while the gateway starts."""

    def __init__(self, server: StartingServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._proxy: ProxyHeaderReader | None = None
        self._data = b""  # with the PROXY header
        self._answered = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple) and peer and self._server.is_proxy(peer[0]):
            self._proxy = ProxyHeaderReader()
        connections = self._server.connections
        connections[self] = None
        if len(connections) > CONNECTIONS_MAX:
            next(iter(connections)).close()
        self._close_after(_HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._data += data
        start = 0
        if self._proxy is not None:
            header = self._proxy.read(self._data)
            if header is None:
                return
            if not isinstance(header, ProxyHeader):
                self.close()
                return
            start = header.size
        end = self._data.find(b"\r\n\r\n", start)
        if end < 0 and len(self._data) - start < _HEAD_BYTES_MAX:
            return
        # Of headers that are too long the first line is enough: no path is served that needs more.
        method, _, rest = self._data[start:].partition(b"\r\n")[0].partition(b" ")
        self._answer(method, rest.partition(b" ")[0].partition(b"?")[0])

    def close(self) -> None:
        """Close, whatever waits."""
        # Connections that are closed to make room must not wait for their end to be counted out.
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def pass_on(self, accept: Accept) -> None:
        """Let the protocol of another server go on, unless this connection is answered."""
        transport = self._transport
        if self._answered or transport is None or transport.is_closing():
            return
        self._forget()
        self._transport = None
        inner = accept()
        transport.set_protocol(inner)
        inner.connection_made(transport)
        if self._data and not transport.is_closing():
            inner.data_received(self._data)

    def _answer(self, method: bytes, path: bytes) -> None:
        assert self._transport is not None
        self._answered, self._data = True, b""
        headers = {"Connection": "close"}
        problems = self._server.problems()
        reads = method in (b"GET", b"HEAD")
        if reads and path == b"/healthz":
            status, body = 200, _encode({"status": "ok"})
        elif reads and path == b"/readyz":
            status, body = 503, _encode({"status": "not ready", "parts": problems})
        else:
            refusal = _refusal(problems)
            status, body = refusal.status, _encode({"error": refusal.reason})
            headers |= refusal.headers or {}
        answer = response(status, body, formatdate(usegmt=True).encode(), headers)
        self._transport.write(answer[: -len(body)] if method == b"HEAD" else answer)
        # To close now would reset the connection if more of the request comes, and the client
        # could lose the answer.
        self._transport.write_eof()
        self._close_after(_LINGER_S)

    def _close_after(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.close)

    def _forget(self) -> None:
        self._server.connections.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _refusal(problems: dict[str, str]) -> Refused:
    why = "; ".join(f"{part}: {reason}" for part, reason in problems.items())
    return unavailable(f"the gateway is starting{f' ({why})' if why else ''}")
