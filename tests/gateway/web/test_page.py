"""The live map in a real browser, against a simulated gateway."""

from __future__ import annotations

import math
import re
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect

from tests.gateway.web.conftest import FakeGateway, Visit

pytestmark = [pytest.mark.early, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

VADUZ = (47.1410, 9.5209)


async def position(page: Page, device: str) -> tuple[float, float] | None:
    """Return where a device is drawn, in pixels."""
    found = await page.evaluate("device => waylog.positionOf(device)", device)
    return None if found is None else (found["x"], found["y"])


async def at_rest(page: Page, device: str) -> tuple[float, float]:
    """Return a device's position once neither map nor device moves any more."""
    await page.wait_for_function(
        "device => !waylog.moving && Boolean(waylog.positionOf(device))", arg=device
    )
    found = await position(page, device)
    assert found is not None
    return found


async def colour_at(page: Page, x: float, y: float) -> tuple[int, int, int]:
    """Return the colour of a pixel of the screen."""
    import base64

    picture = base64.b64encode(
        await page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})
    ).decode()
    red, green, blue = await page.evaluate(
        """async png => {
            const image = new Image();
            image.src = "data:image/png;base64," + png;
            await image.decode();
            const context = new OffscreenCanvas(1, 1).getContext("2d");
            context.drawImage(image, 0, 0);
            return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
        }""",
        picture,
    )
    return red, green, blue


async def test_a_fix_moves_the_marker_and_an_address_changes_the_text(
    animated_visit: Visit, played: FakeGateway
) -> None:
    played.fix("demo/phone", *VADUZ, battery=81, speed=2.0, course=90)
    played.address("demo/phone", "Städtle 38, 9490 Vaduz, Liechtenstein")
    await animated_visit.open(played.url + "#11/47.141/9.53&device=demo/phone")
    page = animated_visit.page
    drawer = page.locator("device-panel")
    await expect(drawer.locator(".headline")).to_have_text("Städtle 38")
    await expect(drawer.locator(".facts")).to_contain_text("81 %")
    await expect(drawer.locator(".facts")).to_contain_text("7.2 km/h")
    before = await at_rest(page, "demo/phone")

    await played.send("fix", played.fix("demo/phone", VADUZ[0] + 0.01, VADUZ[1] + 0.02))
    await page.wait_for_function("x => waylog.positionOf('demo/phone').x > x + 20", arg=before[0])
    after = await at_rest(page, "demo/phone")
    # 512 px tiles: at zoom 11 a degree of longitude is 512 * 2^11 / 360 pixels.
    assert after[0] - before[0] == pytest.approx(0.02 * 512 * 2**11 / 360, abs=0.5)
    assert after[1] < before[1]

    await played.send(
        "address", played.address("demo/phone", "Landstrasse 5, 9494 Schaan, Liechtenstein")
    )
    await expect(drawer.locator(".headline")).to_have_text("Landstrasse 5")
    row = page.locator("[role=listitem]", has_text="phone")
    await expect(row).to_contain_text("Landstrasse 5, 9494 Schaan")
    await expect(page.locator("#announce")).to_contain_text("phone")
    assert animated_visit.complaints == []


async def test_the_point_is_drawn_where_the_map_has_its_place_at_every_zoom(
    animated_visit: Visit, played: FakeGateway
) -> None:
    played.ground = True
    played.fix("demo/phone", *VADUZ)
    await animated_visit.open(played.url + "#3/47.1410/9.5209")
    page = animated_visit.page
    for zoom in (3, 14, 18.5):
        await page.evaluate(
            "zoom => { waylog.map.jumpTo({zoom, center: [9.5209, 47.1410]}); }", zoom
        )
        x, y = await at_rest(page, "demo/phone")
        assert (x, y) == pytest.approx((500, 320), abs=0.5)
        await page.wait_for_function("() => waylog.map.loaded()")
        red, green, blue = await colour_at(page, x, y)
        assert green > red + 60, (zoom, red, green, blue)


async def test_every_request_stays_on_this_machine(visit: Visit, played: FakeGateway) -> None:
    played.ground = True
    played.fix("demo/phone", *VADUZ)
    await visit.open(played.url)
    for zoom, lon, lat in ((1, 0, 0), (6, 139, 35), (12, 2.35, 48.85)):
        await visit.page.evaluate(
            "([zoom, lon, lat]) => { waylog.map.jumpTo({zoom, center: [lon, lat]}); }",
            [zoom, lon, lat],
        )
        await visit.page.wait_for_function("() => waylog.map.loaded()")
    assert len(visit.requests) > 20
    hosts = {urlsplit(url).hostname for url in visit.requests if not url.startswith("blob:")}
    assert hosts == {"127.0.0.1"}
    assert visit.complaints == []


async def test_the_empty_page_shows_the_commands_until_the_first_fix_comes(
    visit: Visit, played: FakeGateway
) -> None:
    await visit.open(played.url)
    page = visit.page
    guide = page.get_by_role("dialog")
    await expect(guide).to_be_visible()
    for tab, words in (
        ("HTTP", ("curl -u", "demo.token", "/v1/positions", '"lat":47.1410')),
        ("MQTT", ("mosquitto_pub", "owntracks/demo/phone", '"_type":"location"')),
        ("Replay", ("waylog replay", "--user demo")),
    ):
        await guide.get_by_role("tab", name=tab).click()
        for word in words:
            await expect(guide.locator("code")).to_contain_text(word)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await guide.get_by_role("button", name="Copy").click()
    await expect(guide.get_by_role("button", name="Copied")).to_be_visible()
    assert "waylog replay" in await page.evaluate("navigator.clipboard.readText()")

    await played.send("fix", played.fix("demo/phone", *VADUZ))
    await expect(guide).to_be_hidden()
    await expect(page.locator("html")).to_have_attribute("data-devices", "1")
    x, y = await at_rest(page, "demo/phone")
    assert 0 < x < 1000 and 0 < y < 640


async def test_after_a_loss_it_reconnects_and_catches_up(visit: Visit, played: FakeGateway) -> None:
    played.fix("demo/phone", *VADUZ)
    await visit.open(played.url)
    root = visit.page.locator("html")
    await expect(root).to_have_attribute("data-connection", "live")
    await visit.page.evaluate(
        """() => {
            waylog.seen = [];
            waylog.live.addEventListener("state", (event) => waylog.seen.push(event.detail));
        }"""
    )
    await played.drop_viewers()
    played.fix("demo/missed", 47.2, 9.6)
    await expect(root).to_have_attribute("data-devices", "2")
    await expect(root).to_have_attribute("data-connection", "live")
    seen = await visit.page.evaluate("waylog.seen")
    assert seen[0] == "lost" and seen[-1] == "live"


async def test_pauses_between_attempts_double_with_jitter(
    visit: Visit, played: FakeGateway
) -> None:
    await visit.open(played.url)
    pauses = await visit.page.evaluate(
        """async () => {
            const { LiveConnection } = await import("/static/js/live_connection.js");
            const now = Date.now();
            Date.now = () => now;  // a busy machine may stand still between two looks at the clock
            const pauses = [];
            for (const jitter of [0, 0.999]) {
                const live = new LiveConnection(() => jitter);
                const own = [];
                for (let i = 0; i < 8; i += 1) {
                    live.lost();
                    clearTimeout(live.timer);
                    own.push(Math.round((live.retryAt - Date.now()) / 50) * 50);
                }
                pauses.push(own);
            }
            return pauses;
        }"""
    )
    assert pauses[0] == pytest.approx([500, 1000, 2000, 4000, 8000, 15000, 15000, 15000], abs=60)
    assert pauses[1] == pytest.approx([1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000], abs=90)


async def test_who_has_to_sign_in_is_asked_and_then_sees_the_stream(
    visit: Visit, played: FakeGateway
) -> None:
    played.credentials = "demo:secret"
    played.fix("demo/phone", *VADUZ)
    await visit.open(played.url)
    page = visit.page
    dialog = page.get_by_role("dialog", name="Sign in")
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("User").fill("demo")
    await dialog.get_by_label("Token").fill("wrong")
    await dialog.get_by_role("button", name="Sign in").click()
    await expect(dialog.get_by_role("alert")).to_have_text("Unknown user, or wrong token.")
    await dialog.get_by_label("Token").fill("secret")
    await dialog.get_by_role("button", name="Sign in").click()
    await expect(page.locator("html")).to_have_attribute("data-connection", "live")
    await expect(page.locator("html")).to_have_attribute("data-devices", "1")
    await played.send("fix", played.fix("demo/second", 47.2, 9.6))
    await expect(page.locator("html")).to_have_attribute("data-devices", "2")
    assert not any("secret" in url for url in visit.requests)
    # Another tab is signed in already.
    other = Visit(await page.context.new_page())
    await other.open(played.url)
    await expect(other.page.locator("html")).to_have_attribute("data-connection", "live")
    await expect(other.page.get_by_role("dialog")).to_be_hidden()
    await other.page.close()


async def test_the_guide_names_this_platform(visit: Visit, played: FakeGateway) -> None:
    played.session |= {"user": None}
    played.entrances = {"mqtt_port": 28831, "demo_token": "/srv/my data/demo.token"}
    await visit.open(played.url)
    dialog = visit.page.get_by_role("dialog", name="Connect your first device")
    code = dialog.locator("code")
    await expect(code).to_contain_text("$(cat '/srv/my data/demo.token')")
    await expect(code).to_contain_text(f"{played.url}v1/positions")
    await dialog.get_by_role("tab", name="MQTT").click()
    await expect(code).to_contain_text("-p 28831 -u demo")
    await dialog.get_by_role("tab", name="Replay").click()
    await expect(code).to_contain_text(f"--gateway {played.url.rstrip('/')}")
    await expect(code).to_contain_text("--token-file '/srv/my data/demo.token'")


async def test_the_guide_prefers_tls_and_leads_to_phones(visit: Visit, played: FakeGateway) -> None:
    played.entrances = {"mqtt_port": 1883, "mqtts_port": 28883}
    await visit.open(played.url)
    dialog = visit.page.get_by_role("dialog")
    await dialog.get_by_role("tab", name="MQTT").click()
    await expect(dialog.locator("code")).to_contain_text("-p 28883 --tls-use-os-certs")
    await expect(dialog.locator("code")).not_to_contain_text("1883 ")
    await dialog.get_by_role("button", name="Add a phone").click()
    await expect(dialog).to_be_hidden()
    await expect(visit.page.get_by_text("You have no device yet")).to_be_visible()


async def test_an_age_is_told_in_words(visit: Visit, played: FakeGateway) -> None:
    now = int(time.time() * 1000)
    for name, seconds, words in (
        ("a", 6602 * 86_400, "18 years ago"),
        ("b", 70 * 86_400, "2 months ago"),
        ("c", 3 * 86_400 + 60, "3 days ago"),
        ("d", 130, "2 minutes ago"),
    ):
        at = now - seconds * 1000
        played.fix(f"demo/{name}-{words}", *VADUZ, time=at, received=at)
    await visit.open(played.url)
    for name in ("18 years ago", "2 months ago", "3 days ago", "2 minutes ago"):
        row = visit.page.locator("[role=listitem]", has_text=f"-{name}")
        await expect(row.locator(".age")).to_have_text(name)


async def test_a_replayed_fix_is_live_and_says_that_it_is_old(
    visit: Visit, played: FakeGateway
) -> None:
    played.fix("demo/replayed", *VADUZ, time=1_223_812_800_000)
    await visit.open(played.url)
    row = visit.page.locator("[role=listitem]", has_text="replayed")
    await expect(row.locator(".age")).to_contain_text(re.compile("just now|seconds ago"))
    await expect(row.locator(".of")).to_have_text("from 10/12/2008")
    await expect(row.locator(".mark")).to_have_class("mark live")
    await row.get_by_role("button").click()
    await expect(visit.page.locator("device-panel p.age")).to_contain_text(
        re.compile(
            r"Received .*\. The position is older: Sun, Oct 12, 2008, 12:00:00 PM, \d\d years"
        )
    )


async def test_a_place_is_found_by_its_name_and_shown(visit: Visit, played: FakeGateway) -> None:
    played.fix("demo/phone", *VADUZ)
    place = {"display_name": "Nuuk, Greenland", "lat": "64.17", "lon": "-51.74"}
    box = {"boundingbox": ["64.1", "64.2", "-51.8", "-51.6"]}
    played.found = [place | box, {"display_name": "Nuuksio, Finland", "lat": "60.3", "lon": "24.5"}]
    await visit.open(played.url)
    page = visit.page
    await page.get_by_label("Search device, address or place").fill("nuuk")
    group = page.get_by_role("group", name="Places with this name")
    await expect(group.get_by_role("button")).to_have_count(2)
    for number, lat in ((0, 64.15), (1, 60.3)):
        await group.get_by_role("button").nth(number).click()
        await page.wait_for_function(
            "(lat) => !waylog.moving && Math.abs(waylog.map.getCenter().lat - lat) < 0.2", arg=lat
        )
    await page.get_by_label("Search device, address or place").fill("n")
    await expect(group).to_be_hidden()


async def test_the_url_keeps_the_state_of_the_page(
    animated_visit: Visit, played: FakeGateway
) -> None:
    played.fix("demo/phone", *VADUZ)
    played.fix("demo/my bike & trailer", 47.2, 9.6)
    await animated_visit.open(played.url)
    page = animated_visit.page
    await page.get_by_label("Search device, address or place").fill("bike")
    await page.locator("[role=listitem] button", has_text="my bike").click()
    await page.get_by_role("button", name="24 h").click()
    await page.wait_for_function(
        """() => location.hash.includes("track=24h") && location.hash.includes("q=bike")
            && !waylog.moving
            && location.hash.startsWith(`#${waylog.view.view().zoom.toFixed(2)}/`)"""
    )
    # `page.url` is told to the test a moment later.
    url = await page.evaluate("location.href")
    zoom = await page.evaluate("waylog.view.view().zoom")
    other = Visit(await page.context.new_page())
    await other.open(url)
    await expect(other.page.locator("device-panel h2")).to_have_text("my bike & trailer")
    await expect(other.page.get_by_role("button", name="24 h")).to_have_attribute(
        "aria-pressed", "true"
    )
    await expect(other.page.get_by_label("Search device, address or place")).to_have_value("bike")
    assert await other.page.evaluate("waylog.view.view().zoom") == pytest.approx(zoom, abs=0.01)
    await other.page.close()


async def test_a_device_may_have_any_name(visit: Visit, played: FakeGateway) -> None:
    name = "demo/<img src=x onerror=document.title=1>"
    played.fix(name, *VADUZ)
    played.address(name, "<b>Bold</b> street, <script>document.title=2</script>")
    await visit.open(played.url)
    row = visit.page.locator("[role=listitem]")
    await expect(row).to_contain_text("<img src=x onerror=document.title=1>")
    await row.get_by_role("button").click()
    await expect(visit.page.locator("device-panel .headline")).to_have_text("<b>Bold</b> street")
    assert await visit.page.title() == "Waylog · Live"
    assert visit.complaints == []


async def test_track_places_and_accuracy_of_the_selected_device_are_drawn(
    visit: Visit, played: FakeGateway
) -> None:
    fix = played.fix("demo/phone", *VADUZ, accuracy=60)
    played.tracks["demo/phone"] = [
        {"lat": VADUZ[0] - i * 0.001, "lon": VADUZ[1], "time": fix["time"] - i * 60_000, "speed": i}
        for i in range(20)
    ]
    played.places = [
        {"place_id": "1", "lat": VADUZ[0], "lon": VADUZ[1], "label": "home", "name": None}
        | {"visits": 41, "dwell_s": 820_000},
        {"place_id": "2", "lat": 47.13, "lon": 9.51, "label": "work", "name": "Mill"}
        | {"visits": 1, "dwell_s": 5_400},
    ]
    await visit.open(played.url + "#13/47.135/9.52&device=demo/phone")
    page = visit.page
    drawer = page.locator("device-panel")
    await expect(drawer.locator(".places li").first).to_contain_text("Home")
    await expect(drawer.locator(".places li").last).to_contain_text("1 h 30 min · 1 visit")
    await expect(drawer.locator(".track-facts")).to_contain_text("20 positions")
    await expect(drawer.locator(".track-facts")).to_contain_text("2.1 km")
    drawn = """layer => waylog.map.loaded()
        && waylog.map.queryRenderedFeatures({layers: [layer]}).length > 0"""
    for layer in ("track", "accuracy", "places", "place-label"):
        await page.wait_for_function(drawn, arg=layer)


async def test_a_place_shows_its_hours_its_year_and_its_visits(
    visit: Visit, played: FakeGateway
) -> None:
    fix = played.fix("demo/phone", *VADUZ)
    hour, day = 3_600_000, 86_400_000
    # The last four Mondays (UTC, as the browser's clock) from 9:30 to 11, and one visit elsewhere.
    monday = (fix["time"] // day - (fix["time"] // day + 3) % 7) * day
    played.places = [
        {"place_id": "w", "lat": 47.13, "lon": 9.51, "label": "work", "name": None}
        | {"visits": 4, "dwell_s": 21_600},
        {"place_id": "x", "lat": 47.15, "lon": 9.53, "label": None, "name": "Lake"}
        | {"visits": 2, "dwell_s": 7_200},
    ]
    played.visits = [
        {
            "place_id": "w",
            "arrival": monday - week * 7 * day + 9 * hour + hour // 2,
            "departure": monday - week * 7 * day + 11 * hour,
        }
        for week in range(4, 0, -1)
    ]
    played.visits.append({"place_id": None, "arrival": monday - day, "departure": monday})
    await visit.open(played.url + "#13/47.135/9.52&device=demo/phone")
    drawer = visit.page.locator("device-panel")
    work = drawer.locator(".places li", has_text="Work")
    await work.get_by_role("button").click()
    details = work.locator("place-details")
    await expect(details.locator(".summary")).to_have_text(
        "4 visits in a year, 1 h 30 min each on average"
    )
    await expect(details.locator(".visits li")).to_have_count(4)
    used = details.locator(".week-grid .cell:not([style*='--share: 0'])")
    await expect(used).to_have_count(2)
    await expect(used.first).to_have_attribute("title", "Mon 9 AM, 2 h")
    await expect(used.last).to_have_attribute("title", "Mon 10 AM, 4 h")
    await expect(details.get_by_role("img").first).to_have_accessible_name(
        "Most time on Mon at 10 AM"
    )
    await expect(details.get_by_role("img").last).to_have_accessible_name("Days with a visit: 4")
    assert await details.locator(".week-grid .cell").count() == 168
    # Opening another place closes the first.
    lake = drawer.locator(".places li", has_text="Lake")
    await lake.get_by_role("button").click()
    await expect(lake.locator("place-details .summary")).to_have_text("No visit is known yet.")
    await expect(drawer.locator("place-details")).to_have_count(1)
    await lake.get_by_role("button").click()
    await expect(drawer.locator("place-details")).to_have_count(0)
    assert visit.complaints == []


async def test_a_place_of_years_ago_shows_the_year_of_its_last_visit(
    visit: Visit, played: FakeGateway
) -> None:
    last = 1_223_812_800_000  # 12 October 2008
    played.fix("demo/phone", *VADUZ)
    played.places = [
        {"place_id": "w", "lat": 47.13, "lon": 9.51, "label": "work", "name": None}
        | {"visits": 2, "dwell_s": 7_200, "last": last}
    ]
    played.visits = [
        {"place_id": "w", "arrival": last - days * 86_400_000 - 3_600_000}
        | {"departure": last - days * 86_400_000}
        for days in (300, 0)
    ]
    await visit.open(played.url + "#13/47.135/9.52&device=demo/phone")
    work = visit.page.locator("device-panel .places li", has_text="Work")
    await work.get_by_role("button").click()
    await expect(work.locator(".summary")).to_have_text(
        "2 visits in the year up to Oct 12, 2008, 1 h each on average"
    )
    await expect(work.locator(".visits li")).to_have_count(2)


async def test_places_of_one_suburb_are_told_apart(visit: Visit, played: FakeGateway) -> None:
    played.fix("demo/phone", *VADUZ)
    suburb = {"label": None, "name": "Ebenholz", "visits": 2, "dwell_s": 7_200}
    played.places = [
        suburb | {"place_id": "1", "lat": 47.13, "lon": 9.51, "address": "Road 5, 9490 Vaduz"},
        suburb | {"place_id": "2", "lat": 47.14, "lon": 9.51, "address": "Road 9, 9490 Vaduz"},
        suburb | {"place_id": "3", "lat": 47.15, "lon": 9.51, "address": "Ebenholz, Vaduz"},
        suburb | {"place_id": "4", "lat": 47.16, "lon": 9.51, "address": "Ebenholz, Vaduz"},
        suburb | {"place_id": "5", "lat": 47.17, "lon": 9.51, "address": "Ebenholz, Schaan"},
    ]
    await visit.open(played.url + "#13/47.135/9.52&device=demo/phone")
    names = visit.page.locator("device-panel .places .name")
    await expect(names).to_have_text(
        ["Road 5", "Road 9", "Ebenholz", "Ebenholz, 1.1 km N", "Ebenholz, Schaan"]
    )


async def test_no_solid_line_crosses_a_gap_of_the_track(visit: Visit, played: FakeGateway) -> None:
    fix = played.fix("demo/phone", *VADUZ)
    played.tracks["demo/phone"] = [
        {"lat": VADUZ[0] - minutes / 2000, "lon": VADUZ[1], "time": fix["time"] - minutes * 60_000}
        for minutes in (0, 1, 2, 20, 21, 22)
    ]
    await visit.open(played.url + "#13/47.135/9.52&device=demo/phone")
    facts = visit.page.locator("device-panel .track-facts")
    await expect(facts).to_have_text("222 m · 6 positions")  # and not the kilometre between
    for layer, count in (("track", 2), ("gaps", 1)):
        lines = f"waylog.map.getSource('{layer}').serialize().data.features.length"
        await visit.page.wait_for_function(f"() => {lines} === {count}")


async def test_keyboard_alone_is_enough(visit: Visit, played: FakeGateway) -> None:
    for number in range(200):
        played.fix(f"demo/van-{number:03}", 47 + number / 100, 9.5)
    await visit.open(played.url)
    page = visit.page
    await expect(page.locator("html")).to_have_attribute("data-devices", "200")
    # Only the visible rows exist; their attributes say how many there are in total.
    rows = page.locator("[role=listitem]:visible")
    assert await rows.count() < 40
    await expect(rows.first).to_have_attribute("aria-setsize", "200")
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search device, address or place")).to_be_focused()
    await page.keyboard.type("van-1")
    await expect(rows.first).to_have_attribute("aria-setsize", "100")
    await rows.first.get_by_role("button").focus()
    for _ in range(30):
        await page.keyboard.press("ArrowDown")
    focused = page.locator("[role=listitem] button:focus")
    await expect(focused).to_contain_text("van-130")
    await page.keyboard.press("Enter")
    await expect(page.locator("device-panel h2")).to_have_text("van-130")
    await page.keyboard.press("Escape")
    await expect(page.locator("device-panel")).to_be_hidden()


async def test_a_click_on_the_map_selects_the_device_there(
    visit: Visit, played: FakeGateway
) -> None:
    played.fix("demo/phone", *VADUZ)
    await visit.open(played.url + "#8/47.141/9.5209")
    x, y = await at_rest(visit.page, "demo/phone")
    await visit.page.mouse.move(x + 3, y)
    await expect(visit.page.locator("#tooltip")).to_contain_text("phone")
    await visit.page.mouse.click(x + 3, y)
    await expect(visit.page.locator("device-panel h2")).to_have_text("phone")


async def test_a_page_on_which_nothing_happens_asks_for_no_frames(
    visit: Visit, played: FakeGateway
) -> None:
    played.fix("demo/phone", *VADUZ)
    await visit.open(played.url + "#8/47.141/9.5209")
    await at_rest(visit.page, "demo/phone")
    await visit.page.wait_for_function("() => waylog.map.loaded()")
    asked = await visit.page.evaluate(
        """async () => {
            const rates = () => performance.getEntriesByType("resource")
                .filter(({name}) => name.endsWith("/v1/pipeline")).length;
            const ask = requestAnimationFrame;
            let asked = 0;
            globalThis.requestAnimationFrame = (draw) => { asked += 1; return ask(draw); };
            // It goes on meanwhile: every second or two it asks for the rates.
            const until = rates() + 2;
            while (rates() < until) await new Promise((resolve) => setTimeout(resolve, 20));
            return asked;
        }"""
    )
    assert asked < 10
    # What happens is drawn all the same.
    await played.send("fix", played.fix("demo/phone", VADUZ[0], VADUZ[1] + 0.05))
    await visit.page.wait_for_function("x => waylog.positionOf('demo/phone').x > x", arg=510)


async def test_land_and_sea_are_told_apart_also_at_the_antimeridian(
    visit: Visit, played: FakeGateway
) -> None:
    played.ground = True
    played.fix("demo/phone", *VADUZ)
    await visit.open(played.url + "#4/47/9.5")
    land_at = """async ([lon, lat]) => {
        waylog.map.jumpTo({zoom: 4, center: [lon, lat]});
        await new Promise((done) => {
            const look = () => (waylog.map.loaded() ? done() : setTimeout(look, 20));
            setTimeout(look, 20);
        });
        const at = waylog.map.project([lon, lat]);
        return waylog.map.queryRenderedFeatures(at, {layers: ["land"]}).length > 0;
    }"""
    for lon, lat, expected in (
        (0, 66, False),
        (15, 66, True),
        (178.5, 67.5, True),
        (-172, 66.2, True),
        (180, 0, False),
        (28.2, -29.5, True),
    ):
        assert await visit.page.evaluate(land_at, [lon, lat]) is expected, (lon, lat)


async def test_light_and_dark_are_kept(visit: Visit, played: FakeGateway) -> None:
    played.ground = True
    played.fix("demo/phone", *VADUZ)
    await visit.page.emulate_media(color_scheme="dark")
    await visit.open(played.url + "#6/47/9.5")
    root = visit.page.locator("html")
    await expect(root).to_have_attribute("data-theme", "dark")
    await visit.page.get_by_role("button", name="Settings").click()
    await visit.page.get_by_label("Colours").select_option("light")
    await expect(root).to_have_attribute("data-theme", "light")
    await visit.page.wait_for_function(
        "() => waylog.map.getStyle()?.layers[0].paint['background-color'] === '#c3d8e5'"
        " && Boolean(waylog.map.getLayer('devices')) && waylog.map.loaded()"
    )
    await visit.page.reload()
    await expect(root).to_have_attribute("data-theme", "light")


async def test_ten_thousand_devices_move_at_once(
    animated_visit: Visit, played: FakeGateway
) -> None:
    fixes: list[dict[str, Any]] = []
    for number in range(10_000):
        angle = number * 2.399963
        radius = math.sqrt(number) / 12
        lat, lon = 47 + radius * math.cos(angle), 9 + radius * math.sin(angle)
        fixes.append(played.fix(f"fleet/van-{number:05}", lat, lon))
    await animated_visit.open(played.url)
    await expect(animated_visit.page.locator("html")).to_have_attribute("data-devices", "10000")
    before = await at_rest(animated_visit.page, "fleet/van-09999")
    moved = [{**fix, "time": fix["time"] + 1000, "lon": fix["lon"] + 1} for fix in fixes]
    for socket in played.sockets:
        for start in range(0, len(moved), 1000):
            await socket.send_json(
                [{"type": "fix", "cursor": "l0-1", **fix} for fix in moved[start : start + 1000]]
            )
    await animated_visit.page.wait_for_function("() => waylog.updates >= 10000")
    await animated_visit.page.wait_for_function(
        "x => waylog.positionOf('fleet/van-09999').x > x + 10", arg=before[0]
    )
    assert animated_visit.complaints == []
