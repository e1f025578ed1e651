"""The tiles over HTTP, on a real socket."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from geoservice.reverse.geocoder import Geocoder
from geoservice.tiles.served import ServedTiles
from geoservice.web.server import make_app
from tests.http_session import http_session
from tests.tile_reader import read_tile
from waylog.cli import EXIT_USAGE, main

Serve = Callable[[list[Path]], Awaitable[aiohttp.ClientSession]]
TILE = "/tiles/0/6/33/23.mvt"
GZIP = {"Accept-Encoding": "gzip"}


@pytest.fixture
def stored(harbour_tiles: Path) -> bytes:
    return harbour_tiles.read_bytes()


@pytest.fixture
async def serve(geocoder: Geocoder) -> AsyncIterator[Serve]:
    """Yield a function that serves archives."""
    async with AsyncExitStack() as stack:

        async def start(paths: list[Path]) -> aiohttp.ClientSession:
            app = make_app(geocoder, tiles=ServedTiles(paths))
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            session = http_session(f"http://{host}:{port}", auto_decompress=False)
            return await stack.enter_async_context(session)

        yield start


async def archives(client: aiohttp.ClientSession) -> list[dict[str, Any]]:
    async with client.get("/tiles.json", headers={"Accept-Encoding": "identity"}) as answer:
        assert answer.status == 200
        found: list[dict[str, Any]] = (await answer.json())["archives"]
        return found


async def archives_once(
    client: aiohttp.ClientSession, condition: Callable[[list[dict[str, Any]]], bool]
) -> list[dict[str, Any]]:
    """Return the archives as soon as they are as wanted."""
    async with asyncio.timeout(60):
        while not condition(found := await archives(client)):
            await asyncio.sleep(0.05)
        return found


async def test_a_tile_is_sent_as_it_is_stored(
    serve: Serve, harbour_tiles: Path, stored: bytes
) -> None:
    client = await serve([harbour_tiles])
    async with client.get(TILE, headers=GZIP) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Encoding"] == "gzip"
        assert answer.headers["Content-Type"] == "application/vnd.mapbox-vector-tile"
        assert answer.headers["Vary"] == "Accept-Encoding"
        packed = await answer.read()
    assert packed in stored
    async with client.get(TILE, headers={"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers
        assert await answer.read() == gzip.decompress(packed)
    assert "streets" in read_tile(gzip.decompress(packed))


async def test_what_a_page_has_is_not_sent_again(serve: Serve, harbour_tiles: Path) -> None:
    client = await serve([harbour_tiles])
    for path in (TILE, "/tiles.json"):
        async with client.get(path, headers=GZIP) as answer:
            assert answer.headers["Cache-Control"] == "public, no-cache"
            etag = answer.headers["ETag"]
        async with client.get(path, headers={**GZIP, "If-None-Match": f'"x", {etag}'}) as answer:
            assert (answer.status, await answer.read()) == (304, b"")
    (archive,) = await archives(client)
    url = archive["tiles"].format(z=6, x=33, y=23)
    async with client.get(url, headers=GZIP) as answer:
        assert answer.status == 200 and "immutable" in answer.headers["Cache-Control"]


async def test_what_is_not_there(serve: Serve, harbour_tiles: Path) -> None:
    client = await serve([harbour_tiles])
    for path, status in (
        ("/tiles/0/14/0/0.mvt", 204),
        ("/tiles/0/5/16/11.mvt", 204),
        ("/tiles/0/6/99999999/0.mvt", 204),
        ("/tiles/1/6/33/23.mvt", 404),
        ("/tiles/0/6/33/-1.mvt", 404),
        ("/tiles/0/6/33/23.png", 404),
        ("/tiles/0/6/33/..%2f..%2fetc%2fpasswd.mvt", 404),
        ("/tiles/../../etc/passwd", 404),
        ("/tiles/0/6/33/123456789.mvt", 404),
    ):
        async with client.get(path, headers=GZIP) as answer:
            assert answer.status == status, path


async def test_the_archives_say_where_they_are_and_whose(
    serve: Serve, harbour_tiles: Path, tmp_path: Path
) -> None:
    assert await archives(await serve([])) == []
    client = await serve([tmp_path / "missing.pmtiles", harbour_tiles])
    (archive,) = await archives(client)
    assert archive["tiles"].startswith("/tiles/1/{z}/{x}/{y}.mvt?v=")
    assert (archive["minzoom"], archive["maxzoom"]) == (6, 14)
    assert archive["data_time"] == "2025-11-08T21:20:00Z"
    assert archive["outline"]["type"] in ("Polygon", "MultiPolygon")
    west, south, east, north = archive["bounds"]
    assert west < 7.42 < east and south < 43.74 < north


def test_a_file_that_is_no_archive_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.pmtiles").write_bytes(b"no archive at all" * 20)
    command = ["geo", "serve", "--listen", "127.0.0.1:0", "--tiles", str(tmp_path / "a.pmtiles")]
    assert main(command) == EXIT_USAGE
    assert "not a PMTiles archive" in capsys.readouterr().err


async def test_an_archive_that_is_replaced_is_used_at_once(
    serve: Serve, stored: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "a.pmtiles"
    client = await serve([path])
    assert await archives(client) == []
    new = tmp_path / "new"
    new.write_bytes(stored)
    new.replace(path)
    first = (await archives_once(client, bool))[0]["tiles"]
    # A damaged one is not served, and a whole one is again.
    new.write_bytes(stored[:3000])
    new.replace(path)
    await archives_once(client, lambda found: not found)
    new.write_bytes(stored)
    os.utime(new, ns=(1, 1))
    new.replace(path)
    assert (await archives_once(client, bool))[0]["tiles"] != first
