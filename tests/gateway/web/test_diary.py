"""The diary in a real browser, against a simulated gateway."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import PIXEL_RATIO, FakeGateway, Visit

pytestmark = [pytest.mark.early, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HOUR = 3_600_000
DAY = 24 * HOUR
#: 30 May 2025, 0:00 UTC.
MIDNIGHT = 1_748_563_200_000
HOME, OFFICE = (47.14, 9.52), (47.18, 9.48)


def stay(begin: float, end: float, at: tuple[float, float], **members: Any) -> dict[str, Any]:
    """Return a stay, its times in hours of 30 May."""
    times = {"start": int(MIDNIGHT + begin * HOUR), "end": int(MIDNIGHT + end * HOUR)}
    place = {"lat": at[0], "lon": at[1], "fixes": 40, "silent_s": 0}
    return {"kind": "stay", **times, **place, **members}


def trip(begin: float, end: float, *places: tuple[float, float]) -> dict[str, Any]:
    """Return a trip over some places, which takes the same time for each step."""
    start, stop = MIDNIGHT + begin * HOUR, MIDNIGHT + end * HOUR
    steps = len(places) - 1
    return {
        **{"kind": "trip", "start": int(start), "end": int(stop), "ended": True},
        **{"distance_m": 6_200.0, "moving_s": 1_500.0, "fastest": 16.7},
        "coordinates": [[lon, lat] for lat, lon in places],
        "times": [int(start + (stop - start) * step / steps) for step in range(len(places))],
    }


def gap(begin: float, end: float, *places: tuple[float, float]) -> dict[str, Any]:
    """Return a gap between two places."""
    times = {"start": int(MIDNIGHT + begin * HOUR), "end": int(MIDNIGHT + end * HOUR)}
    ends = [[lon, lat] for lat, lon in places]
    return {"kind": "gap", **times, "distance_m": 5_400.0, "coordinates": ends}


@pytest.fixture
def lived(played: FakeGateway) -> FakeGateway:
    """Give the device a day in 2025: home, a trip to the office, and home again unseen."""
    time = int(MIDNIGHT + 23.9 * HOUR)
    played.fix("demo/phone", *HOME, time=time, received=time)
    played.places = [
        {"place_id": "h", "lat": HOME[0], "lon": HOME[1], "label": "home", "name": "Vaduz"}
        | {"visits": 41, "dwell_s": 820_000, "address": "Road 1, 9490 Vaduz, Liechtenstein"}
    ]
    played.items = [
        stay(-4, 8, HOME),
        trip(8, 8.5, HOME, (47.15, 9.51), (47.16, 9.49), OFFICE),
        stay(8.5, 17, OFFICE),
        gap(17, 18.25, OFFICE, HOME),
        stay(18.25, 23.9, HOME),
    ]
    return played


async def open_diary(visit: Visit, gateway: FakeGateway, more: str = "&day=2025-05-30") -> Page:
    """Open the diary of the device and wait for its timeline."""
    await visit.open(f"{gateway.url}#11/47.16/9.5&view=diary&device=demo/phone{more}")
    await expect(visit.page.locator("day-timeline li").first).to_be_visible()
    return visit.page


async def test_a_day_is_told_as_stays_trips_and_gaps(visit: Visit, lived: FakeGateway) -> None:
    page = await open_diary(visit, lived)
    entries = page.locator("day-timeline li")
    await expect(entries).to_have_count(5)
    await expect(entries.nth(0)).to_contain_text("Home")
    await expect(entries.nth(0).locator(".when")).to_contain_text(
        "May 298:00 PM"
    )  # of the day before
    await expect(entries.nth(1)).to_contain_text("6.2 km in 30 min")
    await expect(entries.nth(1)).to_contain_text("12 km/h on average, 60 km/h at most")
    await expect(entries.nth(2)).to_contain_text("Road 47.18")
    await expect(entries.nth(2)).to_contain_text("8 h 30 min · 9490 Vaduz, Liechtenstein")
    await expect(entries.nth(3)).to_contain_text("1 h 15 min without a position, 5.4 km apart")
    await expect(page.locator(".day-summary")).to_have_text(
        "6.2 km in 25 min · 1 trip · 1 h 15 min unknown"
    )
    assert visit.complaints == []


async def test_a_gap_is_dashed_on_the_map_and_no_line_crosses_it(
    visit: Visit, lived: FakeGateway
) -> None:
    page = await open_diary(visit, lived)
    drawn = """layer => !waylog.moving && waylog.map.loaded()
        && waylog.map.queryRenderedFeatures({layers: [layer]}).length > 0"""
    for layer in ("diary-trip", "diary-gap", "diary-stay", "diary-label"):
        await page.wait_for_function(drawn, arg=layer)
    assert await page.evaluate("waylog.map.getPaintProperty('diary-gap', 'line-dasharray')")
    kinds = await page.evaluate(
        """() => waylog.map.queryRenderedFeatures({layers: ["diary-trip", "diary-casing"]})
            .map((feature) => feature.properties.kind)"""
    )
    assert set(kinds) == {"trip"}


async def test_the_player_moves_a_marker_along_the_day(visit: Visit, lived: FakeGateway) -> None:
    page = await open_diary(visit, lived)
    player = page.locator("day-player")
    slider = player.get_by_role("slider", name="Time")

    async def marker() -> list[float]:
        found: list[float] = await page.evaluate(
            "waylog.map.getSource('diary-marker').serialize().data.features[0].geometry.coordinates"
        )
        return found

    await slider.fill(str(int(8.25 * 3600)))
    await expect(player.locator(".clock")).to_have_text("8:15 AM")
    await expect(player.locator(".place-now")).to_contain_text("Road 47.1")
    assert await marker() == pytest.approx([9.5, 47.155], abs=1e-4)
    await slider.fill(str(17 * 3600 + 1800))  # in the gap: where it was last seen
    await expect(player.locator(".place-now")).to_have_text("Unknown")
    assert await marker() == pytest.approx([OFFICE[1], OFFICE[0]])
    await slider.fill(str(8 * 3600))
    await player.get_by_role("button", name="600").click()
    await player.get_by_role("button", name="Play").click()
    await page.wait_for_function(
        "() => document.querySelector('day-player').time % 86400000 > 8.2 * 3600000"
    )
    await player.get_by_role("button", name="Pause").click()
    stopped = await page.evaluate("document.querySelector('day-player').time")
    assert await page.evaluate("document.querySelector('day-player').time") == stopped


async def test_the_calendar_marks_days_with_data_and_opens_them(
    visit: Visit, lived: FakeGateway
) -> None:
    lived.items.append(stay(-53, -40, OFFICE))
    page = await open_diary(visit, lived)
    await page.locator(".period").click()
    calendar = page.locator("month-calendar")
    if not await calendar.is_visible():
        await page.locator(".period").click()
    marked = calendar.locator(".day.has")
    await expect(marked).to_have_count(3)
    await calendar.get_by_role("button", name="Tuesday, May 27, 2025, 100 positions").click()
    await page.wait_for_function("() => location.hash.includes('day=2025-05-27')")
    await expect(page.locator("day-timeline li")).to_have_count(1)
    await page.go_back()
    await expect(page.locator("day-timeline li")).to_have_count(5)
    await page.get_by_role("button", name="Earlier").click()
    await page.wait_for_function("() => location.hash.includes('day=2025-05-29')")


async def test_the_keyboard_goes_through_the_calendar_and_the_day(
    visit: Visit, lived: FakeGateway
) -> None:
    page = await open_diary(visit, lived)
    calendar = page.locator("month-calendar")
    await page.locator(".period").focus()
    await page.keyboard.press("Enter")
    await expect(calendar).to_be_visible()
    await calendar.get_by_role("button", name="Friday, May 30, 2025").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        await page.keyboard.press(key)
    focused = calendar.locator("button:focus")
    await expect(focused).to_have_attribute("data-date", "2025-05-25")
    await page.keyboard.press("Enter")
    await page.wait_for_function("() => location.hash.includes('day=2025-05-25')")
    await page.go_back()
    trip_entry = page.locator("day-timeline li button").nth(1)
    await trip_entry.focus()
    await page.keyboard.press("Enter")
    await expect(trip_entry).to_have_attribute("aria-current", "true")
    slider = page.get_by_role("slider", name="Time")
    await expect(slider).to_have_attribute("aria-valuetext", re.compile("^8:00 AM, Road"))
    await slider.focus()
    await page.keyboard.press("ArrowRight")
    assert await slider.input_value() == str(8 * 3600 + 10)


async def test_addresses_that_come_later_leave_the_focus_where_it_is(
    visit: Visit, lived: FakeGateway
) -> None:
    may_come = asyncio.Event()

    async def wait(route: Route) -> None:
        await may_come.wait()
        await route.continue_()

    await visit.page.route("**/reverse/batch", wait)
    page = await open_diary(visit, lived)
    entries = page.locator("day-timeline li")
    await entries.nth(1).get_by_role("button").focus()
    await expect(entries.nth(2)).not_to_contain_text("Vaduz")
    may_come.set()
    await expect(entries.nth(2)).to_contain_text("Vaduz")
    await expect(entries.nth(1).get_by_role("button")).to_be_focused()


@pytest.mark.parametrize("later", [False, True], ids=["known_first", "known_later"])
async def test_an_empty_day_leads_to_the_last_one_that_is_known(
    visit: Visit, lived: FakeGateway, later: bool
) -> None:
    has_ended = asyncio.Event()

    async def wait(route: Route) -> None:
        await has_ended.wait()
        await route.continue_()

    # Either the devices are known before the day is, or the day before the devices.
    awaited = "**/v1/devices?*" if later else "**/timeline?*"
    await visit.page.route(awaited, wait)
    await visit.open(f"{lived.url}#11/47.16/9.5&view=diary&device=demo/phone&day=2024-01-01")
    summary = visit.page.locator(".day-summary")
    if not later:
        await expect(visit.page.locator("html")).to_have_attribute("data-devices", "1")
        has_ended.set()
    await expect(summary).to_have_text("No position is known of this time.")
    has_ended.set()
    await visit.page.get_by_role("button", name="Last day with positions: May 30, 2025").click()
    await expect(visit.page.locator("day-timeline li")).to_have_count(5)


async def test_without_a_day_the_last_one_that_is_known_is_shown(
    visit: Visit, lived: FakeGateway
) -> None:
    page = await open_diary(visit, lived, "")
    await expect(page.locator(".period")).to_have_text("Fri, May 30, 2025")


async def test_statistics_are_asked_for_when_they_are_opened(
    visit: Visit, lived: FakeGateway
) -> None:
    lived.totals = [
        {"date": f"2025-05-{day}", "days": 1, "fixes": 900, "trips": 2, "distance_m": day * 1000.0}
        | {"moving_s": 3_600.0, "fastest": 20.0, "unseen_m": 0.0, "visited": [[47.14, 9.52]]}
        for day in (28, 29, 30)
    ]
    page = await open_diary(visit, lived)
    assert not any("statistics" in path for path in lived.asked)
    assert not any("travel_statistics" in url for url in visit.requests)
    await page.get_by_role("button", name="Statistics").click()
    statistics = page.locator("travel-statistics")
    await expect(statistics.locator("dl")).to_contain_text("87.0 km")
    await expect(statistics.get_by_role("img")).to_have_count(2)
    await expect(statistics.get_by_role("img").first).to_have_accessible_name(
        "Distance: at most 30.0 km, Fri, May 30"
    )
    await expect(statistics.locator("tbody tr:not(.of)")).to_have_count(3)
    await expect(statistics.locator("td.towns").first).to_have_text("Vaduz · Liechtenstein")
    await statistics.get_by_role("button", name="Month").click()
    await expect(statistics.locator("thead")).to_contain_text("Month")
    assert "by=month" in lived.asked[-1]


async def test_the_live_view_comes_back_as_it_was(visit: Visit, lived: FakeGateway) -> None:
    page = await open_diary(visit, lived)
    await expect(page.locator("device-panel")).to_have_count(0)  # not even loaded
    await page.get_by_role("link", name="Live").click()
    await expect(page.locator("device-panel h2")).to_have_text("phone")
    await expect(page.locator("day-player")).to_be_hidden()
    assert not await page.evaluate("Boolean(waylog.map.getLayer('diary-trip'))")
    await page.get_by_role("button", name="Open the diary").click()
    await expect(page.locator("day-timeline li")).to_have_count(5)
    await expect(page.locator("device-panel")).to_be_hidden()
    await page.go_back()
    await expect(page.locator("device-panel h2")).to_be_visible()


async def test_times_can_be_those_of_the_place(visit: Visit, lived: FakeGateway) -> None:
    await visit.page.add_init_script(
        'localStorage.setItem(\'waylog.settings\', \'{"zone": "place", "clock": "24"}\')'
    )
    page = await open_diary(visit, lived)
    # 8:00 UTC is 17:00 in Tokyo.
    await expect(page.locator("day-timeline li").nth(1).locator(".when")).to_contain_text("17:00")
    assert any(f"from={MIDNIGHT - 9 * HOUR}" in path for path in lived.asked)


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (390, "light"),
        pytest.param(390, "dark", marks=pytest.mark.long),
        pytest.param(1280, "light", marks=pytest.mark.long),
        (1280, "dark"),
    ],
)
async def test_nobody_is_kept_out(
    browser: Browser, lived: FakeGateway, width: int, theme: Literal["light", "dark"]
) -> None:
    lived.totals = [
        {"date": "2025-05-30", "days": 1, "fixes": 900, "trips": 2, "distance_m": 9_000.0}
        | {"moving_s": 3_600.0, "fastest": 20.0, "unseen_m": 0.0, "visited": [[47.14, 9.52]]}
    ]
    context = await browser.new_context(
        viewport={"width": width, "height": 844},
        device_scale_factor=PIXEL_RATIO,
        reduced_motion="reduce",
        color_scheme=theme,
        timezone_id="UTC",
        locale="de-DE",
    )
    try:
        visit = Visit(await context.new_page())
        page = await open_diary(visit, lived)
        await expect(page.locator("month-calendar, .period").first).to_be_visible()
        await self_check(page)
        await page.get_by_role("button", name="Statistik").click()
        await expect(page.locator("travel-statistics table")).to_be_visible()
        await self_check(page)
        await page.get_by_role("button", name="Einstellungen").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await self_check(page)
        await page.keyboard.press("Escape")
        await page.get_by_role("link", name="Live").click()
        await expect(page.locator("device-panel h2")).to_be_visible()
        await self_check(page)
        assert visit.complaints == []
    finally:
        await context.close()
