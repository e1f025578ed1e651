"""The streets of an extract on the live map, in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, expect

from geoservice.tiles.archive import replace_metadata
from tests.gateway.web.conftest import DEADLINE_MS, PIXEL_RATIO, FakeGateway, Visit
from tests.gateway.web.test_page import colour_at
from tests.geoservice.tiles.harbour_extract import AT_SEA, DATA_TIME, LAT, LON, harbour_archive

pytestmark = [pytest.mark.early, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

DRAWN = """layers => waylog.map.loaded() && layers.every((layer) =>
    waylog.map.queryRenderedFeatures({layers: [layer]}).length > 0)"""


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return harbour_archive(tmp_path_factory.mktemp("tiles"))


@pytest.fixture
def extract(tiles: Path, played: FakeGateway) -> FakeGateway:
    """Give the simulated gateway an extract, and a device, so that no guide hides the map."""
    shutil.copy(tiles, played.tiles)
    played.ground = True
    played.fix("demo/phone", LAT + 0.1, LON)
    return played


async def test_streets_water_and_names_are_drawn_at_their_levels(
    visit: Visit, extract: FakeGateway
) -> None:
    await visit.open(f"{extract.url}#15/{LAT + 0.004}/{LON}")
    page = visit.page
    drawn = ("street", "street-casing", "street-path", "buildings", "water", "ocean", "land-use")
    named = ("street-names", "main-street-names", "lake-names")
    wanted = [f"extract-0-{layer}" for layer in (*drawn, *named)]
    await page.wait_for_function(DRAWN, arg=wanted)
    house = [LON + 0.0011, LAT + 0.0023]
    await page.evaluate("at => { waylog.map.jumpTo(at); }", {"zoom": 18.9, "center": house})
    await page.wait_for_function(DRAWN, arg=["extract-0-street", "extract-0-house-numbers"])
    await page.evaluate("at => { waylog.map.jumpTo(at); }", {"zoom": 7})
    await page.wait_for_function(DRAWN, arg=["extract-0-street"])
    kinds = await page.evaluate(
        """() => waylog.map.queryRenderedFeatures({layers: ["extract-0-street"]})
            .map((feature) => feature.properties.kind)"""
    )
    assert set(kinds) == {"motorway"}
    hosts = {urlsplit(url).hostname for url in visit.requests if not url.startswith("blob:")}
    assert hosts == {"127.0.0.1"}
    assert any("/tiles/0/14/" in url for url in visit.requests)
    assert visit.complaints == []


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
async def test_land_sea_and_streets_have_the_colours_of_the_theme(
    visit: Visit, extract: FakeGateway, theme: str
) -> None:
    await visit.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    await visit.open(f"{extract.url}#16/{LAT + 0.006}/{LON + 0.0006}")
    page = visit.page
    await expect(page.locator("html")).to_have_attribute("data-theme", theme)

    async def colour(lat: float, lon: float) -> tuple[int, int, int]:
        await page.evaluate(
            """at => new Promise((resolve) => {
                // Not with the event: it would be handed over with the whole map.
                waylog.map.once("idle", () => resolve());
                waylog.map.jumpTo({center: at, zoom: 16});
                waylog.map.triggerRepaint();
            })""",
            [lon, lat],
        )
        return await colour_at(page, 500, 320)

    motorway = await colour(LAT + 0.006, LON + 0.0049)
    land = await colour(LAT + 0.0055, LON - 0.0033)
    sea = await colour(*AT_SEA)
    assert motorway[0] > motorway[2] + 40  # orange
    assert sea[2] > sea[0] + 10  # blue
    assert abs(land[0] - land[2]) < 30
    assert (sum(land) > 600) == (theme == "light")


async def test_names_are_in_the_browsers_language(browser: Browser, extract: FakeGateway) -> None:
    written = """layer => waylog.map.queryRenderedFeatures({layers: [layer]})
        .map((feature) => JSON.stringify(feature.layer.layout["text-field"]))"""
    for locale, street, town in (("ja", "港通り", "Porto"), ("de-AT", "Rue du Port", "Hafenstadt")):
        context = await browser.new_context(
            locale=locale, reduced_motion="reduce", device_scale_factor=PIXEL_RATIO
        )
        context.set_default_timeout(DEADLINE_MS)
        visit = Visit(await context.new_page())
        await visit.open(f"{extract.url}#15/{LAT + 0.002}/{LON}")
        for layer, name in (("street-names", street), ("settlements", town)):
            await visit.page.wait_for_function(DRAWN, arg=[f"extract-0-{layer}"])
            assert name in " ".join(await visit.page.evaluate(written, f"extract-0-{layer}"))
        await context.close()


async def test_whose_data_these_are_and_of_which_day_is_on_the_map(
    visit: Visit, extract: FakeGateway
) -> None:
    await visit.open(f"{extract.url}#13/{LAT}/{LON}")
    line = visit.page.locator(".maplibregl-ctrl-attrib-inner")
    await expect(line).to_be_visible()
    await expect(line).to_contain_text(f"© OpenStreetMap contributors (ODbL) {DATA_TIME[:10]}")


async def test_the_worlds_towns_give_way_to_those_of_the_extract(
    visit: Visit, played: FakeGateway, tiles: Path
) -> None:
    played.ground = True
    played.fix("demo/phone", LAT + 0.1, LON)
    page = visit.page
    shown = """() => waylog.map.queryRenderedFeatures({layers: ["town"]})
        .map((feature) => feature.properties.name)"""
    await visit.open(f"{played.url}#13/{LAT}/{LON}")
    await page.wait_for_function(DRAWN, arg=["town"])
    assert {"Beausoleil", "Cap-d'Ail"} <= set(await page.evaluate(shown))

    shutil.copy(tiles, played.tiles)
    await page.reload()
    await page.wait_for_selector("html[data-ready=true]")
    await page.wait_for_function(DRAWN, arg=["extract-0-settlements", "town"])
    names = await page.evaluate(shown)
    assert "Beausoleil" not in names and "Cap-d'Ail" in names


async def test_streets_come_as_soon_as_there_is_an_extract(
    visit: Visit, played: FakeGateway, tiles: Path
) -> None:
    played.ground = True
    played.fix("demo/phone", LAT + 0.1, LON)
    await visit.page.route("**/tiles.json", lambda route: route.fulfill(status=503))
    await visit.open(f"{played.url}#14/{LAT}/{LON}")
    await expect(visit.page.locator("html")).to_have_attribute("data-ready", "true")
    shutil.copy(tiles, played.tiles)
    await visit.page.unroute("**/tiles.json")
    await visit.page.wait_for_function(DRAWN, arg=["extract-0-street"])


async def test_an_archive_of_somebody_else_is_drawn_on_ground_of_its_own(
    visit: Visit, extract: FakeGateway
) -> None:
    # Shortbread has neither an outline nor the layer `extract`; what the file says is no markup.
    said = {"attribution": "<img src=x onerror=document.title=1>Theirs & <a href=x>OSM</a>"}
    replace_metadata(extract.tiles, said | {"vector_layers": [{"id": "streets", "fields": {}}]})
    await visit.open(f"{extract.url}#15/{LAT + 0.004}/{LON}")
    page = visit.page
    await page.wait_for_function(DRAWN, arg=["extract-0-ground", "extract-0-street"])
    assert await page.evaluate("waylog.map.getSource('extract-0-ground').type") == "geojson"
    await expect(page.locator(".maplibregl-ctrl-attrib-inner")).to_contain_text("Theirs & OSM")
    assert await page.title() != "1"
    assert visit.complaints == []
