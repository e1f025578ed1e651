"""What all WebSockets have in common: pings, and turns of the event loop that stay short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from gateway.http.plain.plain_connection import PlainConnection
from gateway.limits.turn_clock import Asker, PartyTurns

logger = logging.getLogger(__name__)

_FAILED: Final = b"an error of the gateway; its log has the details"
_ENDS = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED)


async def prepare_websocket(
    request: web.Request, socket: web.WebSocketResponse, party: str
) -> None:
    """Answer the handshake; what the client sends is parsed in turns of this party from now on.

    The socket must not answer pings by itself: `messages` does.
    """
    await socket.prepare(request)
    # Only now: behind a proxy, other people's requests may follow one that is no handshake.
    charge(request, party)


def charge(request: web.Request, party: str) -> None:
    """Parse what comes over a WebSocket in turns of this party from now on."""
    transport = request.transport
    connection = None if transport is None else transport.get_protocol()
    if isinstance(connection, PlainConnection):
        connection.belongs_to(party)


async def send_or_close(socket: web.WebSocketResponse, sending: Coroutine[Any, Any, None]) -> None:
    """Run what sends to a client beside the one who reads; if it fails, close the socket.

    Nobody looks at it before the client has gone, and a client that is sent nothing any more does
    not go by itself. It has failed, too, if it ends cancelled though nobody has cancelled this.
    """
    try:
        await sending
    except ConnectionError:
        pass  # who reads has noticed it, too
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        logger.exception("sending to the client of a WebSocket failed, and it is disconnected")
        await socket.close(code=WSCloseCode.INTERNAL_ERROR, message=_FAILED)


async def messages(
    socket: web.WebSocketResponse, turns: PartyTurns, asker: Asker
) -> AsyncIterator[WSMessage]:
    """Yield the client's messages until it closes the connection; answer its pings.

    However many small messages there are, others get their turn in between.
    """
    while True:
        message = await socket.receive()
        await turns.let_others_work(asker.party)
        if message.type in _ENDS:
            _forget_origin(socket.exception())
            return
        if message.type is WSMsgType.PING:
            await socket.pong(message.data)
        elif message.type is not WSMsgType.PONG:
            yield message


def _forget_origin(error: BaseException | None) -> None:
    """Let go of all that an error has come through: the socket keeps its error, and so itself."""
    if error is not None:
        error.with_traceback(None).__context__ = None
