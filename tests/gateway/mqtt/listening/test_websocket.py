"""The transport of MQTT over WebSocket: what it tells about the connection below it."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from gateway.mqtt.listening.websocket import WebSocketTransport
from tests.gateway.mqtt.in_memory import eventually
from waylog.network.peer_gone import has_gone


async def test_it_tells_the_address_of_the_peer_and_whether_it_has_gone() -> None:
    ours, theirs = socket.socketpair()
    below, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    below.pause_reading()
    # The address is that which a proxy has told.
    transport = WebSocketTransport(web.WebSocketResponse(), "192.0.2.1", below)
    assert transport.get_extra_info("peername") == ("192.0.2.1", 0)
    assert transport.get_extra_info("peercert") is None
    assert not has_gone(transport)  # type: ignore[arg-type]  # has the method that it calls
    theirs.close()
    await eventually(lambda: has_gone(transport))  # type: ignore[arg-type]
    below.abort()


async def test_without_a_connection_below_nothing_is_known() -> None:
    transport = WebSocketTransport(web.WebSocketResponse(), None)
    assert transport.get_extra_info("peername") is None
    assert not has_gone(transport)  # type: ignore[arg-type]  # has the method that it calls
