"""A connection to a broker: it sends requests, and gets answers in the order of the requests.

Where the broker limits the session of a login, the login is renewed on the open connection before
its end (KIP-368). Requests that come meanwhile wait, since a broker expects nothing else between
the messages of a login.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast

from waylog.config import check_bootstrap_servers, parse_endpoint
from waylog.kafka.connection.login import log_in
from waylog.kafka.connection.sasl import LoginRefused
from waylog.kafka.connection.security import PLAINTEXT, ConnectionSecurity
from waylog.kafka.protocol.requests import Broker, MalformedAnswer, request
from waylog.process.background import fail

logger = logging.getLogger(__name__)

#: Bytes; a longer answer cannot be one to our requests.
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
#: The same before the login: whoever answers may be anybody.
_LOGIN_ANSWER_BYTES_MAX: Final = 64 * 1024
#: Seconds for TCP and TLS together, then for a login.
_CONNECT_TIMEOUT_S: Final = 5.0
_LOGIN_TIMEOUT_S: Final = 10.0
#: A login is renewed after a random share of its session between these, as by Kafka's own clients,
#: so that not all connections of a cluster renew theirs at the same time.
_RENEWAL_SHARES: Final = (0.85, 0.95)

#: Called with the body of an answer, or with None if the connection ended before it came.
AnswerCallback = Callable[[bytes | None], object]


def addresses(bootstrap_servers: str) -> list[Broker]:
    """Parse a list `host:port,...` of brokers; raises ConfigError.

    As for librdkafka, the name of a protocol and `://` may stand before each.
    """
    check_bootstrap_servers(bootstrap_servers)
    endpoints = (
        parse_endpoint(word.strip().rpartition("://")[2]) for word in bootstrap_servers.split(",")
    )
    return [Broker(endpoint.host, endpoint.port) for endpoint in endpoints]


def refusal(error: Exception) -> str | None:
    """Return why a broker and this client do not accept each other, None for any other error.

    Waiting does not help against it: a password, a certificate or a setting is wrong.
    """
    if isinstance(error, ssl.SSLEOFError):
        return None  # the broker has gone amid the handshake
    return str(error) if isinstance(error, LoginRefused | ssl.SSLError) else None


def _rank(error: OSError) -> int:
    if isinstance(error, ssl.SSLError):
        return 0
    return 1 if isinstance(error, ConnectionError) else 2


class _Request(NamedTuple):
    api: int
    parts: Sequence[bytes]
    deadline: float
    callback: AnswerCallback


class BrokerConnection(asyncio.Protocol):
    """A connection to one broker; `connect` makes it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        client_id: str,
        security: ConnectionSecurity,
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._client_id = client_id.encode()
        self._login = security.login
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        # Requests that have come since the login began; None outside of a login.
        self._held: deque[_Request] | None = None
        self._answer_bytes_max = (
            _ANSWER_BYTES_MAX if security.login is None else _LOGIN_ANSWER_BYTES_MAX
        )
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
        *,
        connect_timeout_s: float = _CONNECT_TIMEOUT_S,
        login_timeout_s: float = _LOGIN_TIMEOUT_S,
    ) -> BrokerConnection:
        """Connect to a broker, and log in if `security` says so.

        `connect_timeout_s` is for TCP and TLS together. Raises OSError, which includes
        TimeoutError, ssl.SSLError and LoginRefused.
        """
        try:
            async with asyncio.timeout(connect_timeout_s):
                connection = await cls._dial(loop, broker, client_id, security)
        except TimeoutError:
            raise TimeoutError("it does not take the connection in time") from None
        if security.login is not None:
            try:
                await connection._log_in(login_timeout_s)
            except BaseException:
                connection.close()
                raise
        return connection

    @classmethod
    async def _dial(
        cls,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        client_id: str,
        security: ConnectionSecurity,
    ) -> BrokerConnection:
        """Try each address of the broker's name; raise the error that tells most."""
        failures: list[OSError] = []
        try:
            found = await loop.getaddrinfo(*broker, type=socket.SOCK_STREAM)
        except UnicodeError:
            # An empty label, or one that is too long; other names that are none end likewise.
            raise socket.gaierror(socket.EAI_NONAME, "no name of a host") from None
        for *_, address in found:
            try:
                _, connection = await loop.create_connection(
                    lambda: cls(loop, broker, client_id, security),
                    *address[:2],
                    ssl=security.tls,
                    server_hostname=broker.host if security.tls is not None else None,
                )
            except OSError as error:
                failures.append(error)
            else:
                return connection
        # Asyncio would join the errors of several addresses to one text without a type. A machine
        # without IPv6 may have no way to ::1, while 127.0.0.1 refuses.
        raise min(failures, key=_rank)

    @property
    def is_open(self) -> bool:
        """True while requests can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def waiting(self) -> int:
        """The number of requests without an answer."""
        return len(self._waiting) + len(self._held or ())

    def request(
        self, api: int, parts: Sequence[bytes], timeout_s: float, callback: AnswerCallback
    ) -> None:
        """Send a request; `look_after` closes the connection if no answer comes in `timeout_s`."""
        now = self._loop.time()
        if self._renewal is not None and self._renewal.when() <= now:
            # The event loop is late: this request might reach the broker after the session's end.
            self._renew()
        if self._held is None:
            self._send(api, parts, now + timeout_s, callback)
        else:
            self._held.append(_Request(api, parts, now + timeout_s, callback))

    def _send(
        self, api: int, parts: Sequence[bytes], deadline: float, callback: AnswerCallback
    ) -> None:
        if self._transport is None or self._transport.is_closing():
            callback(None)
            return
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._waiting.append((self._correlation_id, callback, deadline))
        self._transport.write(request(api, self._correlation_id, self._client_id, parts))

    async def ask(self, api: int, parts: Sequence[bytes], timeout_s: float) -> bytes:
        """Send a request and wait for the answer's body.

        Raises OSError (ConnectionError, TimeoutError).
        """
        return await self._answer_of(self.request, api, parts, timeout_s)

    async def _answer_of(
        self,
        send: Callable[[int, Sequence[bytes], float, AnswerCallback], None],
        api: int,
        parts: Sequence[bytes],
        timeout_s: float,
    ) -> bytes:
        future: asyncio.Future[bytes | None] = self._loop.create_future()

        def answered(body: bytes | None) -> None:
            if not future.done():
                future.set_result(body)

        def is_late() -> None:
            if not future.done():
                future.set_exception(TimeoutError())

        send(api, parts, timeout_s, answered)
        # A view asks hundreds of times a second: this costs a third of asyncio.timeout.
        timer = self._loop.call_later(timeout_s, is_late)
        try:
            body = await future
        finally:
            timer.cancel()
        if body is None:
            # With TLS 1.3 a broker refuses a client's certificate only after the handshake.
            why = "" if self._lost is None else f": {self._lost}"
            raise ConnectionError(
                f"the broker's connection ended before its answer{why}"
            ) from self._lost
        return body

    # --- the login ------------------------------------------------------------------------------

    async def _log_in(self, timeout_s: float = _LOGIN_TIMEOUT_S) -> None:
        """Log in, or renew the login, while other requests wait; raises OSError."""
        assert self._login is not None
        try:
            async with asyncio.timeout(timeout_s):
                session_ms = await log_in(self._login, self._ask_of_login)
        except MalformedAnswer as error:
            raise ConnectionError(f"the broker's answer to the login: {error}") from None
        except TimeoutError:
            raise TimeoutError("the broker does not answer the login") from None
        if not self.is_open:
            raise ConnectionError("the broker's connection ended at the login") from self._lost
        self._answer_bytes_max = _ANSWER_BYTES_MAX
        if session_ms > 0:
            share = random.uniform(*_RENEWAL_SHARES)
            self._renewal = self._loop.call_later(session_ms / 1000 * share, self._renew)
        held, self._held = self._held, None
        for each in held or ():
            self._send(*each)

    async def _ask_of_login(self, api: int, parts: Sequence[bytes]) -> bytes:
        return await self._answer_of(self._send_at_once, api, parts, _LOGIN_TIMEOUT_S)

    def _send_at_once(
        self, api: int, parts: Sequence[bytes], timeout_s: float, callback: AnswerCallback
    ) -> None:
        self._send(api, parts, self._loop.time() + timeout_s, callback)

    def _renew(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        self._held = deque()
        self._renewing = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        try:
            await self._log_in()
        except OSError as error:
            if self.is_open:
                logger.warning("%s:%d: the login is not renewed: %s", *self._broker, error)
        except Exception:
            logger.exception("%s:%d: the login could not be renewed", *self._broker)
        else:
            return
        self.close()

    # --- the end --------------------------------------------------------------------------------

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
        if (
            not self._received
            and 8 <= len(data) <= self._answer_bytes_max
            and int.from_bytes(data[:4], "big", signed=True) == len(data) - 4
        ):
            # Nearly always one whole answer, which needs no buffer.
            self._answer(int.from_bytes(data[4:8], "big", signed=True), bytes(data[8:]))
            return
        self._received += data
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big", signed=True)
            if not 4 <= size <= self._answer_bytes_max:
                self.close()
                return
            if len(self._received) < 4 + size:
                return
            correlation_id = int.from_bytes(self._received[4:8], "big", signed=True)
            body = bytes(self._received[8 : 4 + size])
            del self._received[: 4 + size]
            self._answer(correlation_id, body)

    def _answer(self, correlation_id: int, body: bytes) -> None:
        if self._waiting and self._waiting[0][0] == correlation_id:
            self._call(self._waiting.popleft()[1], body)
        else:
            self.close()

    def _call(self, callback: AnswerCallback, body: bytes | None) -> None:
        try:
            callback(body)
        except Exception as error:
            # Here it would only end this connection, and whoever has asked would wait for ever.
            fail(self._loop, f"what waits for {self._broker.host}:{self._broker.port}", error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = exc
        self._end()

    def _end(self) -> None:
        self._transport = None
        self._received.clear()
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if self._renewing is not None:
            self._renewing.cancel()
        held, self._held = self._held, None
        while self._waiting:
            self._call(self._waiting.popleft()[1], None)
        for each in held or ():
            self._call(each.callback, None)
