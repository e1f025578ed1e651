"""Ends an aiohttp server's connection after a request whose body came in chunks.

Trailer fields may follow the last chunk (RFC 9112, section 7.1.2). The parser of aiohttp 3.14 takes
the last of them for a field of the connection's next request. Behind a proxy that shares its
connections among clients, that is another client's request, and the field may be its Authorization.
"""

from __future__ import annotations

from aiohttp import hdrs, web


def end_connections_after_chunks(application: web.Application) -> None:
    """Serve no request on a connection that has carried chunks; the client is told to close it."""
    application.on_response_prepare.append(_close_after_chunks)


async def _close_after_chunks(request: web.BaseRequest, response: web.StreamResponse) -> None:
    if hdrs.TRANSFER_ENCODING in request.headers:
        response.force_close()
        response.headers[hdrs.CONNECTION] = "close"
