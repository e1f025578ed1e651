"""The way of a connection before it speaks MQTT: the pool, a PROXY header, TLS.

Who comes from where is known, and counted, before anything is spent on a client.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Final, cast

from gateway.mqtt.connection import Connection
from gateway.mqtt.shell import MqttProtocol
from gateway.proxy_protocol import ProxyHeader, ProxyHeaderReader

if TYPE_CHECKING:
    from gateway.mqtt.listener import MqttServer

logger = logging.getLogger(__name__)

#: The first byte of a CONNECT and of a TLS handshake; a PROXY header begins with another.
_CONNECT: Final = 0x10
_TLS_HANDSHAKE: Final = 0x16


def address_of(transport: asyncio.BaseTransport) -> str:
    """The address of the other end; empty where there is none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


class Door(asyncio.Protocol):
    """Connections, which may begin with a PROXY header, with TLS, or with one after the other.

    The header is that of a trusted proxy and stands before all else, as HAProxy sends it in TCP
    mode. An address has its share of connections that begin with TLS, too.
    """

    __slots__ = (
        "_context",
        "_data",
        "_first_byte",
        "_handshake",
        "_pool_party",
        "_server",
        "_starting",
        "_timer",
        "_transport",
    )

    def __init__(self, server: MqttServer, context: ssl.SSLContext | None) -> None:
        self._server = server
        self._context = context
        self._first_byte = _CONNECT if context is None else _TLS_HANDSHAKE
        self._transport: asyncio.Transport | None = None
        # None: this one has no place in the pool, or has handed it on.
        self._pool_party: str | None = None
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        self._handshake: asyncio.Task[asyncio.Transport | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._pool_party = self._server.pool.enter(transport)
        if self._pool_party is None:
            self._server.counters["connections_refused"] += 1
            self._transport.abort()
            return
        address = address_of(transport)
        if address not in self._server.proxies:
            self._pass_on(address, b"")
            return
        self._timer = asyncio.get_running_loop().call_later(
            self._server.settings.connect_timeout_s, transport.close
        )

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        if self._starting is not None:
            return  # read before the pause: it is given to TLS
        if self._data[0] == self._first_byte:
            self._pass_on(address_of(self._transport), self._data)
            return
        header = ProxyHeaderReader().read(self._data)
        if isinstance(header, ProxyHeader):
            address = header.address or address_of(self._transport)
            self._pass_on(address, self._data[header.size :])
        elif header is not None:
            logger.warning("a proxy sent no PROXY header: %s", header)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self._timer is not None:
            self._timer.cancel()
        if self._handshake is not None:
            self._handshake.cancel()  # nobody would tell it that there is no connection any more

    def _pass_on(self, address: str, data: bytes) -> None:
        assert self._transport is not None
        if self._timer is not None:
            self._timer.cancel()
        if self._context is not None:
            self._encrypt(address, data)
            return
        protocol = self._protocol(address)
        self._transport.set_protocol(cast(asyncio.Protocol, protocol))
        protocol.connection_made(self._transport)
        if data and not self._transport.is_closing():
            protocol.data_received(data)

    def _protocol(self, address: str) -> MqttProtocol:
        """Give the protocol that speaks MQTT from now on; it has the place in the pool."""
        protocol = MqttProtocol(self._server, Connection)
        protocol.address = address
        protocol.pool_party, self._pool_party = self._pool_party, None
        return protocol

    def _leave(self) -> None:
        if self._pool_party is not None:
            self._server.pool.leave(self._pool_party)
            self._pool_party = None

    def _encrypt(self, address: str, data: bytes) -> None:
        assert self._transport is not None
        if not self._server.may_connect(address):
            self._transport.abort()
            return
        self._transport.pause_reading()
        self._data = data
        self._starting = asyncio.get_running_loop().create_task(
            self._start_tls(self._transport, address)
        )

    async def _start_tls(self, plain: asyncio.Transport, address: str) -> None:
        assert self._context is not None
        loop = asyncio.get_running_loop()
        # A pause that was asked for in connection_made is forgotten by uvloop, and by asyncio
        # before Python 3.11.3.
        plain.resume_reading()
        plain.pause_reading()
        early = _Early()
        self._handshake = loop.create_task(
            loop.start_tls(
                plain,
                early,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._server.settings.connect_timeout_s,
            )
        )
        # Behind the first step of start_tls, which puts the protocol of TLS in our place, and
        # behind what that step has called soon: reading goes on in the same turn of the loop,
        # and what is read comes in a later one.
        loop.call_soon(loop.call_soon, self._give_to_tls, plain)
        try:
            encrypted = await self._handshake
        except (OSError, TimeoutError):  # ssl.SSLError is one
            encrypted = None
        except asyncio.CancelledError:
            if not self._handshake.cancelled():
                raise
            encrypted = None
        if encrypted is None or early.lost:
            self._server.disconnected(address)
            self._leave()
            plain.abort()
            return
        protocol = self._protocol(address)
        protocol.counted = True
        early.successor = protocol
        encrypted.set_protocol(cast(asyncio.Protocol, protocol))
        protocol.connection_made(encrypted)
        if early.data and not encrypted.is_closing():
            protocol.data_received(early.data)

    def _give_to_tls(self, plain: asyncio.Transport) -> None:
        data, self._data = self._data, b""
        if data:
            _give(plain, data)


class _Early(asyncio.Protocol):
    """Keeps what a client sends together with the end of its handshake, before start_tls returns.

    That is a turn or two of the loop, and no more than one read of the socket each.
    """

    def __init__(self) -> None:
        self.data = b""
        self.lost = False
        #: The protocol that speaks MQTT, once it is there: an end may be on its way to us still.
        self.successor: MqttProtocol | None = None

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.successor is not None:
            self.successor.connection_lost(exc)


def _give(transport: asyncio.Transport, data: bytes) -> None:
    """Have a transport's protocol take what was read before it was there."""
    protocol = cast(asyncio.BufferedProtocol, transport.get_protocol())
    while data and not transport.is_closing():
        buffer = memoryview(protocol.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        protocol.buffer_updated(size)
        data = data[size:]
