"""Large answers of the gateway: each user has a share of those that have not been read."""

from __future__ import annotations

from functools import partial

from aiohttp import web

from gateway.bodies.parts import Body
from gateway.http.requests.responses import Pieces, unavailable
from gateway.http.requests.services import SERVICES
from gateway.limits.turn_clock import Asker
from waylog.network.large_answers import (
    SMALL_BYTES_MAX,
    TOO_MUCH_UNREAD,
    ClientStalled,
    send_in_pieces,
)
from waylog.network.shares import ShareExceeded


async def send_if_large(
    request: web.Request, answer: web.StreamResponse, asker: Asker
) -> web.StreamResponse:
    """Send an answer with a large body piece by piece, and leave all others to aiohttp.

    Raises Refused (503) if the asker's answers that have not been read are too large together, and
    ConnectionResetError when the client has read nothing for too long.
    """
    if not isinstance(answer, web.Response) or request.method == "HEAD":
        return answer
    body = _large_body(answer)
    if body is None:
        return answer
    services = request.app[SERVICES]
    try:
        with services.unread.hold(asker.party, len(body)):
            return await send_in_pieces(
                *(request, answer, body.slices(), len(body)),
                stalled_s=services.limits.stalled_answer_timeout_s,
                pause=partial(services.turns.let_others_work, asker.party),
            )
    except ShareExceeded:
        raise unavailable(TOO_MUCH_UNREAD) from None
    except ClientStalled:
        services.metrics.answers_stalled += 1
        raise


def _large_body(answer: web.Response) -> Body | None:
    if isinstance(answer.body, Pieces):
        return answer.body.parts
    if isinstance(answer.body, bytes) and len(answer.body) > SMALL_BYTES_MAX:
        return Body(answer.body)
    return None
