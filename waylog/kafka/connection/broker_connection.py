"""A connection to a broker: it sends requests, and gets answers in the order of the requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from waylog.kafka.connection.security import PLAINTEXT, ConnectionSecurity
from waylog.kafka.requests import Broker, request

#: Bytes; a longer answer cannot be one to our requests.
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_CONNECT_TIMEOUT_S: Final = 5.0

#: Called with the body of an answer, or with None if the connection ended before it came.
AnswerCallback = Callable[[bytes | None], object]


def addresses(bootstrap_servers: str) -> list[Broker]:
    """Parse a list `host:port,...` of brokers."""
    brokers = []
    for written in bootstrap_servers.split(","):
        host, _, port = written.strip().rpartition(":")
        brokers.append(Broker(host.strip("[]"), int(port)))
    return brokers


class BrokerConnection(asyncio.Protocol):
    """A connection to one broker; `connect` makes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, client_id: str) -> None:
        self._loop = loop
        self._client_id = client_id.encode()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        # Why the connection ended, if the transport has said it.
        self._lost: Exception | None = None
        self._correlation_id = 0
        # Correlation id, callback and deadline of each request without an answer.
        self._waiting: deque[tuple[int, AnswerCallback, float]] = deque()

    @classmethod
    async def connect(
        cls,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        client_id: str,
        security: ConnectionSecurity = PLAINTEXT,
    ) -> BrokerConnection:
        """Connect to a broker; raises OSError (which includes TimeoutError and ssl.SSLError)."""
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            _, connection = await loop.create_connection(
                lambda: cls(loop, client_id),
                *broker,
                ssl=security.tls,
                server_hostname=broker.host if security.tls is not None else None,
            )
        return connection

    @property
    def is_open(self) -> bool:
        """True while requests can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def waiting(self) -> int:
        """The number of requests without an answer."""
        return len(self._waiting)

    def request(
        self, api: int, parts: Sequence[bytes], timeout_s: float, callback: AnswerCallback
    ) -> None:
        """Send a request; `look_after` closes the connection if no answer comes in `timeout_s`."""
        if self._transport is None or self._transport.is_closing():
            callback(None)
            return
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._waiting.append((self._correlation_id, callback, self._loop.time() + timeout_s))
        self._transport.write(request(api, self._correlation_id, self._client_id, parts))

    async def ask(self, api: int, parts: Sequence[bytes], timeout_s: float) -> bytes:
        """Send a request and wait for the answer's body.

        Raises OSError (ConnectionError, TimeoutError).
        """
        future: asyncio.Future[bytes | None] = self._loop.create_future()

        def answered(body: bytes | None) -> None:
            if not future.done():
                future.set_result(body)

        self.request(api, parts, timeout_s, answered)
        async with asyncio.timeout(timeout_s):
            body = await future
        if body is None:
            # With TLS 1.3 a broker refuses a client's certificate only after the handshake.
            why = "" if self._lost is None else f": {self._lost}"
            raise ConnectionError(f"the broker's connection ended before its answer{why}")
        return body

    def look_after(self) -> None:
        """Close the connection if an answer is late."""
        if self._waiting and self._waiting[0][2] <= self._loop.time():
            self.close()

    def close(self) -> None:
        """Close the connection; callbacks that wait for an answer get None."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    # --- asyncio.Protocol -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big", signed=True)
            if not 4 <= size <= _ANSWER_BYTES_MAX:
                self.close()
                return
            if len(self._received) < 4 + size:
                return
            correlation_id = int.from_bytes(self._received[4:8], "big", signed=True)
            body = bytes(self._received[8 : 4 + size])
            del self._received[: 4 + size]
            if not self._waiting or self._waiting[0][0] != correlation_id:
                self.close()
                return
            self._waiting.popleft()[1](body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = exc
        self._end()

    def _end(self) -> None:
        self._transport = None
        self._received.clear()
        while self._waiting:
            self._waiting.popleft()[1](None)
