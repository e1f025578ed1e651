"""The live map's files, from the folder `gateway/web`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from gateway.http.requests.browsers import require_served_host
from gateway.http.requests.responses import Refused

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
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; worker-src 'self' blob:; "
        "style-src 'self'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    # A new version is used at the next load; unchanged files are answered with 304.
    "Cache-Control": "no-cache",
}


class _File(web.FileResponse):
    """A file that is sent within the handler: aiohttp would send it once more after it."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if self.prepared:
            return await web.StreamResponse.prepare(self, request)
        return await super().prepare(request)


class Pages:
    """Serves the live map and its files."""

    def __init__(
        self, osmand_at_root: Callable[[web.Request], Awaitable[web.Response]], folder: Path = WEB
    ) -> None:
        self._osmand_at_root = osmand_at_root
        self._folder = folder.resolve()

    def routes(self) -> list[web.RouteDef]:
        """Return the routes `/`, `/share` and `/static/...`."""
        return [
            web.get("/", self._root),
            web.get("/share", self._share),
            web.get("/static/{path:.+}", self._static),
        ]

    async def _root(self, request: web.Request) -> web.StreamResponse:
        if "id" in request.query or "deviceid" in request.query:
            return await self._osmand_at_root(request)
        require_served_host(request)
        return self._file("index.html")

    async def _share(self, request: web.Request) -> web.StreamResponse:
        """Serve the page of a share; the token is in the fragment, which no server is told."""
        require_served_host(request)
        return self._file("share.html")

    async def _static(self, request: web.Request) -> web.StreamResponse:
        return self._file(request.match_info["path"])

    def _file(self, name: str) -> web.StreamResponse:
        if "\0" in name:
            raise Refused(404, "there is no such file")
        path = (self._folder / name).resolve()
        content_type = _CONTENT_TYPES.get(path.suffix)
        if content_type is None or not path.is_relative_to(self._folder) or not path.is_file():
            raise Refused(404, "there is no such file")
        return _File(path, headers={**_SECURITY_HEADERS, "Content-Type": content_type})
