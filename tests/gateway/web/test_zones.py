"""Places and zones in a real browser: on a simulated gateway, and from a phone to an alert on the
platform.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, Locator, Page, expect

from tests.end_to_end.running import Platform, start_platform
from tests.gateway.running import answered, json_of
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import PIXEL_RATIO, FakeGateway, Visit
from tests.http_session import http_session

pytestmark = [pytest.mark.early, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

MARKUP = "<img src=x onerror=document.title=1>"
DAY_MS = 86_400_000
#: A year of an imported history, long ago.
THEN = 1_230_768_000_000


def place(place_id: str, lat: float, **members: Any) -> dict[str, Any]:
    """Return a favourite place of long ago."""
    return {
        **{"place_id": place_id, "lat": lat, "lon": 9.52, "label": None, "name": None},
        **{"visits": 6, "dwell_s": 76_860, "radius_m": 40.0, "named_by": None},
        **{"address": f"Road {place_id}, Haidian, Beijing", "first": THEN},
        **{"last": THEN + 40 * DAY_MS},
        **members,
    }


@pytest_asyncio.fixture(loop_scope="module")
async def lived(played: FakeGateway) -> FakeGateway:
    """A simulated gateway with a device and its places, all of which have hostile names."""
    played.fix(f"demo/{MARKUP}", 47.141, 9.5209)
    played.fix("demo/phone", 47.142, 9.5209)
    played.places = [
        place("a", 47.141, label="home", name=MARKUP, address=f"{MARKUP}, Vaduz"),
        place("b", 47.145),
        place("c", 47.149),
    ]
    played.visits = [
        {"place_id": "b", "arrival": THEN + day * DAY_MS, "departure": THEN + day * DAY_MS + 3.6e6}
        for day in (10, 20, 40)
    ]
    return played


async def on_map(page: Page, x: float, y: float) -> None:
    """Click a place of the map, in pixels."""
    await page.locator("#map canvas").click(position={"x": x, "y": y})


async def drag(page: Page, handle: Locator, x: float, y: float) -> None:
    """Drag a handle by so many pixels."""
    box = await handle.bounding_box()
    assert box is not None
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    await page.mouse.move(*middle)
    await page.mouse.down()
    await page.mouse.move(middle[0] + x / 2, middle[1] + y / 2)
    await page.mouse.move(middle[0] + x, middle[1] + y)
    await page.mouse.up()


async def test_zones_are_drawn_changed_and_deleted(visit: Visit, lived: FakeGateway) -> None:
    page = visit.page
    await visit.open(f"{lived.url}#view=places&zone=all")
    await page.get_by_role("button", name="New zone").click()
    editor = page.locator("zone-editor")
    await expect(editor.get_by_label("Name")).to_be_focused()
    await page.keyboard.type(MARKUP)
    # A circle is moved by a click on the map, made larger by its edge, and typed.
    await on_map(page, 600, 300)
    before = int(await editor.get_by_label("Radius in metres").input_value())
    await drag(page, page.locator(".zone-handle.edge"), 60, 0)
    larger = int(await editor.get_by_label("Radius in metres").input_value())
    assert larger > before + 20
    # An arrow key moves what has the focus.
    middle = page.get_by_role("button", name="Middle of the circle")
    placed = await middle.bounding_box()
    await middle.focus()
    await page.keyboard.press("ArrowRight")
    moved = await middle.bounding_box()
    assert placed and moved and moved["x"] > placed["x"]
    await editor.get_by_label("stays longer").check()
    await editor.get_by_label("Minutes of a longer stay").fill("5")
    await editor.get_by_label(MARKUP).uncheck()
    lived.refuse_zones = f"no {MARKUP}"
    await editor.get_by_role("button", name="Save").click()
    await expect(editor.get_by_role("alert")).to_have_text(f"no {MARKUP}")
    lived.refuse_zones = ""
    await editor.get_by_role("button", name="Save").click()
    row = page.locator("zone-list .zone")
    await expect(row).to_contain_text(MARKUP)
    [circle] = lived.zones.values()
    assert (circle["name"], circle["radius"]) == (MARKUP, larger)
    assert (circle["alerts"], circle["dwell"]) == (["enter", "leave", "dwell"], 300)
    assert (circle["devices"], circle["channels"]) == (["phone"], None)

    # A polygon: corners by clicks, one moved, one added between two, one by the keyboard.
    await page.get_by_role("button", name="New zone").click()
    await editor.get_by_label("Name").fill("Park")
    await editor.get_by_role("button", name="Polygon").click()
    await expect(page.locator(".zone-handle.corner")).to_have_count(4)
    await on_map(page, 560, 200)
    await expect(page.locator(".zone-handle.corner")).to_have_count(5)
    await drag(page, page.locator(".zone-handle.between").first, 0, 30)
    await expect(page.locator(".zone-handle.corner")).to_have_count(6)
    await editor.get_by_role("button", name="Corner in the middle of the map").press("Enter")
    await expect(page.locator(".zone-handle.corner")).to_have_count(7)
    for _ in range(2):
        await editor.get_by_role("button", name="Take the last corner back").click()
    await editor.get_by_role("button", name="Save").click()
    await expect(row).to_have_count(2)
    ring = lived.zones["zone1"]["geometry"]["coordinates"][0]
    assert (len(ring), ring[0]) == (6, ring[-1])

    # A corridor.
    await page.get_by_role("button", name="New zone").click()
    await editor.get_by_label("Name").fill("Way")
    await editor.get_by_role("button", name="Corridor").click()
    await on_map(page, 900, 200)
    await editor.get_by_label("Width in metres").fill("80")
    await editor.get_by_role("button", name="Save").click()
    await expect(row).to_have_count(3)
    way = lived.zones["zone2"]
    assert (way["width"], len(way["geometry"]["coordinates"])) == (80, 3)

    # A zone is found on the map, changed and deleted; "back" leads out of it.
    await row.filter(has_text="Way").click()
    await expect(editor.get_by_role("heading")).to_have_text("Way")
    await page.go_back()
    await expect(row).to_have_count(3)
    await row.filter(has_text="Way").click()
    await editor.get_by_role("button", name="Delete").click()
    await expect(row).to_have_count(2)
    assert set(lived.zones) == {"zone0", "zone1"}

    # What happens there is told in whatever view, and listed.
    await page.get_by_role("link", name="Live").click()
    name = f"demo/{MARKUP}"
    lived.events.append(
        {"id": "1", "device": name, "kind": "enter", "time": time.time() * 1000, "zone": "zone0"}
        | {"name": MARKUP, "lat": 47.1, "lon": 9.5, "alert": True}
    )
    toast = page.locator("alert-toasts .alert-text")
    await expect(toast).to_contain_text(f"{MARKUP} entered {MARKUP}")
    await toast.click()
    await expect(editor.get_by_role("heading")).to_have_text(MARKUP)
    await expect(page.locator(".places-body > section .zone-events")).to_contain_text("entered")
    assert await page.title() == "Waylog · Places"
    assert await page.locator("img[src=x]").count() == 0
    # Errors that are told in the page are in the console too.
    assert [each for each in visit.complaints if "400" not in each] == []


async def test_places_are_renamed_merged_left_out_and_put_back(
    visit: Visit, lived: FakeGateway
) -> None:
    page = visit.page
    await visit.open(f"{lived.url}#view=places&device=demo/phone")
    rows = page.locator("place-list > .places > li")
    await expect(rows).to_have_count(3)
    first = rows.filter(has_text="Road b")
    await first.get_by_role("button").first.click()
    # Of an imported year: the visits are there.
    details = page.locator("place-details")
    await expect(details).to_contain_text("3 visits in the year up to")
    await expect(details.locator(".visits li")).to_have_count(3)
    await expect(page.locator(".place-box")).to_contain_text("First visit")
    await page.get_by_label("My name for this place").fill(MARKUP)
    await page.get_by_role("button", name="Rename").click()
    await expect(rows.nth(1).locator(".name")).to_have_text(MARKUP)
    # The nearest places are offered; a home is no part of another place.
    options = page.get_by_label("A part of which place").locator("option")
    await expect(options).to_have_count(2)
    await page.get_by_role("button", name="Merge").click()
    await expect(rows).to_have_count(2)
    assert lived.place_edits["b"]["merged_into"] in ("a", "c")
    await rows.filter(has_text="Home").get_by_role("button").first.click()
    await expect(page.get_by_role("button", name="Leave out")).to_be_hidden()
    await rows.filter(has_text="Road c").get_by_role("button").first.click()
    await page.get_by_role("button", name="Leave out").click()
    await expect(rows).to_have_count(1)
    await page.get_by_role("button", name="Split").click()
    await page.get_by_role("button", name="Put back").click()
    await expect(rows).to_have_count(3)
    # A zone around a place, by one click and another one.
    await rows.filter(has_text=MARKUP).get_by_role("button").first.click()
    await page.get_by_role("button", name="Zone around this place").click()
    await expect(page.locator("zone-editor").get_by_label("Name")).to_have_value(MARKUP)
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("zone-list .zone")).to_have_count(1)
    assert lived.zones["zone0"]["geometry"]["coordinates"] == [9.52, 47.145]
    # How one is told.
    await page.get_by_text("How I am told").click()
    await page.get_by_role("checkbox", name="Quiet hours", exact=True).check()
    await page.get_by_text("Add a server").click()
    form = page.locator("alert-settings form")
    await form.get_by_label("Name").fill(MARKUP)
    await form.get_by_label("Address").fill("https://example.org/secret?key=1")
    await form.get_by_role("button", name="Add").click()
    await expect(page.locator(".channels li")).to_contain_text(MARKUP)
    await expect(page.locator(".channels li")).not_to_contain_text("secret")
    assert lived.alert_settings["quiet"] == {
        **{"from": "22:00", "until": "07:00", "time_zone": "UTC"},
    }
    assert await page.locator("img[src=x]").count() == 0
    assert visit.complaints == []


@pytest.mark.parametrize(("width", "theme"), [(1200, "light"), (390, "dark")])
async def test_nobody_is_kept_out(
    browser: Browser, lived: FakeGateway, width: int, theme: Literal["light", "dark"]
) -> None:
    lived.zones = {
        "z": {"id": "z", "name": "Schule", "alerts": ["enter"], "radius": 200}
        | {"geometry": {"type": "Point", "coordinates": [9.52, 47.142]}}
    }
    lived.events = [
        {"id": "1", "device": "demo/phone", "kind": "leave", "time": THEN, "zone": "z"}
        | {"name": "Schule", "lat": 47.1, "lon": 9.5, "alert": True}
    ]
    lived.channels = {"1": {"id": "1", "name": "Haus", "kind": "webhook", "server": "https://x.y"}}
    lived.channels["2"] = {"id": "2", "name": "Post", "kind": "email", "server": "a@example.org"}
    lived.channels["2"] |= {"unconfirmed": True, "error": "x"}
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
        page = visit.page
        await visit.open(f"{lived.url}#view=places&device=demo/phone")
        await page.locator("place-list .places > li button").nth(1).click()
        await expect(page.locator("place-details .visits li")).to_have_count(3)
        await self_check(page, "places")
        await page.get_by_role("button", name="Zonen").click()
        await page.get_by_text("Wie ich es erfahre").click()
        await page.get_by_text("Server oder Postfach hinzufügen").click()
        await expect(page.locator(".channels li")).to_have_count(2)
        await expect(page.get_by_role("textbox", name="Code: Post")).to_be_visible()
        await self_check(page, "zones")
        await page.locator("zone-list .zone").click()
        await expect(page.locator("zone-editor")).to_be_visible()
        lived.events.append(lived.events[0] | {"id": "2", "time": time.time() * 1000})
        await expect(page.locator("alert-toasts .alert-text")).to_be_visible()
        await self_check(page, "editor")
        assert visit.complaints == []
    finally:
        await context.close()


# --- the platform ---------------------------------------------------------------------------------

SECRET = "a secret of at least 24 bytes"


class Receiver:
    """A server that a user has told of events."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.received.append((dict(request.headers), await request.read()))
        return web.Response(status=204)


@pytest_asyncio.fixture(loop_scope="module")
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/hook", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield receiver
    await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="module")
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    """Run broker, gateway, resolver and geofences, as without options, but for Spark."""
    started = await asyncio.to_thread(
        start_platform,
        *(tmp_path / "data", "--no-history"),
        "--gateway-options=--alert-networks 127.0.0.0/8",
    )
    yield started
    await asyncio.to_thread(started.stop)
    assert started.process.stdout is not None
    started.process.stdout.close()


class Clicks:
    """A person, whose clicks are counted, and what is typed."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.clicked: list[str] = []
        self.typed: list[str] = []

    async def click(self, role: Literal["button", "link"], name: str) -> None:
        await self._page.get_by_role(role, name=name, exact=True).click()
        self.clicked.append(name)

    async def type(self, label: str, text: str) -> None:
        await self._page.get_by_label(label, exact=True).filter(visible=True).fill(text)
        self.typed.append(label)


async def test_from_a_new_phone_to_an_alert(
    visit: Visit, platform: Platform, receiver: Receiver
) -> None:
    page = visit.page
    link = (await asyncio.to_thread(platform.waylog, "link", "demo")).split()
    await visit.open(next(each for each in link if each.startswith("http")))
    person = Clicks(page)
    # The page asks for a first device by itself.
    await person.click("button", "Add a phone")
    await person.click("button", "Add a phone")
    await person.type("Name of the device", "phone")
    await person.click("button", "Show the QR code or file")
    await expect(page.locator("img.qr")).to_be_visible()
    await page.get_by_text("Set up by hand").click()  # only the test has to read the token
    token = await page.locator("code", has_text="wl_").first.text_content()
    assert token is not None

    async with http_session(headers={"Authorization": f"Bearer {token.strip()}"}) as phone:

        async def send(lat: float, seconds: float) -> None:
            time_ms = round((began + seconds) * 1000)
            fix = {"lat": lat, "lon": 9.5209, "time": time_ms, "accuracy": 5}
            await json_of(await phone.post(f"{platform.url}/v1/positions", json=fix))

        began = time.time() - 100
        await send(47.1410, 0)
        await expect(page.locator("html")).to_have_attribute("data-devices", "1")
        await person.click("link", "Places")
        await person.click("button", "Zones")
        await person.click("button", "New zone")
        await person.type("Name", "School")
        await person.click("button", "Save")
        # docs/web.md names these clicks.
        await expect(page.locator("zone-list .zone")).to_contain_text("School")
        assert (len(person.clicked), len(person.typed)) == (7, 2), person.clicked

        # Beside that: a server of the user's own.
        made = await api(page, "POST", "/v1/alert-channels", {
            "name": "house", "kind": "webhook", "url": receiver.url, "signing_secret": SECRET,
        })  # fmt: skip
        assert made["server"] == receiver.url.removesuffix("/hook")
        assert "/hook" not in json.dumps(made) and SECRET not in json.dumps(made)

        toasts = page.locator("alert-toasts .alert-text")
        await send(47.1411, 10)
        sent = time.monotonic()
        await expect(toasts.last).to_contain_text("phone entered School")
        told_s = time.monotonic() - sent
        await send(47.2000, 70)
        await expect(toasts.last).to_contain_text("phone left School")

    async def kinds() -> list[str]:
        return [json.loads(body).get("transition") for _, body in receiver.received]

    assert await answered(kinds, lambda found: len(found) > 1) == ["enter", "leave"]
    headers, body = receiver.received[0]
    message = json.loads(body)
    assert (message["fence"], message["device"]) == ("School", "demo/phone")
    assert message["text"] == "phone has entered School"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = base64.b64encode(hmac.digest(SECRET.encode(), signed, hashlib.sha256)).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    await expect(page.locator("zone-list .zone")).to_contain_text("phone left School")
    print(f"from the fix to the line in the page: {told_s:.2f} s")
    # The secrets are in no file as they are.
    for path in sorted(platform.data.glob("users.db*")):
        assert SECRET.encode() not in path.read_bytes(), path
    assert visit.complaints == []


async def api(page: Page, method: str, path: str, body: Any) -> Any:
    """Ask the gateway as the page does, with its session."""
    return await page.evaluate(
        """async ([method, path, body]) => {
          const headers = {"content-type": "application/json"};
          const answer = await fetch(path, {method, headers, body: JSON.stringify(body)});
          return answer.json();
        }""",
        [method, path, body],
    )
