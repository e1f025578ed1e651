"""`/reverse`, `/search`, `/lookup`, `/status`, tiles: forwarded to the geocoder's own process."""

from __future__ import annotations

from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

from gateway.bodies.parts import Body
from gateway.formats.values import SECRET_PARAMETERS
from gateway.http.ingest.ingest import Ingest
from gateway.http.requests.authentication import reader, reader_or_share_viewer, remote_of
from gateway.http.requests.responses import Refused, in_pieces, json_answer, unavailable
from gateway.http.requests.services import SERVICES
from gateway.limits.bounds import OVERHEAD_BYTES
from gateway.limits.pools import Turns
from waylog.network.peer_parties import party_of
from waylog.network.shares import ShareExceeded

_TIMEOUT_S: Final = 30.0
#: Concurrent requests of all users and of one user, and waiting requests of one user.
_CONNECTIONS_MAX: Final = 64
_CONNECTIONS_EACH_MAX: Final = 8
_WAITING_EACH_MAX: Final = 16
#: A page asks for the tiles of a screen at once.
_WAITING_TILES_EACH_MAX: Final = 128
_PASSED_ON: Final = ("Content-Type", "Accept", "Accept-Language", "If-None-Match")
_ANSWERED: Final = (
    *("Content-Type", "Content-Encoding", "Content-Length"),
    *("ETag", "Cache-Control", "Vary"),
)
_NUMBER: Final = r"\d{1,8}"


class GeocoderProxy:
    """Forwards requests to the geocoder, with one client session."""

    def __init__(self, url: str | None, ingest: Ingest) -> None:
        self._url = None if url is None else URL(url.rstrip("/"))
        self._ingest = ingest
        self._session: aiohttp.ClientSession | None = None
        self._turns = Turns(_CONNECTIONS_MAX, _CONNECTIONS_EACH_MAX, _WAITING_EACH_MAX)
        self._tile_turns = Turns(_CONNECTIONS_MAX, _CONNECTIONS_EACH_MAX, _WAITING_TILES_EACH_MAX)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the geocoder's paths."""
        return [
            web.get("/reverse", self._in_turn),
            web.post("/reverse/batch", self._in_turn),
            web.get("/search", self._in_turn),
            web.get("/lookup", self._in_turn),
            web.get("/status", self._in_turn),
            web.get("/tiles.json", self._which_tiles, allow_head=False),
            web.get(
                f"/tiles/{{archive:{_NUMBER}}}/{{z:{_NUMBER}}}/{{x:{_NUMBER}}}/{{y:{_NUMBER}}}.mvt",
                self._tile,
                allow_head=False,
            ),
        ]

    async def close(self) -> None:
        """Close the connections to the geocoder."""
        if self._session is not None:
            await self._session.close()

    async def _in_turn(self, request: web.Request) -> web.StreamResponse:
        identity = await reader(request)
        if self._url is None:
            raise Refused(503, "this gateway has no geocoder (--geo-url)")
        body = await self._ingest.receive_body(request, identity)
        services = request.app[SERVICES]
        open_mode = services.authenticator.open_mode
        party = party_of(remote_of(request)) if open_mode else identity.user
        try:
            # Waiting requests count against the same budget as those that wait for the log.
            with services.under_way.hold(party, len(body) + OVERHEAD_BYTES):
                async with self._turns.turn(party):
                    return await self._pass_on(self._url, request, body)
        except ShareExceeded:
            raise unavailable("too many of your questions wait for the geocoder") from None

    async def _which_tiles(self, request: web.Request) -> web.StreamResponse:
        if self._url is None:
            await reader_or_share_viewer(request)
            return json_answer({"archives": []})
        return await self._tile(request)

    async def _tile(self, request: web.Request) -> web.StreamResponse:
        """Answer users and viewers of shares: the extracts tell where the users are."""
        identity = await reader_or_share_viewer(request)
        if self._url is None:
            raise Refused(404, "this gateway has no geocoder (--geo-url), and no tiles")
        open_mode = request.app[SERVICES].authenticator.open_mode
        party = party_of(remote_of(request)) if open_mode else identity.user
        try:
            async with self._tile_turns.turn(party):
                return await self._pass_on(self._url, request, Body())
        except ShareExceeded:
            raise unavailable("too many of your requests for tiles wait") from None

    async def _pass_on(self, geocoder: URL, request: web.Request, body: Body) -> web.StreamResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS_MAX),
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S),
                auto_decompress=False,
            )
        query = [
            (name, value) for name, value in request.query.items() if name not in SECRET_PARAMETERS
        ]
        url = geocoder.joinpath(request.path.lstrip("/")).with_query(query)
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        headers["Accept-Encoding"] = request.headers.get("Accept-Encoding", "identity")
        try:
            async with self._session.request(
                *(request.method, url),
                data=in_pieces(body.parts) or None,
                headers=headers,
                allow_redirects=False,
            ) as answer:
                passed = {
                    name: answer.headers[name] for name in _ANSWERED if name in answer.headers
                }
                if kept := passed.get("Cache-Control"):
                    # By the user's browser alone: a proxy would answer others with it.
                    passed["Cache-Control"] = kept.replace("public", "private")
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
