"""`/reverse`, `/search`, `/lookup` and `/status`: passed on to the geocoder's own process."""

from __future__ import annotations

from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from gateway.access import reader
from gateway.answers import Refused, unavailable
from gateway.formats.values import SECRET_PARAMETERS
from gateway.ingest import Ingest
from gateway.services import SERVICES

_TIMEOUT_S: Final = 30.0
_CONNECTIONS_MAX: Final = 64
_PASSED_ON: Final = ("Content-Type", "Accept", "Accept-Language")


class GeocoderProxy:
    """Passes requests on; one session for all of them."""

    def __init__(self, url: str | None, ingest: Ingest) -> None:
        self._url = None if url is None else URL(url.rstrip("/"))
        self._ingest = ingest
        self._session: aiohttp.ClientSession | None = None

    def routes(self) -> list[web.RouteDef]:
        """The geocoder's paths."""
        return [
            web.get("/reverse", self._pass_on),
            web.post("/reverse/batch", self._pass_on),
            web.get("/search", self._pass_on),
            web.get("/lookup", self._pass_on),
            web.get("/status", self._pass_on),
        ]

    async def close(self) -> None:
        """Close the connections to the geocoder."""
        if self._session is not None:
            await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        identity = await reader(request)
        if self._url is None:
            raise Refused(503, "this gateway has no geocoder (--geo-url)")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX),
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
                auto_decompress=False,
            )
        body = await self._ingest.read_body(request, identity)
        query = [
            (name, value) for name, value in request.query.items() if name not in SECRET_PARAMETERS
        ]
        url = self._url.joinpath(request.path.lstrip("/")).with_query(query)
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers["Accept-Encoding"] = request.headers.get("Accept-Encoding", "identity")
        try:
            async with self._session.request(
                request.method, url, data=body or None, headers=headers, allow_redirects=False
            ) as answer:
                passed = {
                    name: answer.headers[name]
                    for name in ("Content-Type", "Content-Encoding", "Content-Length")
                    if name in answer.headers
                }
                response = web.StreamResponse(status=answer.status, headers=passed)
                await response.prepare(request)
                async for chunk in answer.content.iter_chunked(64 * 1024):
                    await response.write(chunk)
                await response.write_eof()
                return response
        except TimeoutError:
            raise unavailable("the geocoder does not answer in time") from None
        except aiohttp.ClientError as error:
            if request.transport is None:
                raise
            raise unavailable(
                f"{request.app[SERVICES].geo_url} cannot be reached: {type(error).__name__}"
            ) from error
