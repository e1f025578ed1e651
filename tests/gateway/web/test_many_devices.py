"""The live map of many devices: counts far away, points near, chosen ones, in a real browser."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest
from playwright.async_api import Page, expect

from gateway.viewers.areas import Area
from tests.gateway.mqtt.in_memory import eventually
from tests.gateway.viewers.area_client import AreaClient
from tests.gateway.viewers.test_areas import Page as Viewing
from tests.gateway.viewers.town import Town
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import FakeGateway, Visit
from waylog.bounding_box import BoundingBox

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

VADUZ = (47.1410, 9.5209)


def town_of(count: int) -> Town:
    """Return a town of devices, in Europe, one of them in Vaduz, one that is silent for long."""
    town = Town()
    town.now = int(time.time() * 1000)
    for n in range(count):
        town.fix(f"demo/d{n}", 45 + n % 100 / 20, 8 + n // 100 / 10, course=90.0, speed=9.0)
    town.fix("demo/van", *VADUZ, accuracy=600.0, speed=4.0, course=45.0)
    two_years = 800 * 86_400_000
    town.fix("demo/old", 47.3, 9.6, time=town.now - two_years, received=town.now - two_years)
    return town


async def counts(page: Page) -> int:
    """Return the sum of the numbers in the circles, in and out of sight."""
    found: int = await page.evaluate(
        "[...document.querySelectorAll('.cluster')].reduce((sum, b) => sum + +b.dataset.count, 0)"
    )
    return found


async def test_many_devices_are_counts_that_split_into_points(
    visit: Visit, played: FakeGateway
) -> None:
    town = played.town = town_of(3_000)
    page = visit.page
    await visit.open(played.url + "#4/47.2/9.5")
    await expect(page.locator(".cluster:visible").first).to_be_visible()
    await page.wait_for_function(
        "() => [...document.querySelectorAll('.cluster')]"
        ".reduce((sum, b) => sum + +b.dataset.count, 0) === 3002"
    )
    assert await page.evaluate("waylog.deviceCount") == 0
    listed = page.locator("device-list")
    await expect(listed).to_contain_text("3,002 devices")
    await expect(listed).to_contain_text("Too many to list")
    await self_check(page)

    # No two circles lie on each other.
    apart = await page.evaluate(
        """() => {
          const boxes = [...document.querySelectorAll('.cluster:not([hidden])')]
            .map((button) => button.getBoundingClientRect());
          const away = (a, b) => Math.hypot(
            a.x + a.width / 2 - b.x - b.width / 2, a.y + a.height / 2 - b.y - b.height / 2);
          return boxes.every((a, i) => boxes.every((b, j) => i === j || away(a, b) > 20));
        }"""
    )
    assert apart

    # A circle splits at a press, and what is left are points.
    zoom = await page.evaluate("waylog.map.getZoom()")
    await page.locator(".cluster:visible").first.focus()
    await page.keyboard.press("Enter")
    await page.wait_for_function("zoom => waylog.map.getZoom() > zoom + 1.9", arg=zoom)
    await page.evaluate("() => { waylog.map.jumpTo({zoom: 10, center: [9.52, 47.14]}); }")
    await expect(page.locator(".clusters")).to_be_hidden()
    await page.wait_for_function("() => Boolean(waylog.store.get('demo/van'))")
    await expect(listed).to_contain_text("of 3,002 devices are in sight")
    await expect(listed.locator("[role=listitem]").first).to_contain_text("demo")
    known = await page.evaluate("waylog.store.records.map((record) => record.device).sort()")
    lens = Viewing(town).look(
        BoundingBox(
            *await page.evaluate(
                "import('/static/js/live/area_view.js')"
                ".then(({boxOf}) => boxOf(waylog.map.getBounds()))"
            )
        ),
        10,
    )
    town.tick()
    assert known == sorted(lens.points or ())

    # Devices move, come into sight and leave it; each is drawn where its record says.
    await page.wait_for_function("() => !waylog.moving")
    before = await page.evaluate("waylog.positionOf('demo/van')")
    town.fix("demo/van", VADUZ[0], VADUZ[1] + 0.05, speed=4.0, course=90.0)
    gone = next(device for device in known if device.startswith("demo/d"))
    town.fix(gone, -40.0, 170.0)
    town.fix("demo/d1", 47.2, 9.5)
    await page.wait_for_function(
        "x => !waylog.moving && waylog.positionOf('demo/van').x > x + 20", arg=before["x"]
    )
    await page.wait_for_function("gone => !waylog.store.get(gone)", arg=gone)
    await page.wait_for_function("() => Boolean(waylog.store.get('demo/d1')) && !waylog.moving")
    wrong = await page.evaluate(
        """() => waylog.store.records.filter((record) => {
          const {x, y} = waylog.positionOf(record.device);
          const at = waylog.map.project([record.lon, record.lat]);
          return Math.hypot(at.x - x, at.y - y) > 0.5;
        }).map((record) => record.device)"""
    )
    assert wrong == []
    assert await page.evaluate("waylog.view.trails.count") >= 1
    assert visit.complaints == []


async def test_many_devices_are_counted_in_a_view_that_is_opened_later(
    visit: Visit, played: FakeGateway
) -> None:
    played.town = town_of(3_000)
    page = visit.page
    await visit.open(played.url + "#4/47.2/9.5&view=diary")
    await eventually(lambda: bool(played.lookers))
    await page.get_by_role("link", name="Live").click()
    await expect(page.locator("device-list")).to_contain_text("3,002 devices")
    await expect(page.locator(".cluster:visible").first).to_be_visible()
    assert visit.complaints == []


async def test_chosen_devices_are_followed_wherever_they_go(
    visit: Visit, played: FakeGateway
) -> None:
    town = played.town = town_of(3_000)
    page = visit.page
    await page.set_viewport_size({"width": 1280, "height": 640})
    await visit.open(played.url + "#11/47.14/9.52&device=demo/van&follow=1")
    panel = page.locator("device-panel")
    await expect(panel.locator(".name")).to_have_text("van")
    await expect(panel.get_by_role("button", name="Follow")).to_have_attribute(
        "aria-pressed", "true"
    )
    town.fix("demo/van", -33.9, 151.2, accuracy=50.0)
    await page.wait_for_function("() => Math.abs(waylog.map.getCenter().lat + 33.9) < 0.3")

    # Found by the gateway, which alone knows all names; and chosen beside the first.
    search = page.get_by_label("Search device, address or place")
    await search.fill("old")
    await expect(page.locator("device-list [role=listitem]:visible")).to_have_count(1)
    await expect(page.locator("device-list [role=listitem]:visible")).to_contain_text("2 years ago")
    await search.fill("d1234")
    row = page.locator("[role=listitem]", has_text="d1234")
    await row.get_by_role("button").click(modifiers=["Control"])
    chosen = page.get_by_role("group", name="Chosen devices")
    await expect(chosen.get_by_role("button", name="van", exact=True)).to_be_visible()
    await expect(chosen.get_by_role("button", name="d1234", exact=True)).to_be_visible()
    assert "also=demo/van,demo/d1234" in page.url or await page.wait_for_function(
        "() => location.hash.includes('also=demo/van,demo/d1234')"
    )
    await search.fill("")
    for zoom in (3, 12):  # counts, and points elsewhere
        await page.evaluate("zoom => { waylog.map.jumpTo({zoom, center: [40, 10]}); }", zoom)
        town.fix("demo/d1234", 10.0 + zoom, 40.0, accuracy=30.0)
        await page.wait_for_function(
            "lat => waylog.store.get('demo/d1234')?.lat === lat", arg=10.0 + zoom
        )
        assert await page.evaluate("Boolean(waylog.store.get('demo/van'))")
    circles = await page.evaluate("waylog.view.details.others.length")
    assert circles == 1
    await chosen.get_by_role("button", name="Let d1234 go").click()
    await page.wait_for_function("() => !waylog.store.get('demo/d1234')")

    # An erased device is not shown any longer.
    town.locations.forget("demo/van", town.now + 1)
    await expect(panel).to_be_hidden()
    assert await page.evaluate("waylog.deviceCount") == 0
    assert visit.complaints == []


async def test_it_comes_back_after_a_loss_and_is_small_again_when_there_are_few(
    visit: Visit, played: FakeGateway
) -> None:
    town = played.town = town_of(100)
    page = visit.page
    await visit.open(played.url + "#5/47.1/9.5")
    await expect(page.locator("html")).to_have_attribute("data-devices", "102")
    await played.drop_viewers()
    town.fix("demo/new", *VADUZ)
    await expect(page.locator("html")).to_have_attribute("data-devices", "103")
    played.town = None
    played.fix("demo/phone", *VADUZ)
    await played.drop_viewers()
    await expect(page.locator("html")).to_have_attribute("data-devices", "1")
    await played.send("fix", played.fix("demo/phone", 47.2, 9.5))
    await page.wait_for_function("() => waylog.store.get('demo/phone')?.lat === 47.2")
    assert visit.complaints == []


async def test_the_pages_decoder_reads_what_python_reads(visit: Visit, played: FakeGateway) -> None:
    town = Town(points_from=3)
    viewing = Viewing(town)
    area = Area.of(BoundingBox(-180, -85, 180, 85), 0)
    frames: list[bytes] = []
    client = AreaClient()

    def collect() -> None:
        town.tick(4)
        frames.extend(taken := viewing.area.take(town.now))
        for frame in taken:
            client.take(frame)

    viewing.area.look_at(area, ["demo/Ünï ☃"])
    town.fix("demo/Ünï ☃", -47.5, -179.9, speed=3.25, course=359.99, accuracy=0.5)
    town.fix("demo/b", 47.5, 179.9, time=1_000_000_000_000)
    collect()
    for n in range(6):
        town.fix(f"demo/c{n}", 10.0 * n, 20.0 * n)
    collect()
    town.fix("demo/c1", -80.0, -20.0)
    collect()
    await visit.open(played.url)
    read: list[dict[str, Any]] = await visit.page.evaluate(
        """async (frames) => {
          const { readFrame } = await import('/static/js/live/area_frames.js');
          return frames.map((bytes) => readFrame(new Uint8Array(bytes).buffer));
        }""",
        [list(frame) for frame in frames],
    )
    assert [each["kind"] for each in read] == (["names", "points", "chosen", "counts", "counts"])
    again = AreaClient()
    for frame, found in zip(frames, read, strict=True):
        again.take(frame)
        assert found["time"] == struct.unpack_from("<q", frame, 24)[0]
        assert (found["visible"], found["whole"]) == (again.visible, again.kinds[-1][1])
        if found["kind"] == "names":
            assert dict(found["names"]) == again.names
        elif found["kind"] == "counts":
            for cell in found["cells"]:
                assert again.cells is not None
                assert again.cells[cell["x"], cell["y"]] == (
                    *(cell["count"], cell["live"]),
                    *(cell["lat"], cell["lon"]),
                )
        else:
            known = again.points if found["kind"] == "points" else again.chosen
            assert known is not None
            for point in found["points"]:
                expected = known[again.names[point["number"]]]
                members = ("lat", "lon", "time", "received", "course", "speed", "accuracy")
                assert tuple(point[name] for name in members) == expected
    assert (
        await visit.page.evaluate(
            """async () => {
          const { readFrame } = await import('/static/js/live/area_frames.js');
          return readFrame(new Uint8Array([2, 1, ...Array(30).fill(0)]).buffer);
        }"""
        )
        is None
    )
