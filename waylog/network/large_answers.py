"""Sends large answers of an aiohttp server: they stay in memory until their clients have read them.

A client that asks and does not read, on many connections, would fill the memory with answers. So
each party has a share of the bytes that are being sent, and a client that reads nothing for a while
is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aiohttp import web

from waylog.network.reading_watch import ReadingWatch

#: Smaller answers fit the buffers of a connection.
SMALL_BYTES_MAX: Final = 128 * 1024
#: The reason of a refusal when a party reads too few of its answers.
TOO_MUCH_UNREAD: Final = "too much of what you asked for has not been read yet"


class ClientStalled(ConnectionResetError):
    """The client has read nothing for too long, and has been disconnected."""


async def send_in_pieces(
    request: web.Request,
    answer: web.Response,
    pieces: Iterable[bytes | memoryview],
    size: int,
    *,
    stalled_s: float,
    pause: Callable[[], Awaitable[None]] | None = None,
) -> web.StreamResponse:
    """Send the status and headers of an answer, and a body of `size` bytes.

    The pieces should have some 64 KiB; others may work between two of them, and in `pause`. The
    caller counts the bytes for a party meanwhile. Raises ClientStalled.
    """
    sent = web.StreamResponse(status=answer.status, headers=answer.headers)
    sent.cookies.update(answer.cookies)
    sent.content_length = size
    await sent.prepare(request)
    with ReadingWatch(request.transport, stalled_s) as watch:
        try:
            for piece in pieces:
                watch.written += len(piece)
                await sent.write(piece)
                if pause is not None:
                    await pause()
                # The client may read as fast as this writes, so that nothing has to drain.
                await asyncio.sleep(0)
            await sent.write_eof()
        except ConnectionError:
            if watch.has_disconnected:
                raise ClientStalled("the client does not read its answer") from None
            raise
    return sent
