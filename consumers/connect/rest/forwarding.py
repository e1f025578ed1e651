"""Passes requests on to the worker that has to answer them.

A request may take two steps: to the leader, and from there to the worker that has the connector or
the task. The parameter `forward` counts them, as in Kafka.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Final

import aiohttp
from aiohttp import hdrs, web
from yarl import URL

from consumers.connect.herder.refusals import Conflict, WrongWorker
from consumers.connect.rest.bodies import Handler, refusal

logger = logging.getLogger(__name__)

_FORWARD: Final = "forward"
_SESSION: Final[web.AppKey[aiohttp.ClientSession]] = web.AppKey("session")
_TIMEOUT: Final = aiohttp.ClientTimeout(total=120.0, connect=10.0)
_SENT: Final = (hdrs.AUTHORIZATION, hdrs.CONTENT_TYPE)
_ANSWERED: Final = (hdrs.CONTENT_TYPE, hdrs.LOCATION)


def session(
    tls: ssl.SSLContext | None,
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Return what gives an application the session that it forwards with (`cleanup_ctx`).

    `tls` is for workers that are reached over HTTPS; None: as this machine does.
    """

    async def give(application: web.Application) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(ssl=True if tls is None else tls)
        async with aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector) as opened:
            application[_SESSION] = opened
            yield

    return give


@web.middleware
async def forward(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what another worker answers if this one is the wrong one."""
    try:
        return await handler(request)
    except WrongWorker as error:
        return await _forward(request, error)


async def _forward(request: web.Request, error: WrongWorker) -> web.StreamResponse:
    flag = request.query.get(_FORWARD)
    if flag is not None and flag.lower() != "true":
        logger.error(
            "%s %s has not found its worker within two steps", request.method, request.path
        )
        raise Conflict(
            "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
        )
    if error.url is None:
        raise Conflict(
            "Cannot complete request momentarily due to no known leader URL, likely because a "
            "rebalance was underway."
        )
    query = [(name, text) for name, text in request.query.items() if name != _FORWARD]
    query.append((_FORWARD, "true" if flag is None else "false"))
    # The path as it was sent: a name may have an encoded slash.
    path = error.url.rstrip("/") + request.rel_url.raw_path
    url = URL(path, encoded=True).with_query(query)
    headers = {name: request.headers[name] for name in _SENT if name in request.headers}
    try:
        async with request.app[_SESSION].request(
            request.method,
            url,
            data=await request.read() or None,
            headers=headers,
            allow_redirects=False,
        ) as response:
            return web.Response(
                body=await response.read(),
                status=response.status,
                headers={
                    name: response.headers[name] for name in _ANSWERED if name in response.headers
                },
            )
    except (aiohttp.ClientError, TimeoutError) as failure:
        text = str(failure) or "no answer in time"
        logger.error("%s %s: %s", request.method, url, text)
        return refusal(500, f"IO Error trying to forward REST request: {text}")
