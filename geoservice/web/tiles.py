"""`/tiles.json` and `/tiles/{archive}/{z}/{x}/{y}.mvt`: the map of extracts, for the page."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Final

import msgspec
from aiohttp import web

from geoservice.tiles.served import ServedTiles

#: A page asks with the version in the query, so that what it has stays valid for ever.
_KEEP: Final = "public, max-age=31536000, immutable"
_ASK_AGAIN: Final = "public, no-cache"
_NUMBER: Final = r"\d{1,8}"

_encode = msgspec.json.Encoder().encode


class TileRoutes:
    """The routes of tiles. Files are read in a thread: a page of a mapped file may be on disk."""

    def __init__(self, tiles: ServedTiles) -> None:
        self._tiles = tiles

    def add_to(self, app: web.Application) -> None:
        """Add the routes to an application."""
        app.router.add_get("/tiles.json", self._describe)
        numbers = "/".join(f"{{{name}:{_NUMBER}}}" for name in ("archive", "z", "x", "y"))
        path = f"/tiles/{numbers}.mvt"
        app.router.add_get(path, self._tile)

    async def _describe(self, request: web.Request) -> web.Response:
        body = _encode({"archives": await asyncio.to_thread(self._tiles.describe)})
        etag = f'"{zlib.crc32(body):08x}"'
        headers = {"ETag": etag, "Cache-Control": _ASK_AGAIN}
        if _has(request, etag):
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _tile(self, request: web.Request) -> web.Response:
        archive, z, x, y = (int(request.match_info[name]) for name in ("archive", *"zxy"))
        accepts_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        version, content, packed = await asyncio.to_thread(
            self._read, archive, z, x, y, accepts_gzip
        )
        if not version:
            return web.Response(status=404, text="there is no such archive of tiles")
        etag = f'"{version}-{z}-{x}-{y}{"-gzip" if packed else ""}"'
        kept = request.query.get("v") == version
        headers = {
            "ETag": etag,
            "Cache-Control": _KEEP if kept else _ASK_AGAIN,
            "Vary": "Accept-Encoding",
        }
        if _has(request, etag):
            return web.Response(status=304, headers=headers)
        if not content:
            # Nothing is drawn there. 404 would be an error of the page.
            return web.Response(status=204, headers=headers)
        if packed:
            headers["Content-Encoding"] = "gzip"
        return web.Response(
            body=content,
            content_type="application/vnd.mapbox-vector-tile",
            headers=headers,
        )

    def _read(
        self, archive: int, z: int, x: int, y: int, accepts_gzip: bool
    ) -> tuple[str, bytes, bool]:
        """Return the archive's version, the tile, and whether it is packed."""
        version, tile = self._tiles.tile(archive, z, x, y)
        if tile is None:
            return version, b"", False
        if tile.is_gzip and not accepts_gzip:
            return version, gzip.decompress(tile.content), False
        return version, tile.content, tile.is_gzip


def _has(request: web.Request, etag: str) -> bool:
    """Tell whether the client has the answer already (RFC 9110, section 13.1.2)."""
    return any(
        tag.value == etag.strip('"') or tag.value == "*" for tag in request.if_none_match or ()
    )
