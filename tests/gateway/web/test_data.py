"""One's data in a real browser, on a real gateway: brought in, taken out, sent on."""

from __future__ import annotations

import base64
import json
import os
import re
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, Locator, Page, expect

from tests.consumers.running import Broker
from tests.gateway.imports.uploading import archive, created, fixes_of, gpx, kept
from tests.gateway.running import Gateway, Login
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import DEADLINE_MS, PIXEL_RATIO, Visit
from tests.gateway.web.test_share_page import HOSTILE_NAME
from waylog.forwarding.keys import FORWARDING_KEY

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PASSWORD = "correct horse battery"
#: Where somebody looks at pictures of the page, if this names a folder.
PICTURES = os.environ.get("WAYLOG_TEST_PICTURES")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    gateway_broker: Broker, key_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FORWARDING_KEY, str(key_file))
        running = Gateway(tmp_path_factory.mktemp("data-view"), gateway_broker.address)
    yield running
    running.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(gateway: Gateway) -> Login:
    login = gateway.user("ada")
    gateway.users.set_password("ada", PASSWORD)
    return login


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visit(browser: Browser, gateway: Gateway, ada: Login) -> AsyncIterator[Visit]:
    """Yield the page of somebody who has signed in."""
    context = await browser.new_context(
        viewport={"width": 1000, "height": 800},
        device_scale_factor=1 if PICTURES else PIXEL_RATIO,
        reduced_motion="reduce",
        timezone_id="UTC",
    )
    context.set_default_timeout(DEADLINE_MS)
    page = Visit(await context.new_page())
    await page.open(gateway.url)
    await page.page.get_by_label("User", exact=True).fill(ada.name)
    await page.page.get_by_label("Token or password").fill(PASSWORD)
    await page.page.get_by_role("button", name="Sign in", exact=True).click()
    await page.page.get_by_role("link", name="Data").click()
    await expect(page.page.get_by_role("tab", name="Import")).to_be_visible()
    yield page
    await context.close()


def card(page: Page, device: str) -> Locator:
    return page.locator("li.import").filter(has=card_heading(page, device))


def card_heading(page: Page, device: str) -> Locator:
    return page.get_by_role("heading", name=device, exact=True)


async def brought_in(page: Page, device: str, count: int) -> None:
    """Wait until an import has ended: numbers are shown while it still reads and stores."""
    done = page.locator("li.import.done").filter(has=card_heading(page, device))
    await expect(done.locator(".state")).to_contain_text(f"{count} positions")


async def pictures(page: Page, name: str) -> None:
    """Let axe look at the page in both themes and at the width of a phone."""
    before = page.viewport_size
    for theme, width, height in (
        *(("light", 1000, 800), ("light", 360, 740)),
        *(("dark", 360, 740), ("dark", 1000, 800)),  # each change of the theme draws the map anew
    ):
        await page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        await page.set_viewport_size({"width": width, "height": height})
        wider = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not wider, (name, theme, width)
        await self_check(page, f"{name} {theme} {width}")
        if PICTURES:
            await page.screenshot(path=f"{PICTURES}/{name}-{theme}-{width}.png")
    await page.emulate_media(color_scheme="light", reduced_motion="reduce")
    if before is not None:
        await page.set_viewport_size(before)


async def test_files_are_dropped_imported_and_undone(visit: Visit, gateway: Gateway) -> None:
    page = visit.page
    content = archive(
        {
            "a/ride.gpx": gpx(300),
            f"b/{HOSTILE_NAME}.csv": b"lat,lon,time\n999,1,2025-05-30T00:00:00Z\n",
            "broken.gpx": b"<gpx><trk",
        }
    )
    await page.evaluate(
        """([name, content]) => {
          const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
          const file = new File([bytes], name);
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(file);
          const panel = document.querySelector("import-panel");
          for (const type of ["dragenter", "dragover", "drop"]) {
            const options = { dataTransfer, bubbles: true, cancelable: true };
            panel.dispatchEvent(new DragEvent(type, options));
          }
        }""",
        [f"{HOSTILE_NAME}.zip", base64.b64encode(content).decode()],
    )
    heading = page.get_by_role("heading", name="1 file,")
    await expect(heading).to_be_focused()
    await expect(page.locator("import-panel form")).to_contain_text(HOSTILE_NAME)
    await pictures(page, "chosen")
    await page.get_by_label("As the device").fill("bike <b>")
    await page.keyboard.press("Enter")
    own = card(page, "bike_<b>")
    await brought_in(page, "bike_<b>", 300)
    await own.locator("summary").click()
    await expect(own).to_contain_text(f"{HOSTILE_NAME}.zip/broken.gpx")
    await expect(own).to_contain_text("1 left out: latitude 999 is out of range")
    await pictures(page, "imported")
    assert len(fixes_of(gateway, "ada/bike_<b>")) == 300

    # Its track is in the diary at once.
    await own.get_by_role("button", name="Diary").click()
    await expect(page).to_have_url(re.compile("view=diary.*day=2025-05-30"))
    await page.go_back()
    await own.get_by_role("button", name="Undo").click()
    await expect(page.get_by_role("dialog")).to_contain_text("erased for good")
    await pictures(page, "undo")
    await page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    await own.get_by_role("button", name="Undo").click()
    await page.get_by_role("dialog").get_by_role("button", name="Undo").click()
    await expect(own).to_have_count(0)
    assert [key for key, _ in gateway.records("erasure") if key == b"ada/bike_<b>"]


async def test_an_upload_goes_on_with_the_same_files(
    visit: Visit, gateway: Gateway, ada: Login
) -> None:
    page = visit.page
    content = gpx(800)
    async with gateway.client(ada) as client:
        found = await created(client, {"long.gpx": content})
        headers = {"Upload-Offset": "0"}
        path = f"/v1/imports/{found['id']}/files/0"
        async with client.patch(path, data=content[:5000], headers=headers) as answer:
            assert answer.status == 200
    await page.reload()
    await page.wait_for_selector("html[data-ready=true]")
    own = card(page, "long")
    await expect(own).to_contain_text("Not all of it has been uploaded")

    async def choose(name: str, data: bytes) -> None:
        async with page.expect_file_chooser() as chooser:
            await own.get_by_role("button", name="Go on").click()
        await (await chooser.value).set_files(
            {"name": name, "mimeType": "application/gpx+xml", "buffer": data}
        )

    await choose("other.gpx", content[:-1])
    await expect(page.get_by_role("alert")).to_contain_text("long.gpx is missing")
    await choose("long.gpx", content)
    await brought_in(page, "long", 800)
    assert len(fixes_of(gateway, "ada/long")) == 800
    assert kept(gateway) == []


async def test_the_keyboard_alone_imports(visit: Visit) -> None:
    page = visit.page
    choose = page.get_by_role("button", name="Choose files")
    async with page.expect_file_chooser() as chooser:
        await choose.press("Enter")
    await (await chooser.value).set_files(
        [
            FilePayload(name=f"{number}.gpx", mimeType="text/xml", buffer=gpx(3, lat=10 + number))
            for number in range(12)
        ]
    )
    await expect(page.get_by_role("heading", name="12 files,")).to_be_focused()
    await expect(page.locator("import-panel form")).to_contain_text("and 4 more files")
    await page.keyboard.press("Tab")
    await expect(page.get_by_label("As the device")).to_be_focused()
    await page.keyboard.press("Enter")
    await brought_in(page, "0", 36)


async def test_positions_are_downloaded(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    await page.get_by_role("tab", name="Export").click()
    panel = page.locator("export-panel")
    await panel.get_by_role("combobox", name="Device").select_option(label="long")
    await panel.get_by_label("From").fill("2025-05-30")
    await panel.get_by_label("Until").fill("2025-05-30")
    await panel.get_by_role("combobox", name="Format").first.select_option("csv")
    await pictures(page, "export")
    async with page.expect_download() as waiting:
        await page.get_by_role("link", name="Download", exact=True).click()
    download = await waiting.value
    assert download.suggested_filename == "ada_long.csv"
    await download.save_as(tmp_path / "long.csv")
    assert len((tmp_path / "long.csv").read_text().splitlines()) == 801
    async with page.expect_download() as waiting:
        await page.get_by_role("link", name="Download everything").click()
    download = await waiting.value
    await download.save_as(tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as everything:
        assert "fixes/long.geojson" in everything.namelist()
        assert json.loads(everything.read("account.json"))["user"] == "ada"


async def test_positions_are_sent_on_and_no_secret_is_shown_again(
    visit: Visit, gateway: Gateway, ada: Login
) -> None:
    page = visit.page
    await page.get_by_role("tab", name="Send on").click()
    await page.get_by_role("button", name="Send my positions also to").click()
    form = page.locator("forwarding-form")
    await form.get_by_label("Server").select_option("traccar")
    await expect(form.get_by_text("Identifiers there")).to_be_visible()
    await form.get_by_label("Server").select_option("mqtt")
    await expect(form.get_by_label("Token")).to_be_hidden()
    await form.get_by_label("Name for you").fill(HOSTILE_NAME)
    await form.get_by_label("Address").fill("mqtts://mqtt.example.org/secret-topic+")
    await form.get_by_label("User", exact=True).fill("me")
    await form.get_by_label("Password").fill("SECRET-PASSWORD")
    await form.get_by_role("checkbox", name="long").check()
    async with gateway.client(ada) as phone:
        position = {"device": "new", "lat": 1, "lon": 2}
        async with phone.post("/v1/positions", json=position) as answer:
            assert answer.status == 200, await answer.text()
    await expect(form.get_by_role("checkbox", name="new")).to_be_visible()
    await expect(form.get_by_role("checkbox", name="long")).to_be_checked()
    await form.get_by_role("button", name="Send from now on").click()
    await expect(page.get_by_role("alert")).to_contain_text("without + and #")
    await form.get_by_label("Address").fill("mqtts://mqtt.example.org/secret-topic")
    await form.get_by_role("button", name="Send from now on").click()
    own = card(page, HOSTILE_NAME)
    await expect(own).to_contain_text("mqtts://mqtt.example.org/...")
    await expect(own).to_contain_text("new")
    shown = await page.content()
    assert "SECRET-PASSWORD" not in shown and "secret-topic" not in shown
    assert await form.get_by_label("Password").input_value() == ""
    await pictures(page, "forwardings")
    await own.get_by_role("button", name="Pause").click()
    await expect(own).to_contain_text("paused")
    await own.get_by_role("button", name="Resume").click()
    await expect(own.get_by_role("button", name="Pause")).to_be_visible()
    await own.get_by_role("button", name="End").click()
    await page.get_by_role("dialog").get_by_role("button", name="End").click()
    await expect(own).to_have_count(0)
    await page.get_by_role("button", name="Send my positions also to").click()
    await pictures(page, "forward-form")


async def test_nothing_complains_and_nothing_ran(visit: Visit) -> None:
    # A refusal is a line of the browser's own.
    assert [line for line in visit.complaints if "the server responded with" not in line] == []
