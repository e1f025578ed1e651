"""Large answers: they stay in memory until their clients have read them.

A client that asks and does not read, on many connections, would fill the memory with answers. So
each user has a share of the bytes that are being sent, and a client that reads nothing for a while
is disconnected.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from gateway.bodies.parts import Body
from gateway.http.requests.reading_watch import ReadingWatch
from gateway.http.requests.responses import TOGETHER_BYTES_MAX, Pieces, unavailable
from gateway.http.requests.services import SERVICES
from gateway.limits.pools import ShareExceeded
from gateway.limits.turn_clock import Asker

#: The reason of a refusal when a user reads too few of the answers.
TOO_MUCH_UNREAD = "too much of what you asked for has not been read yet"


async def send_if_large(
    request: web.Request, answer: web.StreamResponse, asker: Asker
) -> web.StreamResponse:
    """Send an answer with a large body piece by piece, and leave all others to aiohttp.

    Raises Refused (503) if the asker's answers that have not been read are too large together, and
    ConnectionResetError when the client has read nothing for too long.
    """
    body = _large_body(answer)
    if body is None or request.method == "HEAD":
        return answer
    services = request.app[SERVICES]
    try:
        with services.unread.hold(asker.party, len(body)):
            sent = web.StreamResponse(status=answer.status, headers=answer.headers)
            sent.content_length = len(body)
            await _send(request, sent, body, asker)
            return sent
    except ShareExceeded:
        raise unavailable(TOO_MUCH_UNREAD) from None


def _large_body(answer: web.StreamResponse) -> Body | None:
    if not isinstance(answer, web.Response) or answer.body is None:
        return None
    if isinstance(answer.body, Pieces):
        return answer.body.parts
    if isinstance(answer.body, bytes) and len(answer.body) > TOGETHER_BYTES_MAX:
        return Body(answer.body)
    return None


async def _send(request: web.Request, answer: web.StreamResponse, body: Body, asker: Asker) -> None:
    services = request.app[SERVICES]
    await answer.prepare(request)
    with ReadingWatch(request.transport, services.limits.stalled_answer_timeout_s) as watch:
        try:
            for piece in body.slices():
                watch.written += len(piece)
                await answer.write(piece)
                await services.turns.let_others_work(asker.party)
                # With time left the party may go on, but not before all others had the loop once.
                await asyncio.sleep(0)
            await answer.write_eof()
        finally:
            services.metrics.answers_stalled += watch.has_disconnected
