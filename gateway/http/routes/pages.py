"""The live map's files, from the folder `gateway/web`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from gateway.http.requests.authentication import reader
from gateway.http.requests.browsers import require_served_host
from gateway.http.requests.responses import Refused, json_answer
from gateway.web.shell import INDEX, ShellFolder
from gateway.web.tile_server import TileServer, content_security_policy

WEB: Final = Path(__file__).parents[2] / "web"

#: Only files of these types are served. The system's own table of types may lack some of them.
_CONTENT_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".geojson": "application/geo+json",
    ".webmanifest": "application/manifest+json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".pbf": "application/x-protobuf",
    ".mvt": "application/vnd.mapbox-vector-tile",
    ".pmtiles": "application/vnd.pmtiles",
    ".wasm": "application/wasm",
    ".txt": "text/plain; charset=utf-8",
}

_SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": content_security_policy(),
    # A new version is used at the next load; unchanged files are answered with 304.
    "Cache-Control": "no-cache",
}

#: Of files whose URL names their version.
_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}
_NO_HEADERS: Final[Mapping[str, str]] = {}


class _File(web.FileResponse):
    """A file that is sent within the handler: aiohttp would send it once more after it."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if self.prepared:
            return await web.StreamResponse.prepare(self, request)
        return await super().prepare(request)


class Pages:
    """Serves the live map and its files."""

    def __init__(
        self,
        osmand_at_root: Callable[[web.Request], Awaitable[web.Response]],
        tile_servers: Sequence[TileServer] = (),
        folder: Path = WEB,
    ) -> None:
        self._osmand_at_root = osmand_at_root
        self._folder = folder.resolve()
        self._shell = ShellFolder(self._folder)
        self._tile_servers = tile_servers
        # Only this page has the base maps, so only its policy names their servers.
        self._policy = {"Content-Security-Policy": content_security_policy(tile_servers)}

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the pages, their files, and the base maps."""
        return [
            web.get("/", self._root),
            web.get("/share", self._share),
            web.get("/docs", self._docs),
            web.get("/service-worker.js", self._service_worker),
            web.get("/static/{path:.+}", self._static),
            web.get("/v1/base-maps", self._base_maps, allow_head=False),
        ]

    async def _root(self, request: web.Request) -> web.StreamResponse:
        if "id" in request.query or "deviceid" in request.query:
            return await self._osmand_at_root(request)
        require_served_host(request)
        page = await self._document(INDEX)
        page.headers.update(self._policy)
        return page

    async def _share(self, request: web.Request) -> web.StreamResponse:
        """Serve the page of a share; the token is in the fragment, which no server is told."""
        require_served_host(request)
        return await self._document("share.html")

    async def _docs(self, request: web.Request) -> web.StreamResponse:
        """Serve the page that shows /openapi.json."""
        require_served_host(request)
        return await self._document("docs.html")

    async def _document(self, name: str) -> web.Response:
        shell = await asyncio.to_thread(self._shell.current)
        return _made(shell.documents[name], ".html")

    async def _service_worker(self, request: web.Request) -> web.Response:
        """Serve the worker at the root, since its scope is where it lies, and all below."""
        require_served_host(request)
        return _made((await asyncio.to_thread(self._shell.current)).worker, ".js")

    async def _base_maps(self, request: web.Request) -> web.Response:
        """Tell users which base maps there are; a URL may have the operator's key in it."""
        await reader(request)
        return json_answer(
            [
                {
                    "name": each.name,
                    "url": each.url,
                    "kind": each.kind,
                    "attribution": each.attribution,
                }
                for each in self._tile_servers
            ]
        )

    async def _static(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        try:
            name = self._shell.unversioned(path)
        except LookupError:
            raise Refused(
                404, "this file is not of the version that is served; load the page again"
            ) from None
        return self._file(path) if name is None else self._file(name, _FOR_EVER)

    def _file(self, name: str, headers: Mapping[str, str] = _NO_HEADERS) -> web.StreamResponse:
        if "\0" in name:
            raise Refused(404, "there is no such file")
        path = (self._folder / name).resolve()
        content_type = _CONTENT_TYPES.get(path.suffix)
        if content_type is None or not path.is_relative_to(self._folder) or not path.is_file():
            raise Refused(404, "there is no such file")
        return _File(path, headers={**_SECURITY_HEADERS, **headers, "Content-Type": content_type})


def _made(content: bytes, suffix: str) -> web.Response:
    headers = {**_SECURITY_HEADERS, "Content-Type": _CONTENT_TYPES[suffix]}
    return web.Response(body=content, headers=headers)
