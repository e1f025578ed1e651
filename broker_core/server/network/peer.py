"""A connection to another broker or controller, with several requests in flight.

It is opened when there is a request to send. A caller gets None instead of an answer if the
connection could not be opened, has broken or was closed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from broker_core import errors
from broker_core.protocol.decoder import decode, skip_tagged_fields
from broker_core.protocol.definitions import SASL_AUTHENTICATE, SASL_HANDSHAKE
from broker_core.protocol.encoder import encode
from broker_core.protocol.errors import RemoteProtocolError
from broker_core.protocol.framing import FrameReader
from broker_core.protocol.schema import AnyApi, Api, RequestBody, ResponseBody
from waylog.config import Endpoint
from waylog.kafka.connection.login import PasswordLogin
from waylog.kafka.connection.reach_trouble import ReachTrouble
from waylog.kafka.connection.sasl import (
    LoginRefused,
    LoginUnwanted,
    SaslCredentials,
    client_exchange,
)
from waylog.kafka.connection.security import ConnectionSecurity
from waylog.kafka.protocol.requests import Broker
from waylog.process.background import fail, spawn

if TYPE_CHECKING:
    from broker_core.protocol.definitions.bodies import (
        SaslAuthenticateRequest,
        SaslHandshakeRequest,
    )

logger = logging.getLogger(__name__)

_SHARED_BYTES: Final = 64 * 1024
_CONNECT_TIMEOUT_S: Final = 5.0
#: Seconds without an answer after which a peer may be gone: no request between brokers takes that
#: long. (Kafka's request.timeout.ms is 30 s.)
_PATIENCE_S: Final = 15.0
_API_VERSIONS: Final = 18
_HANDSHAKE_VERSION: Final = 1
_AUTHENTICATE_VERSION: Final = 2
#: Share of a login's lifetime after which it is renewed (KIP-368).
_RENEWAL_SHARE: Final = 0.8

#: Takes the answer, or None if there is none. Its `records` are slices of the receive buffer: a
#: caller that needs them after the call has to copy them.
Answered = Callable[[ResponseBody | None], None]


def encode_request(
    api: Api[RequestBody, ResponseBody],
    version: int,
    correlation_id: int,
    client_id: bytes,
    body: RequestBody,
) -> bytes:
    """Encode one request frame with its length."""
    header = struct.pack(">hhih", api.key, version, correlation_id, len(client_id)) + client_id
    if api.is_flexible(version):
        header += b"\0"
    frame = header + encode(api.request_plan(version), body)
    return struct.pack(">i", len(frame)) + frame


def decode_response(
    api: Api[RequestBody, ResponseBody], version: int, frame: memoryview
) -> ResponseBody:
    """Return the body of a response frame; raises RemoteProtocolError."""
    position = 4
    if api.key != _API_VERSIONS and api.is_flexible(version):
        position = skip_tagged_fields(frame, position)
    body: ResponseBody = decode(api.response_plan(version), frame, position)[0]
    return body


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, peer: Peer, shared: memoryview, frame_bytes_max: int) -> None:
        self._peer = peer
        self._reader = FrameReader(shared, frame_bytes_max=frame_bytes_max)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._peer.connection_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.received(nbytes)
        try:
            while self.transport is not None and (frame := self._reader.next_frame()) is not None:
                self._peer.received(frame)
            self._reader.settle()
        except RemoteProtocolError as error:
            logger.warning("%s is disconnected: %s", self._peer, error)
            if self.transport is not None:
                self.transport.abort()


class Peer:
    """Another node. `lost`, if given, is called when an open connection breaks.

    With `login` this node authenticates itself before it sends requests.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        *,
        tls: ssl.SSLContext | None = None,
        login: SaslCredentials | None = None,
        frame_bytes_max: int = 100 * 1024 * 1024,
        lost: Callable[[], None] | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """`patience_s`: without an answer for once to twice that long, disconnect."""
        self.endpoint = endpoint
        self._patience_s = patience_s
        self._watch: asyncio.TimerHandle | None = None
        self._oldest: int | None = None
        self._login = login
        self._outside = ReachTrouble(
            str(endpoint),
            ConnectionSecurity(
                tls,
                None if login is None else PasswordLogin(login),
                "the properties are those of this node's inter-broker or controller listener",
            ),
            quiet=True,
        )
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._client_id = client_id.encode()
        self._tls = tls
        self._frame_bytes_max = frame_bytes_max
        self._lost = lost
        self._shared = memoryview(bytearray(_SHARED_BYTES))
        self._connection: _Connection | None = None
        # A connection that is open but not logged in yet.
        self._joining: _Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._explaining: asyncio.Task[None] | None = None
        self._correlation_id = 0
        # Requests without an answer, in order; frames that wait for the connection.
        self._waiting: dict[int, tuple[AnyApi, int, Answered[Any]]] = {}
        self._unsent: list[bytes] = []
        self._closed = False

    def __str__(self) -> str:
        return str(self.endpoint)

    @property
    def is_connected(self) -> bool:
        """Tell whether the connection is open."""
        return self._connection is not None

    def send(
        self,
        api: Api[RequestBody, ResponseBody],
        version: int,
        body: RequestBody,
        answered: Answered[ResponseBody],
    ) -> None:
        """Send a request."""
        if self._closed:
            answered(None)
            return
        frame = self._frame(api, version, body, answered)
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.write(frame)
            return
        self._unsent.append(frame)
        if self._connecting is None:
            self._connecting = spawn(self._connect(), f"connecting to {self}")

    def _frame(
        self,
        api: Api[RequestBody, ResponseBody],
        version: int,
        body: RequestBody,
        answered: Answered[ResponseBody],
    ) -> bytes:
        self._correlation_id += 1
        self._waiting[self._correlation_id] = (api, version, answered)
        return encode_request(api, version, self._correlation_id, self._client_id, body)

    async def call(
        self, api: Api[RequestBody, ResponseBody], version: int, body: RequestBody
    ) -> ResponseBody | None:
        """Send and await the answer; only for answers without `records`."""
        future: asyncio.Future[ResponseBody | None] = asyncio.get_running_loop().create_future()
        self.send(api, version, body, partial(_settle, future))
        return await future

    def disconnect(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.abort()

    def close(self) -> None:
        """Close for good; waiting requests get None."""
        self._closed = True
        self._stop_looking()
        self._stop_renewing()
        for task in (self._connecting, self._explaining):
            if task is not None:
                task.cancel()
        if self._joining is not None and self._joining.transport is not None:
            self._joining.transport.abort()
        self._lost = None
        self.disconnect()
        self._fail_all()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        connection = _Connection(self, self._shared, self._frame_bytes_max)
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await loop.create_connection(
                    lambda: connection,
                    self.endpoint.host,
                    self.endpoint.port,
                    ssl=self._tls,
                    server_hostname=self.endpoint.host if self._tls is not None else None,
                )
                if self._login is not None:
                    self._joining = connection
                    await self._log_in(connection, self._login)
        except Exception as error:
            if isinstance(error, OSError):
                logger.debug("%s cannot be reached: %s", self, error)
                self._explain(error)
            else:
                # The next request connects again.
                logger.exception("%s cannot be asked", self)
            if connection.transport is not None:
                connection.transport.abort()
            self._connecting = self._joining = None
            self._fail_all()
            return
        self._connecting = self._joining = None
        if connection.transport is None:
            self._fail_all()
            return
        self._outside.succeeded()
        self._connection = connection
        self._look()
        unsent, self._unsent = self._unsent, []
        connection.transport.writelines(unsent)

    def _explain(self, error: OSError) -> None:
        """Log why the other node does not let this one in, now and then and if it is news.

        The next attempt does not wait for that.
        """
        if self._login is None and self._tls is None:
            return  # nothing of it can be wrong
        if self._explaining is None or self._explaining.done():
            node = Broker(self.endpoint.host, self.endpoint.port)
            self._explaining = spawn(self._outside.failed({node: error}), f"why {self} refuses")

    def _look(self) -> None:
        """Disconnect if the oldest request is still the same as at the last check; check again.

        A machine that loses power closes no connection, and after a restart it does not know of it:
        a node that only waits would never notice. A slow answer delays all answers behind it.
        """
        oldest = next(iter(self._waiting), None)
        if oldest is not None and oldest == self._oldest:
            logger.warning(
                "%s has not answered for %g s: another connection", self, self._patience_s
            )
            self.disconnect()
            return
        self._oldest = oldest
        self._watch = asyncio.get_running_loop().call_later(self._patience_s, self._look)

    def _stop_looking(self) -> None:
        self._oldest = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # --------------------------------------------------------------------------------------- login

    async def _log_in(self, connection: _Connection, login: SaslCredentials) -> None:
        """Authenticate with SASL; raises LoginRefused, ConnectionError."""

        async def ask(
            api: Api[RequestBody, ResponseBody], version: int, body: RequestBody
        ) -> ResponseBody:
            future: asyncio.Future[ResponseBody | None] = asyncio.get_running_loop().create_future()
            frame = self._frame(api, version, body, partial(_settle, future))
            if connection.transport is None:
                raise ConnectionResetError("the connection breaks at the login")
            connection.transport.write(frame)
            answer = await future
            if answer is None:
                raise ConnectionResetError("the connection breaks at the login")
            return answer

        handshake: SaslHandshakeRequest = {"mechanism": login.mechanism}
        agreed = await ask(SASL_HANDSHAKE, _HANDSHAKE_VERSION, handshake)
        if agreed["error_code"] != errors.NONE:
            offered = ", ".join(agreed["mechanisms"])
            if agreed["error_code"] == errors.IllegalSaslState.code:
                raise LoginUnwanted("the listener has no logins")
            raise LoginRefused(f"{login.mechanism} is not one of {offered}")
        exchange = client_exchange(login)
        message: bytes | None = exchange.first()
        lifetime_ms = 0
        while message is not None:
            token: SaslAuthenticateRequest = {"auth_bytes": message}
            answer = await ask(SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, token)
            if answer["error_code"] != errors.NONE:
                reason = answer["error_message"] or "no reason is given"
                raise LoginRefused(
                    f"the login of user {login.user} by {login.mechanism} is refused: {reason}"
                )
            lifetime_ms = answer["session_lifetime_ms"]
            message = exchange.evaluate(bytes(answer["auth_bytes"]))
        if lifetime_ms > 0:
            self._renewal = asyncio.get_running_loop().call_later(
                lifetime_ms * _RENEWAL_SHARE / 1000, self._renew
            )

    def _renew(self) -> None:
        self._renewal = None
        if self._connection is not None:
            self._renewing = spawn(self._log_in_again(self._connection), f"login to {self}")

    async def _log_in_again(self, connection: _Connection) -> None:
        assert self._login is not None
        try:
            await self._log_in(connection, self._login)
        except Exception as error:
            is_expected = isinstance(error, OSError)
            logger.warning(
                "%s: the login cannot be renewed: %s",
                self,
                error,
                exc_info=None if is_expected else error,
            )
            if connection.transport is not None:
                connection.transport.abort()

    def _stop_renewing(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    # ------------------------------------------------------------------------------------- answers

    def received(self, frame: memoryview) -> None:
        """Pass a response to its caller. Raises RemoteProtocolError."""
        correlation_id = int.from_bytes(frame[:4], "big")
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise RemoteProtocolError("an answer to nothing that was asked")
        api, version, answered = waiting
        try:
            body = decode_response(api, version, frame)
        except RemoteProtocolError:
            self._answer(answered, None)
            raise
        self._answer(answered, body)

    def _answer(self, answered: Answered[Any], body: Any) -> None:
        try:
            answered(body)
        except Exception as error:
            # Here it would only end this connection, and whoever has asked would wait for ever.
            fail(asyncio.get_running_loop(), f"what waits for {self}", error)

    def connection_lost(self, connection: _Connection) -> None:
        """Fail the requests of a connection that is gone."""
        if self._joining is connection:
            self._fail_all()
            return
        if self._connection is not connection:
            return
        self._connection = None
        self._stop_looking()
        self._stop_renewing()
        self._fail_all()
        if self._lost is not None:
            self._lost()

    def _fail_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        self._unsent.clear()
        for _, _, answered in waiting.values():
            self._answer(answered, None)


def _settle(future: asyncio.Future[ResponseBody | None], answer: ResponseBody | None) -> None:
    if not future.done():
        future.set_result(answer)
