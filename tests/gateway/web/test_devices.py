"""The view of the own devices in a real browser, on the platform and a simulated gateway."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio
import zxingcpp
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from playwright.async_api import Browser, Page, Route, expect

from tests.end_to_end.running import Platform, start_platform
from tests.gateway.running import answered
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import PIXEL_RATIO, FakeGateway, Visit
from tests.http_session import http_session

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

VADUZ = (47.1410, 9.5209)
#: The pixels of the QR code, grey, as a scanner sees them.
PIXELS = """async image => {
  await image.decode();
  const side = 800;
  const canvas = new OffscreenCanvas(side, side);
  const drawing = canvas.getContext("2d");
  drawing.fillStyle = "white";
  drawing.fillRect(0, 0, side, side);
  drawing.drawImage(image, 0, 0, side, side);
  const {data} = drawing.getImageData(0, 0, side, side);
  let text = "";
  for (let at = 0; at < data.length; at += 4) text += String.fromCharCode(data[at]);
  return btoa(text);
}"""


@pytest_asyncio.fixture(loop_scope="module")
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    """Run broker, gateway and resolver, without Spark."""
    started = await asyncio.to_thread(start_platform, tmp_path / "data", "--no-history")
    yield started
    await asyncio.to_thread(started.stop)
    assert started.process.stdout is not None
    started.process.stdout.close()


async def scanned(page: Page) -> str:
    """Return what a scanner reads in the QR code that the page shows."""
    pixels = base64.b64decode(await page.locator("img.qr").evaluate(PIXELS))
    [found] = zxingcpp.read_barcodes(memoryview(pixels).cast("B", (800, 800)))
    text: str = found.text
    return text


async def add_phone(page: Page, name: str, app: str) -> None:
    """Make a token of a device for an app."""
    await page.get_by_role("button", name="Add a phone").click()
    await page.get_by_label("Name of the device").fill(name)
    await page.get_by_role("combobox", name="App").select_option(label=app)
    await page.get_by_role("button", name="Show the QR code or file").click()
    await expect(page.get_by_text("Waiting for its first position …")).to_be_visible()


def publish(settings: dict[str, Any], lat: float, lon: float) -> str:
    """Send a position as OwnTracks with these settings does; return why it could not, or ""."""
    client = paho.Client(
        CallbackAPIVersion.VERSION2, settings["clientId"], protocol=MQTTProtocolVersion.MQTTv311
    )
    client.username_pw_set(settings["username"], settings["password"])
    refusals: list[str] = []
    connected: list[str] = []
    client.on_connect = lambda _c, _u, _f, code, _p: (
        refusals if code.is_failure else connected
    ).append(str(code))
    client.connect(settings["host"], settings["port"])
    client.loop_start()
    try:
        deadline = time.monotonic() + 60
        while not (refusals or connected):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if refusals:
            return refusals[0]
        position = {
            "_type": "location",
            "lat": lat,
            "lon": lon,
            "tst": int(time.time()),
            "batt": 64,
        }
        topic = f"owntracks/{settings['username']}/{settings['deviceId']}"
        client.publish(topic, json.dumps(position), 1).wait_for_publish(60)
        return ""
    finally:
        client.disconnect()
        client.loop_stop()


async def test_a_phone_is_added_heard_of_and_revoked(visit: Visit, platform: Platform) -> None:
    page = visit.page
    platform.add_user("anna")
    link = await asyncio.to_thread(platform.waylog, "link", "anna")
    await visit.open(link.strip())
    await page.get_by_role("dialog").get_by_role("button", name="Add a phone").click()
    await expect(page.get_by_text("You have no device yet")).to_be_visible()

    await add_phone(page, "my phone", "OwnTracks over MQTT (Android, iOS)")
    code = await scanned(page)
    assert await page.get_by_role("link", name="Open in OwnTracks").get_attribute("href") == code
    settings = json.loads(base64.b64decode(parse_qs(urlsplit(code).query)["inline"][0]))
    assert f"{settings['host']}:{settings['port']}" == platform.mqtt
    await expect(page.get_by_text("A phone cannot reach 127.0.0.1")).to_be_visible()
    assert await asyncio.to_thread(publish, settings, *VADUZ) == ""
    received = page.locator("app-setup .received")
    await expect(received).to_contain_text("Received:")
    await expect(received).to_contain_text("Vaduz")
    row = page.locator("[data-device='anna/my_phone']")
    await expect(row).to_contain_text("1 token")
    await expect(row).to_contain_text("64 %")

    # What is refused meanwhile is told with its reason.
    async with http_session(platform.url) as phone:
        headers = {"Authorization": f"Bearer {settings['password']}"}
        body = {"_type": "location", "lat": 91, "lon": 0, "tst": int(time.time())}
        async with phone.post("/owntracks", json=body, headers=headers) as answer:
            assert answer.status == 200
    await expect(page.locator("app-setup .refused")).to_contain_text("1 message refused: ")

    await page.locator("app-setup").get_by_role("button", name="Close").click()
    assert settings["password"] not in await page.content()
    await row.get_by_role("button").first.click()
    await expect(row.locator(".refused-today")).to_contain_text("1 message refused: ")
    async with page.expect_response("**/notices"):
        await row.get_by_role("checkbox", name="is too fast").uncheck()
    kinds = await page.evaluate(
        "fetch('/v1/devices/anna%2Fmy_phone/notices').then((a) => a.json())"
    )
    assert kinds["chosen"] and "speeding" not in kinds["kinds"] and "silence" in kinds["kinds"]
    await row.get_by_role("button", name="Revoke access").click()
    dialog = page.get_by_role("dialog", name="Revoke the access of anna/my_phone?")
    await dialog.get_by_role("button", name="Revoke access").click()
    await expect(row).to_contain_text("No token of its own")

    async def refusal() -> str:
        return await asyncio.to_thread(publish, settings, 47.2, 9.5)

    await answered(refusal)
    assert not any(settings["password"] in url for url in visit.requests)
    assert settings["password"] not in page.url
    assert settings["password"] not in platform.logs()
    assert visit.complaints == []


# --- a simulated gateway -------------------------------------------------------------------------


@pytest.fixture
def owned(played: FakeGateway) -> FakeGateway:
    """Give the user a phone that is heard of, and a tablet that is not."""
    old = int(time.time() * 1000) - 7_200_000
    played.session |= {"admin": False, "oversees": False}
    played.fix("demo/phone", *VADUZ, battery=12, source="owntracks", time=old, received=old)
    played.fix("bob/phone", *VADUZ)
    played.device_tokens = [
        {"device": f"demo/{name}", "tokens": tokens, "newest": 1_780_000_000_000}
        for name, tokens in (("phone", 1), ("tablet", 2))
    ]
    return played


async def test_the_own_devices_are_listed(visit: Visit, owned: FakeGateway) -> None:
    page = visit.page
    await visit.open(f"{owned.url}#view=devices")
    rows = page.locator("[data-device]")
    await expect(rows).to_have_count(2)
    await expect(rows.nth(0)).to_contain_text("2 hours ago")
    await expect(rows.nth(0).locator(".battery.low")).to_have_text("12 %")
    await expect(rows.nth(1)).to_contain_text("not heard of yet")
    await expect(rows.nth(1)).to_contain_text("2 tokens")
    await rows.nth(0).get_by_role("button").click()
    await expect(rows.nth(0)).to_contain_text("owntracks")
    await page.wait_for_function("() => location.hash.includes('device=demo/phone')")
    address = owned.address("demo/phone", "Aeulestrasse 5, 9490 Vaduz, Liechtenstein")
    await owned.send("address", address)
    await expect(rows.nth(0).locator("dl")).to_contain_text("Aeulestrasse 5, 9490 Vaduz")
    await rows.nth(0).get_by_role("button", name="Diary").click()
    await page.wait_for_function("() => location.hash.includes('view=diary')")
    assert visit.complaints == []


@pytest.mark.parametrize(
    ("session", "words"),
    [
        ({"user": None, "admin": True}, "`waylog link USER` prints a link"),
        ({"device": "phone"}, "with the token of one device"),
        ({"user": "anonymous", "open": True}, "without users here"),
    ],
)
async def test_who_can_add_no_phone_is_told_why(
    visit: Visit, owned: FakeGateway, session: dict[str, Any], words: str
) -> None:
    owned.session |= session
    await visit.open(f"{owned.url}#view=devices")
    await expect(visit.page.locator(".devices-body > .none")).to_contain_text(words)
    await expect(visit.page.locator(".devices-body > .add")).to_be_hidden()


async def test_a_file_is_saved_and_the_token_forgotten(visit: Visit, owned: FakeGateway) -> None:
    page = visit.page
    await visit.open(f"{owned.url}#view=devices")
    await add_phone(page, "logger", "GPSLogger (Android)")
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Save waylog-gpslogger.properties").click()
    saved = (await (await download.value).path()).read_text(encoding="utf-8")
    assert f"log_customurl_url={owned.url}gpslogger/wl_made-by" in saved
    await page.get_by_role("link", name="Live").click()
    await page.get_by_role("link", name="Devices").click()
    await expect(page.locator("app-setup")).to_be_hidden()
    assert "wl_made-by" not in await page.content()


async def test_events_beside_those_of_zones_are_chosen(visit: Visit, owned: FakeGateway) -> None:
    page = visit.page
    await visit.open(f"{owned.url}#view=devices&device=demo/phone")
    silence = page.get_by_role("checkbox", name="has been silent for longer than usual")
    await expect(silence).to_be_checked()
    async with page.expect_response("**/notices"):
        await silence.uncheck()
    await expect(page.get_by_role("checkbox", name="is too fast")).to_be_checked()
    for _ in range(2):  # the list is built anew beneath it, and the page is opened again
        owned.fix("demo/phone", *VADUZ, battery=13)
        await owned.send("fix", owned.rows["demo/phone"])
        await expect(page.locator("[data-device='demo/phone']")).to_contain_text("13 %")
        await expect(silence).not_to_be_checked()
        await expect(silence).to_be_enabled()
        assert owned.notices["demo/phone"] == ["enter", "leave", "dwell", "speeding", "meeting"]
        await page.reload()
    # Those of another device are its own; what could not be stored is not shown as if it were.
    await page.locator("[data-device='demo/tablet']").get_by_role("button").first.click()
    await expect(silence).to_be_checked()
    owned.refuse_notices = "too many choices"
    await silence.click()
    await expect(page.get_by_role("alert")).to_contain_text("too many choices")
    await expect(silence).to_be_checked()


async def test_the_course_of_the_battery_is_drawn(visit: Visit, owned: FakeGateway) -> None:
    page = visit.page
    hour = 3_600_000
    now = int(time.time() * 1000)
    owned.fix("demo/phone", *VADUZ, battery=64)
    owned.levels = [
        {"time": now - 9 * 24 * hour, "battery": 1.0},
        *({"time": now - ago * hour, "battery": 40.0 + ago} for ago in range(48, 0, -1)),
    ]
    await visit.open(f"{owned.url}#view=devices&device=demo/phone")
    chart = page.get_by_role("img", name="Battery in the last seven days: 41 % to 88 %")
    await expect(chart).to_be_visible()
    drawn = """canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
        .data.some(value => value > 0)"""
    assert await chart.evaluate(drawn)
    await self_check(page, "battery")
    owned.levels = owned.levels[:2]
    await page.reload()
    await expect(page.locator("[data-device='demo/phone']")).to_contain_text("64 %")
    await expect(chart).to_be_hidden()


async def test_what_is_refused_once_the_code_is_shown_is_news(
    visit: Visit, owned: FakeGateway
) -> None:
    page = visit.page
    refused: list[dict[str, Any]] = [{"reason": "lat is 95", "count": 2}]
    asked, answered_late = asyncio.Event(), asyncio.Event()

    async def receipts(route: Route) -> None:
        told = json.dumps({"refused": refused})
        asked.set()
        await answered_late.wait()
        await route.fulfill(body=told, content_type="application/json")

    await page.route("**/receipts*", receipts)
    await visit.open(f"{owned.url}#view=devices")
    adding = asyncio.create_task(add_phone(page, "logger", "GPSLogger (Android)"))
    await asked.wait()
    code = page.get_by_role("link", name="Save waylog-gpslogger.properties")
    await expect(code).to_be_hidden()
    answered_late.set()
    await adding
    refused[0] = {"reason": "lat is 95", "count": 3}
    await expect(page.locator("app-setup .refused")).to_contain_text("1 message refused: lat is 95")


async def test_without_mqtt_it_is_not_offered(visit: Visit, owned: FakeGateway) -> None:
    owned.entrances = {"mqtt_port": None, "mqtts_port": None}
    await visit.open(f"{owned.url}#view=devices")
    await visit.page.get_by_role("button", name="Add a phone").click()
    apps = await visit.page.get_by_role("combobox", name="App").locator("option").all_inner_texts()
    assert len(apps) == 6
    assert not any("MQTT" in app for app in apps)


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
    browser: Browser, owned: FakeGateway, width: int, theme: Literal["light", "dark"]
) -> None:
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
        await visit.open(f"{owned.url}#view=devices&device=demo/phone")
        await expect(page.locator(".own-details")).to_be_visible()
        await self_check(page)
        await page.get_by_role("button", name="Telefon hinzufügen").focus()
        await page.keyboard.press("Enter")  # all of it without a mouse
        await expect(page.get_by_label("Name des Geräts")).to_be_focused()
        await page.keyboard.type("neu")
        await page.keyboard.press("Enter")
        await expect(
            page.get_by_role("img", name="QR-Code, der demo/neu einrichtet")
        ).to_be_visible()
        await page.locator("app-setup summary").click()
        await self_check(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.get_by_role("button", name="Zugang widerrufen").focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog")).to_be_visible()
        await self_check(page)
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()
        assert visit.complaints == []
    finally:
        await context.close()
