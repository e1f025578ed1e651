"""What a connection passes before it speaks MQTT: a PROXY header, or TLS.

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

#: The first byte of a CONNECT; a PROXY header begins with another.
_CONNECT: Final = 0x10


def address_of(transport: asyncio.BaseTransport) -> str:
    """The address of the other end; empty where there is none."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


class ProxyDoor(asyncio.Protocol):
    """Connections of trusted proxies, which may begin with a PROXY header."""

    def __init__(self, server: MqttServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if address_of(transport) not in self._server.proxies:
            self._pass_on(None, b"")
            return
        self._timer = asyncio.get_running_loop().call_later(
            self._server.settings.connect_timeout_s, transport.close
        )

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._data[0] == _CONNECT:
            self._pass_on(None, self._data)
            return
        header = ProxyHeaderReader().read(self._data)
        if isinstance(header, ProxyHeader):
            self._pass_on(header.address, self._data[header.size :])
        elif header is not None:
            logger.warning("a proxy sent no PROXY header: %s", header)
            assert self._transport is not None
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _pass_on(self, address: str | None, data: bytes) -> None:
        assert self._transport is not None
        if self._timer is not None:
            self._timer.cancel()
        protocol = MqttProtocol(self._server, Connection)
        if address is not None:
            protocol.address = address
        self._transport.set_protocol(cast(asyncio.Protocol, protocol))
        protocol.connection_made(self._transport)
        if data and not self._transport.is_closing():
            protocol.data_received(data)


class TlsDoor(asyncio.Protocol):
    """Connections that begin with TLS: an address has its share of them, too."""

    def __init__(self, server: MqttServer, context: ssl.SSLContext) -> None:
        self._server = server
        self._context = context
        self._address = ""
        self._counted = False
        self._starting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._address = address_of(transport)
        if not self._server.may_connect(self._address):
            cast(asyncio.Transport, transport).abort()
            return
        self._counted = True
        plain = cast(asyncio.Transport, transport)
        plain.pause_reading()
        self._starting = asyncio.get_running_loop().create_task(self._start(plain))

    async def _start(self, plain: asyncio.Transport) -> None:
        protocol = MqttProtocol(self._server, Connection)
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                plain,
                cast(asyncio.Protocol, protocol),
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._server.settings.connect_timeout_s,
            )
        except (OSError, TimeoutError):  # ssl.SSLError is one
            encrypted = None
        if encrypted is None:
            self._server.disconnected(self._address)
            plain.abort()
            return
        protocol.address = self._address
        protocol.counted = True
        protocol.connection_made(encrypted)
