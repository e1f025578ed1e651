"""A base map of another server: chosen, remembered, and done without when it fails."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Page, expect

from gateway.web.tile_server import Name, tile_server
from geoservice.tiles.served import ServedTiles
from geoservice.web.tiles import TileRoutes
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import DEADLINE_MS, PIXEL_RATIO, FakeGateway, Visit
from tests.gateway.web.test_page import colour_at
from tests.geoservice.tiles.harbour_extract import LAT, LON, harbour_archive
from tests.http_session import http_session

pytestmark = [pytest.mark.browser, pytest.mark.early, pytest.mark.asyncio(loop_scope="module")]

PINK, GREEN = (255, 0, 128), (0, 128, 0)
#: Beside the panels and labels, in the middle of the sea.
SPOT = (700, 420)


def png(colour: tuple[int, int, int]) -> bytes:
    """Return a picture of one colour, 256 pixels wide and high."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        whole = kind + content
        return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))

    rows = (b"\0" + bytes(colour) * 256) * 256
    header = struct.pack(">IIBBBBB", 256, 256, 8, 2, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        ]
    )


@dataclass
class Tiles:
    """A server of tiles, that says and does what the test wants."""

    url: str = ""
    status: int = 200
    asked: list[web.Request] = field(default_factory=list)
    tilejson: dict[str, Any] = field(default_factory=dict)

    async def picture(self, request: web.Request) -> web.Response:
        """Answer with a picture, or with an error."""
        self.asked.append(request)
        headers = {"Access-Control-Allow-Origin": "*", "Cache-Control": "no-store"}
        if self.status != 200:
            return web.Response(status=self.status, headers=headers)
        colour = PINK if request.match_info["set"] == "map" else GREEN
        return web.Response(body=png(colour), content_type="image/png", headers=headers)

    async def description(self, request: web.Request) -> web.Response:
        """Answer with a TileJSON."""
        return web.json_response(self.tilejson, headers={"Access-Control-Allow-Origin": "*"})

    def template(self, tiles: str = "map") -> str:
        """Return what an operator would write."""
        return f"{self.url}/{tiles}/{{z}}/{{x}}/{{y}}.png"


@web.middleware
async def for_every_origin(request: web.Request, handler: Any) -> web.StreamResponse:
    """Let pages of other origins have the answers, as public tile servers do."""
    answer: web.StreamResponse = await handler(request)
    answer.headers["Access-Control-Allow-Origin"] = "*"
    return answer


@pytest_asyncio.fixture(loop_scope="module")
async def tiles(tmp_path: Path) -> AsyncIterator[Tiles]:
    """Run a tile server on a port of its own, with the streets of a harbour at /tiles."""
    server = Tiles()
    app = web.Application(middlewares=[for_every_origin])
    app.router.add_get("/{set:map|satellite}/{z}/{x}/{y}.png", server.picture)
    app.router.add_get("/description.json", server.description)
    TileRoutes(ServedTiles([tmp_path / "harbour.pmtiles"])).add_to(app)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


def offer(
    played: FakeGateway, name: Name, url: str, attribution: str = "© <b>Somebody</b>"
) -> None:
    """Let the gateway offer a base map."""
    played.ground = True
    played.fix("demo/phone", 47.1, 9.5)
    played.tile_servers.append(tile_server(name, url, attribution))


async def choose(page: Page, name: str) -> None:
    """Choose a base map in the settings."""
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("Base map").select_option(name)
    await page.get_by_role("button", name="Done").click()


async def coloured(page: Page, wanted: Callable[[tuple[int, int, int]], bool]) -> None:
    """Wait until the spot has the colour that is wanted."""
    async with asyncio.timeout(DEADLINE_MS / 1000):
        while not wanted(await colour_at(page, *SPOT)):
            await asyncio.sleep(0.1)


async def test_base_maps_are_chosen_and_remembered(
    visit: Visit, played: FakeGateway, tiles: Tiles
) -> None:
    offer(played, "map", tiles.template())
    offer(played, "satellite", tiles.template("satellite"), "Pictures of nobody")
    page = visit.page
    await visit.open(played.url + "#5/30/-40")
    await coloured(page, lambda colour: colour[2] > colour[0])
    assert tiles.asked == []  # nothing is asked elsewhere before somebody wants it

    await choose(page, "map")
    await coloured(page, lambda colour: colour == PINK)
    attribution = page.locator(".maplibregl-ctrl-attrib-inner")
    await expect(attribution).to_contain_text("© <b>Somebody</b>")  # text, never markup
    labels = "() => waylog.map.getLayer('town') !== undefined"
    assert await page.evaluate(labels) is False  # the picture has its own
    countries = "() => waylog.map.getLayoutProperty('country', 'visibility')"
    assert await page.evaluate(countries) == "none"
    assert all("Cookie" not in each.headers for each in tiles.asked)
    assert all("Referer" not in each.headers for each in tiles.asked)
    await page.get_by_role("button", name="Settings").click()
    await self_check(page)
    await page.get_by_role("button", name="Done").click()

    await page.reload()
    await page.wait_for_selector("html[data-ready=true]")
    await coloured(page, lambda colour: colour == PINK)
    await choose(page, "satellite")
    await coloured(page, lambda colour: colour == GREEN)
    await expect(attribution).to_contain_text("Pictures of nobody")
    assert await page.evaluate(labels) is True
    assert await page.evaluate(countries) == "visible"
    await choose(page, "embedded")
    await coloured(page, lambda colour: colour[2] > colour[0])
    await expect(page.locator("map-notice")).to_be_hidden()
    assert visit.complaints == []


async def test_without_base_maps_there_is_nothing_to_choose(
    visit: Visit, played: FakeGateway
) -> None:
    played.ground = True
    played.fix("demo/phone", 47.1, 9.5)
    await visit.page.add_init_script(
        """localStorage.setItem("waylog.settings", '{"base_map": "satellite"}')"""
    )
    await visit.open(played.url + "#5/30/-40")
    await visit.page.get_by_role("button", name="Settings").click()
    await expect(visit.page.get_by_label("Colours")).to_be_visible()
    await expect(visit.page.get_by_label("Base map")).to_have_count(0)
    await expect(visit.page.locator("map-notice")).to_be_hidden()
    hosts = {urlsplit(url).netloc for url in visit.requests if not url.startswith("blob:")}
    assert hosts == {urlsplit(played.url).netloc}
    assert visit.complaints == []


async def test_a_server_that_fails_leaves_the_embedded_map_and_a_line(
    browser: Browser, played: FakeGateway, tiles: Tiles
) -> None:
    offer(played, "map", tiles.template())
    tiles.status = 500
    context = await browser.new_context(
        viewport={"width": 360, "height": 640},
        device_scale_factor=PIXEL_RATIO,
        reduced_motion="reduce",
        locale="de-CH",
    )
    context.set_default_timeout(90_000)
    try:
        page = await context.new_page()
        await page.add_init_script(
            """localStorage.setItem("waylog.settings", '{"base_map": "map"}')"""
        )
        await page.goto(played.url + "#5/30/-40")
        notice = page.locator("map-notice")
        host = urlsplit(tiles.url).netloc
        await expect(notice).to_contain_text(f"{host} liefert seine Karte nicht")
        await page.wait_for_function("() => waylog.map.getLayer('town') && waylog.map.loaded()")
        assert await page.evaluate("() => waylog.map.getLayer('operator')") is None
        await self_check(page)
        tiles.status = 200
        await notice.get_by_role("button", name="Noch einmal versuchen").click()
        await expect(notice).to_be_hidden()
        await page.wait_for_function("() => waylog.map.getLayer('operator') && waylog.map.loaded()")
        # A tile that is not there, as where a map ends, is no failure.
        tiles.status = 404
        await page.evaluate("() => { waylog.map.jumpTo({center: [100, 40], zoom: 7}); }")
        await page.wait_for_function("() => waylog.map.loaded()")
        await expect(notice).to_be_hidden()
    finally:
        await context.close()


async def test_a_server_that_fails_later_is_given_up_too(
    visit: Visit, played: FakeGateway, tiles: Tiles
) -> None:
    offer(played, "map", tiles.template())
    page = visit.page
    await visit.open(played.url + "#5/30/-40")
    await choose(page, "map")
    await coloured(page, lambda colour: colour == PINK)
    tiles.status = 503
    await page.evaluate("() => { waylog.map.jumpTo({center: [-40, 20], zoom: 7}); }")
    await expect(page.locator("map-notice")).to_contain_text("does not deliver its map")
    await coloured(page, lambda colour: colour[2] > colour[0])


async def test_a_tilejson_may_name_tiles_of_its_own_server_alone(
    visit: Visit, played: FakeGateway, tiles: Tiles
) -> None:
    offer(played, "map", f"{tiles.url}/description.json")
    tiles.tilejson = {"tilejson": "3.0.0", "tiles": ["map/{z}/{x}/{y}.png"], "maxzoom": 6}
    page = visit.page
    await visit.open(played.url + "#5/30/-40")
    await choose(page, "map")
    await coloured(page, lambda colour: colour == PINK)
    assert visit.complaints == []
    # The policy knows one server; the page does without what is elsewhere.
    elsewhere = tiles.template().replace("127.0.0.1", "localhost")
    tiles.tilejson = {"tilejson": "3.0.0", "tiles": [elsewhere]}
    asked = len(tiles.asked)
    await page.reload()
    await expect(page.locator("map-notice")).to_be_visible()
    assert len(tiles.asked) == asked
    tiles.tilejson = {"nothing": 1}
    await page.reload()
    await expect(page.locator("map-notice")).to_be_visible()


async def test_vector_tiles_are_drawn_like_those_of_an_extract(
    visit: Visit, played: FakeGateway, tiles: Tiles, tmp_path: Path
) -> None:
    (tmp_path / "built").mkdir()
    harbour_archive(tmp_path / "built").rename(tmp_path / "harbour.pmtiles")
    async with http_session() as session, session.get(f"{tiles.url}/tiles.json") as answer:
        path = (await answer.json())["archives"][0]["tiles"]
    offer(played, "map", tiles.url + path)
    page = visit.page
    await visit.open(f"{played.url}#15/{LAT + 0.004}/{LON}")
    await choose(page, "map")
    await page.wait_for_function(
        """() => waylog.map.loaded() && waylog.map.getLayer("operator-street")
          && waylog.map.queryRenderedFeatures({layers: ["operator-street"]}).length > 0"""
    )
    await expect(page.locator(".maplibregl-ctrl-attrib-inner")).to_contain_text("Somebody")
    assert visit.complaints == []
