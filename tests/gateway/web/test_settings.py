"""Language, units, clock and time zone are chosen, kept, and used everywhere."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tests.gateway.web.conftest import PIXEL_RATIO, FakeGateway, Visit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

VADUZ = (47.1410, 9.5209)


async def test_the_language_is_the_browsers_and_another_can_be_chosen(
    browser: Browser, played: FakeGateway
) -> None:
    played.fix("demo/phone", *VADUZ, speed=7.5, time=1_780_000_000_000, received=1_780_000_000_000)
    context = await browser.new_context(
        locale="de-CH",
        timezone_id="Europe/Zurich",
        reduced_motion="reduce",
        device_scale_factor=PIXEL_RATIO,
    )
    try:
        visit = Visit(await context.new_page())
        await visit.open(played.url + "#8/47/9.5&device=demo/phone")
        page = visit.page
        await expect(page.locator("html")).to_have_attribute("lang", "de-CH")
        await expect(page.get_by_role("link", name="Tagebuch")).to_be_visible()
        await expect(page.locator("device-panel .facts")).to_contain_text("27 km/h")
        await expect(page.locator(".list-head")).to_contain_text("1 Gerät")
        assert await page.title() == "Waylog · Live"
        await page.get_by_role("button", name="Einstellungen").click()
        await page.get_by_label("Sprache").select_option("en")
        # The page is written anew, and the dialog is still there.
        await expect(page.get_by_role("heading", name="Settings")).to_be_visible()
        await expect(page.get_by_label("Language")).to_be_focused()
        await page.reload()
        await expect(page.locator(".list-head")).to_contain_text("1 device")
        assert visit.complaints == []
    finally:
        await context.close()


@pytest.mark.parametrize(
    ("units", "facts"),
    [
        ("imperial", ("17 mph", "4,921 ft", "26 ft")),
        pytest.param("nautical", ("15 kn", "1,500 m", "8 m"), marks=pytest.mark.long),
    ],
)
async def test_units_are_those_that_were_chosen(
    visit: Visit, played: FakeGateway, units: str, facts: tuple[str, ...]
) -> None:
    played.fix("demo/phone", *VADUZ, speed=7.5, altitude=1500, accuracy=8)
    await visit.open(played.url + "#8/47/9.5&device=demo/phone")
    await visit.page.get_by_role("button", name="Settings").click()
    await visit.page.get_by_label("Units").select_option(units)
    await visit.page.wait_for_selector("html[data-ready=true]")
    for fact in facts:
        await expect(visit.page.locator("device-panel .facts")).to_contain_text(fact)


async def test_clock_and_time_zone_are_those_that_were_chosen(
    visit: Visit, played: FakeGateway
) -> None:
    at = 1_780_000_000_000  # 2026-05-28T20:26:40Z
    played.fix("demo/phone", *VADUZ, time=at, received=at)
    await visit.open(played.url + "#8/47/9.5&device=demo/phone")
    page = visit.page
    age = page.locator("device-panel p.age")
    await expect(age).to_have_attribute("title", "Thu, May 28, 8:26:40 PM")
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_label("Clock").select_option("24")
    await page.wait_for_selector("html[data-ready=true]")
    await page.get_by_label("Time zone").select_option("Asia/Tokyo")
    await expect(age).to_have_attribute("title", "Fri, May 29, 05:26:40")


async def test_settings_that_are_none_are_left_out(visit: Visit, played: FakeGateway) -> None:
    played.fix("demo/phone", *VADUZ, speed=7.5)
    kept = '{"language": "xx-<b>", "units": 5, "zone": "Mars/Olympus", "clock": "24"}'
    await visit.page.add_init_script(f"localStorage.setItem('waylog.settings', '{kept}')")
    await visit.open(played.url + "#8/47/9.5&device=demo/phone")
    await expect(visit.page.locator("device-panel .facts")).to_contain_text("27 km/h")
    assert visit.complaints == []
