"""MQTT over WebSocket (MQTT 5.0, section 6): the same bytes, in binary messages.

Message boundaries have no meaning. For the state machines a WebSocket is one more transport.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import WSCloseCode, WSMsgType, web

from gateway.http.plain.websockets import charge, messages, prepare_websocket, send_or_close
from gateway.limits.turn_clock import Asker, PartyTurns
from gateway.mqtt.listening.listener import MqttServer
from gateway.mqtt.sessions.connection import Connection
from gateway.mqtt.sessions.shell import MqttProtocol

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
#: The protocol is paused above the first limit and resumed below the second (bytes to send).
_HIGH_WATER_BYTES: Final = 64 * 1024
_LOW_WATER_BYTES: Final = 16 * 1024


class WebSocketTransport:
    """The part of an asyncio.Transport that MqttProtocol uses; `send_all` sends what is written."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        peer: str | None,
        transport: asyncio.BaseTransport | None = None,
    ) -> None:
        """`transport` is that of the HTTP connection."""
        self._socket = socket
        self._transport = transport
        self._peer = peer
        self._protocol: MqttProtocol | None = None
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._paused = False
        self._closing = False
        self._news = asyncio.Event()
        #: Set unless the protocol has paused reading.
        self.reading = asyncio.Event()
        self.reading.set()

    def serve(self, protocol: MqttProtocol) -> None:
        """Tell `protocol` that it is connected."""
        self._protocol = protocol
        protocol.connection_made(self)  # type: ignore[arg-type]  # has the methods that it calls

    # --- asyncio.Transport ----------------------------------------------------------------------

    def set_write_buffer_limits(self, high: int) -> None:
        """Do nothing: the limits are fixed."""

    def get_extra_info(self, name: str) -> Any:
        """Return the peer's address for `peername`, and the TCP `socket`; else None."""
        if name == "socket":
            return None if self._transport is None else self._transport.get_extra_info(name)
        return (self._peer, 0) if name == "peername" and self._peer else None

    def write(self, data: bytes) -> None:
        """Queue bytes for sending."""
        if self._closing:
            return
        self._outgoing.append(data)
        self._outgoing_bytes += len(data)
        self._news.set()
        if self._outgoing_bytes > _HIGH_WATER_BYTES and not self._paused and self._protocol:
            self._paused = True
            self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that have not been sent."""
        return self._outgoing_bytes

    def can_write_eof(self) -> bool:
        """Return False: a WebSocket closes both directions at once."""
        return False

    def is_closing(self) -> bool:
        """Return whether the transport accepts no more data."""
        return self._closing

    def close(self) -> None:
        """Close after everything written has been sent."""
        self._closing = True
        self.reading.set()
        self._news.set()

    def abort(self) -> None:
        """Discard what is not sent yet, and close."""
        self._outgoing.clear()
        self.close()

    def pause_reading(self) -> None:
        """Stop reading messages from the client."""
        self.reading.clear()

    def resume_reading(self) -> None:
        """Read messages from the client again."""
        self.reading.set()

    # --- sending --------------------------------------------------------------------------------

    async def send_all_or_abort(self) -> None:
        """Do what `send_all` does; if it fails, close the socket, and wait for nothing more."""
        try:
            await send_or_close(self._socket, self.send_all())
        finally:
            self.abort()

    async def send_all(self) -> None:
        """Send what is written until the transport is closed."""
        while True:
            await self._news.wait()
            self._news.clear()
            waiting, self._outgoing = self._outgoing, []
            if waiting:
                await self._socket.send_bytes(b"".join(waiting))
                self._outgoing_bytes -= sum(map(len, waiting))
            if self._paused and self._outgoing_bytes < _LOW_WATER_BYTES and self._protocol:
                self._paused = False
                self._protocol.resume_writing()
            if self._closing and not self._outgoing:
                await self._socket.close(code=WSCloseCode.OK)
                return


async def serve_mqtt_websocket(
    server: MqttServer,
    request: web.Request,
    address: str,
    turns: PartyTurns,
    party: str,
    *,
    counted: bool,
) -> web.WebSocketResponse:
    """Serve one client, in turns with others, until one ends the connection.

    `party` is that of the client until it has signed in.

    `counted` tells that the HTTP connection has been counted for `address` already.
    """
    socket = web.WebSocketResponse(
        protocols=SUBPROTOCOLS,
        max_msg_size=server.settings.packet_bytes_max + 1024,
        compress=False,
        autoping=False,
        timeout=5.0,
    )
    await prepare_websocket(request, socket, party)
    transport = WebSocketTransport(socket, address, request.transport)
    protocol = MqttProtocol(server, Connection)
    protocol.address = address
    if not counted and not server.may_connect(address):
        await socket.close(code=WSCloseCode.TRY_AGAIN_LATER)
        return socket
    protocol.counted = not counted
    transport.serve(protocol)
    sending = asyncio.create_task(transport.send_all_or_abort())
    asker = Asker(party)
    try:
        async for message in messages(socket, turns, asker):
            if message.type is not WSMsgType.BINARY:
                break  # section 6.0: not MQTT
            protocol.data_received(message.data)
            await transport.reading.wait()
            session = protocol.connection.session
            if session is not None and session.identity.user != asker.party:
                asker.party = session.identity.user
                charge(request, asker.party)
            if transport.is_closing():
                break
        if transport.is_closing():
            await sending
    except ConnectionError:
        pass  # the peer has disconnected
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        protocol.connection_lost(None)
        await socket.close()
    return socket
