"""The map's tiles behind the gateway, from a real geocoder, for users."""

from __future__ import annotations

import gzip
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from geoservice.reverse.geocoder import Geocoder
from geoservice.tiles.served import ServedTiles
from geoservice.web.server import make_app
from tests.gateway.running import Gateway
from tests.geoservice.tiles.harbour_extract import harbour_archive
from tests.http_session import http_session
from tests.tile_reader import read_tile

TILE = "/tiles/0/6/33/23.mvt"
GZIP = {"Accept-Encoding": "gzip"}


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harbour_archive(tmp_path_factory.mktemp("tiles"))


@pytest.fixture(scope="module")
def stored(tiles: Path) -> bytes:
    return tiles.read_bytes()


@pytest_asyncio.fixture
async def behind(gateway: Gateway, tiles: Path, tmp_path: Path) -> AsyncIterator[Gateway]:
    """Yield a gateway whose geocoder has tiles."""
    runner = web.AppRunner(make_app(Geocoder.open(), tiles=ServedTiles([tiles])))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    started = Gateway(tmp_path, gateway.bootstrap_servers, "--geo-url", url)
    try:
        yield started
    finally:
        started.close()
        await runner.cleanup()


def signed_in(gateway: Gateway) -> AbstractAsyncContextManager[aiohttp.ClientSession]:
    """Return a client of a user, which gets answers as they are sent."""
    credentials = aiohttp.encode_basic_auth(*gateway.user(f"user-{uuid.uuid4().hex[:8]}"))
    return http_session(gateway.url, auto_decompress=False, headers={"Authorization": credentials})


async def test_a_user_gets_tiles_as_they_are_stored(behind: Gateway, stored: bytes) -> None:
    async with signed_in(behind) as client:
        async with client.get("/tiles.json", headers={"Accept-Encoding": "identity"}) as answer:
            (archive,) = (await answer.json())["archives"]
        url = archive["tiles"].format(z=6, x=33, y=23)
        async with client.get(url, headers=GZIP) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Encoding"] == "gzip"
            assert answer.headers["Content-Type"] == "application/vnd.mapbox-vector-tile"
            assert answer.headers["Cache-Control"] == "private, max-age=31536000, immutable"
            etag, packed = answer.headers["ETag"], await answer.read()
        assert packed in stored
        assert "streets" in read_tile(gzip.decompress(packed))
        async with client.get(url, headers={**GZIP, "If-None-Match": etag}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")


async def test_what_is_no_tile_is_refused(behind: Gateway) -> None:
    async with signed_in(behind) as client:
        for path, status in (
            ("/tiles/0/14/0/0.mvt", 204),
            ("/tiles/7/6/33/23.mvt", 404),
            ("/tiles/0/6/33/23.pmtiles", 404),
            ("/tiles/0/6/33/..%2f..%2f..%2fetc%2fpasswd", 404),
            ("/tiles/0/..%2f..%2fstatus/6/33/23.mvt", 404),
            ("/tiles/a.geo.pmtiles", 404),
        ):
            async with client.get(path) as answer:
                assert answer.status == status, path


async def test_nobody_learns_where_the_extract_is(behind: Gateway) -> None:
    async with http_session(behind.url) as client:
        for path in (TILE, "/tiles.json"):
            async with client.get(path) as answer:
                assert answer.status == 401
            # A page that resolves its own name to this machine.
            async with client.get(path, headers={"Host": "evil.example"}) as answer:
                assert answer.status == 421


async def test_without_a_geocoder_there_are_no_extracts(gateway: Gateway) -> None:
    async with signed_in(gateway) as client:
        async with client.get("/tiles.json") as answer:
            assert (answer.status, await answer.json()) == (200, {"archives": []})
        async with client.get(TILE) as answer:
            assert answer.status == 404
