"""Bodies of requests, answers, and errors as Kafka Connect's REST interface words them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.herder.answers import ErrorMessage
from consumers.connect.herder.refusals import Refused
from consumers.connect.herder.requests import UnreadableBody
from waylog.malformed import MALFORMED

logger = logging.getLogger(__name__)

JSON: Final = "application/json"
#: The longest body, in bytes.
BODY_BYTES_MAX: Final = 1024 * 1024
_encode: Final = msgspec.json.Encoder().encode
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def answer(body: object, status: int = 200, location: str | None = None) -> web.Response:
    """Return an answer in JSON; `location` is that of what was created."""
    headers = {} if location is None else {hdrs.LOCATION: location}
    return web.Response(body=_encode(body), status=status, content_type=JSON, headers=headers)


def empty(status: int = 204) -> web.Response:
    """Return an answer without a body."""
    return web.Response(status=status)


async def json_body(request: web.Request) -> Any:
    """Return the JSON of a request; raises UnreadableBody."""
    data = await request.read()
    if not data:
        raise UnreadableBody("No content to map due to end-of-input")
    try:
        return msgspec.json.decode(data)
    except MALFORMED as error:
        raise UnreadableBody(f"The body is no JSON: {error}") from error


def flag(request: web.Request, name: str, *, default: bool = False) -> bool:
    """Return a parameter that is true or false; anything but true is false, as in Kafka."""
    text = request.query.get(name)
    return default if text is None else text.lower() == "true"


def refusal(status: int, message: str) -> web.Response:
    """Return an error as Kafka Connect answers it."""
    return answer(ErrorMessage(status, message), status)


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors in JSON."""
    try:
        if request.body_exists and request.content_type != JSON:
            return refusal(415, "HTTP 415 Unsupported Media Type")
        return await handler(request)
    except Refused as error:
        return refusal(error.status, str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _of_http(error)
    except ConnectException as error:
        logger.error("%s %s: %s", request.method, request.path, error, exc_info=error)
        return refusal(500, str(error))
    except Exception as error:
        logger.exception("%s %s has failed", request.method, request.path)
        return refusal(500, f"{type(error).__name__}: {error}")


def _of_http(error: web.HTTPException) -> web.Response:
    response = refusal(error.status, f"HTTP {error.status} {error.reason}")
    if hdrs.ALLOW in error.headers:
        response.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
    return response
