"""The start of a connection, before it speaks MQTT: connection pool, PROXY header, TLS.

The client's address is determined, and its connections are counted, before any other work is done
for the client.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Final, cast

from gateway.mqtt.sessions.connection import Connection
from gateway.mqtt.sessions.shell import MqttProtocol
from waylog.network.proxy_protocol import ProxyHeader, ProxyHeaderReader

if TYPE_CHECKING:
    from gateway.mqtt.listening.listener import MqttServer

logger = logging.getLogger(__name__)

#: The first byte of a CONNECT and of a TLS handshake; a PROXY header begins with another byte.
_CONNECT: Final = 0x10
_TLS_HANDSHAKE: Final = 0x16


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of the peer, or an empty string where there is none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


class ConnectionPreamble(asyncio.Protocol):
    """A new connection, which may begin with a PROXY header, with TLS, or with both in this order.

    Only trusted proxies may send a PROXY header; it comes before everything else, as HAProxy sends
    it in TCP mode. The limit of connections per address also covers those whose TLS handshake is
    not complete.
    """

    __slots__ = (
        "_context",
        "_counted",
        "_data",
        "_first_byte",
        "_pool_party",
        "_server",
        "_timer",
        "_transport",
    )

    def __init__(self, server: MqttServer, context: ssl.SSLContext | None) -> None:
        self._server = server
        self._context = context
        self._first_byte = _CONNECT if context is None else _TLS_HANDSHAKE
        self._transport: asyncio.Transport | None = None
        # The party that holds a place in the pool; None without a place, or after it is handed on.
        self._pool_party: str | None = None
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None
        # The address whose connection count includes this one during the TLS handshake.
        self._counted: str | None = None

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
        if self._pool_party is not None:
            self._server.pool.leave(self._pool_party)
            self._pool_party = None
        if self._counted is not None:
            self._server.disconnected(self._counted)
            self._counted = None
        if self._timer is not None:
            self._timer.cancel()

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
        """Return the protocol that speaks MQTT from now on, and hand it the place in the pool."""
        protocol = MqttProtocol(self._server, Connection)
        protocol.address = address
        protocol.pool_party, self._pool_party = self._pool_party, None
        return protocol

    def _encrypt(self, address: str, data: bytes) -> None:
        assert self._transport is not None
        assert self._context is not None
        if not self._server.may_connect(address):
            self._transport.abort()
            return
        self._counted = address
        transport = self._transport
        handshake = self._server.handshakes.begin(
            transport,
            self._context,
            lambda: self._server.party_of_unknown(transport, address),
            self,
        )
        if data:
            handshake.data_received(data)

    def encrypted(self, transport: asyncio.Transport) -> asyncio.BaseProtocol:
        """See waylog.network.tls.handshakes.PendingHandshake."""
        assert self._counted is not None
        protocol = self._protocol(self._counted)
        protocol.counted, self._counted = True, None
        protocol.connection_made(transport)
        return protocol

    def failed(self, reason: str | None) -> None:
        """See waylog.network.tls.handshakes.PendingHandshake."""
        self.connection_lost(None)
