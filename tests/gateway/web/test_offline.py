"""The page can be installed, and shows what was known last while there is no gateway."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Browser, BrowserContext, Error, Page, Worker, expect

from gateway.web.shell import ShellFolder
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import PAGE, PIXEL_RATIO, FakeGateway

pytestmark = [pytest.mark.browser, pytest.mark.early, pytest.mark.asyncio(loop_scope="module")]

VADUZ = (47.1410, 9.5209)
KEPT = """async () => {
  if (!await caches.has("waylog-kept")) return null;
  const found = await (await caches.open("waylog-kept")).match("/kept/state");
  return found ? found.json() : null;
}"""
TILES = """async () => await caches.has("waylog-kept")
  ? (await (await caches.open("waylog-kept")).keys()).map((each) => new URL(each.url).pathname)
      .filter((path) => path !== "/kept/state")
  : []"""
SHELLS = "async () => (await caches.keys()).filter((name) => name.startsWith('waylog-shell-'))"


class Restarting:
    """A simulated gateway that can be away and come back under the same address."""

    def __init__(self, folder: Path, page: Path = PAGE) -> None:
        self._folder = folder
        self.port = 0
        self.played = FakeGateway(folder / "extract.pmtiles")
        self.played.shell = ShellFolder(page)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen, as before if there was a before."""
        self._runner = web.AppRunner(self.played.application(), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        self.played.url = f"http://127.0.0.1:{self.port}/"

    async def stop(self) -> None:
        """End every connection, and listen no more."""
        await self.played.drop_viewers()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None


@pytest_asyncio.fixture(loop_scope="module")
async def gateway(tmp_path: Path) -> AsyncIterator[Restarting]:
    """Run a gateway with one device."""
    made = Restarting(tmp_path)
    await made.start()
    made.played.fix("demo/phone", *VADUZ, battery=64)
    made.played.address("demo/phone", "Aeulestrasse 5, 9490 Vaduz", road="Aeulestrasse 5")
    yield made
    await made.stop()


@asynccontextmanager
async def browsing(browser: Browser, **options: Any) -> AsyncIterator[BrowserContext]:
    """Open a browser profile of its own."""
    settings: dict[str, Any] = {
        "viewport": {"width": 1000, "height": 640},
        "device_scale_factor": PIXEL_RATIO,
        "reduced_motion": "reduce",
        "timezone_id": "UTC",
    }
    context = await browser.new_context(**settings | options)
    context.set_default_timeout(90_000)
    yield context
    await context.close()


async def opened(page: Page, gateway: Restarting, fragment: str = "#8/47.1/9.5") -> None:
    """Open the page and wait until it is drawn."""
    await page.goto(gateway.played.url + fragment)
    await page.wait_for_selector("html[data-ready=true]")


async def until(page: Page | Worker, script: str, wanted: Callable[[Any], bool]) -> Any:
    """Ask the page until it says what is wanted."""
    end = time.monotonic() + 60
    found: Any = None
    while time.monotonic() < end:
        try:
            if wanted(found := await page.evaluate(script)):
                return found
        except Error as error:
            if "context was destroyed" not in str(error):  # as when the page loads itself anew
                raise
        await asyncio.sleep(0.05)
    raise AssertionError(found)


async def installed(page: Page) -> None:
    """Wait until the worker has the whole shell."""
    await page.evaluate("async () => { await navigator.serviceWorker.ready; }")


async def eve_sees_nothing_of_demo(page: Page) -> None:
    """Wait until the page is eve's; nothing of the user before may be shown, or kept."""
    await until(page, "() => globalThis.waylog?.app.session?.user", lambda user: user == "eve")
    await expect(page.locator("[role=listitem]")).to_have_count(0)
    state = await until(page, KEPT, lambda state: state is None or state["user"] == "eve")
    assert state is None or state["rows"] == []


async def nothing_is_kept(page: Page) -> None:
    """Wait until what was kept is deleted: the page says first that the session is over."""
    await until(page, KEPT, lambda state: state is None)


async def with_kept_state(page: Page, gateway: Restarting) -> None:
    """Open the page, and wait until everything is kept."""
    await opened(page, gateway)
    await installed(page)
    await until(page, KEPT, lambda state: state and state["rows"] and state["rows"][0]["address"])


async def test_what_was_known_last_is_shown_without_a_gateway_and_goes_on_with_it(
    browser: Browser, gateway: Restarting
) -> None:
    gateway.played.ground = True
    began = time.time()
    async with browsing(browser) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        await until(page, TILES, lambda tiles: any("/world/land/" in each for each in tiles))
        notice = page.locator("offline-notice")
        await expect(notice).to_be_hidden()

        # While the page is open.
        await gateway.stop()
        await expect(notice).to_contain_text("Offline since")
        await gateway.start()
        await expect(notice).to_be_hidden()

        # The page is opened while there is no gateway.
        await gateway.stop()
        before = time.time()
        await page.reload()
        await page.wait_for_selector("html[data-ready=true]")
        await expect(notice).to_contain_text("can't be reached")
        since = await page.evaluate("() => waylog.app.absence.heard")
        assert began < since / 1000 < before
        row = page.locator("[role=listitem]", has_text="phone")
        await expect(row).to_contain_text("Vaduz")
        await expect(row).to_contain_text("64 %")
        drawn = "() => waylog.map.querySourceFeatures('land', {sourceLayer: 'land'}).length"
        await until(page, drawn, bool)
        await self_check(page)
        # A view that was not open before is there too.
        await page.get_by_role("link", name="Devices").click()
        await expect(page.locator(".room.devices")).to_be_visible()
        await page.get_by_role("link", name="Live").click()

        # And it goes on by itself.
        gateway.played.rows.clear()
        gateway.played.fix("demo/tablet", *VADUZ)
        await gateway.start()
        await expect(notice).to_be_hidden()
        await expect(page.locator("html")).to_have_attribute("data-connection", "live")
        await expect(page.locator("[role=listitem]", has_text="tablet")).to_be_visible()
        await expect(page.locator("[role=listitem]", has_text="phone")).to_have_count(0)


async def test_a_narrow_german_page_says_that_it_is_offline(
    browser: Browser, gateway: Restarting
) -> None:
    narrow = {"viewport": {"width": 360, "height": 640}, "locale": "de-CH"}
    async with browsing(browser, **narrow) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        manifest = page.locator("link[rel=manifest]")
        await expect(manifest).to_have_attribute("href", "/static/manifest/de.webmanifest")
        await gateway.stop()
        await page.reload()
        notice = page.locator("offline-notice")
        await expect(notice).to_contain_text("Offline seit")
        await expect(notice).to_contain_text("nicht erreichbar")
        box = await notice.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360 - 56  # the buttons of the map stay free
        await self_check(page)


async def test_signing_out_deletes_what_was_kept_also_without_a_gateway(
    browser: Browser, gateway: Restarting
) -> None:
    gateway.played.credentials = "demo:secret"
    signed_out: list[str] = []

    async def sign_out(request: web.Request) -> web.Response:
        signed_out.append(request.path)
        answer = web.Response(status=204)
        answer.del_cookie("session")
        return answer

    def application() -> web.Application:
        app = FakeGateway.application(gateway.played)
        app.router.add_delete("/v1/session", sign_out)
        return app

    await gateway.stop()
    gateway.played.application = application  # type: ignore[method-assign]
    await gateway.start()
    async with browsing(browser) as context:
        cookie = {"name": "session", "value": "good", "url": gateway.played.url}
        await context.add_cookies([cookie])  # type: ignore[list-item]
        page, beside = await context.new_page(), await context.new_page()
        await with_kept_state(page, gateway)
        await opened(beside, gateway)
        await gateway.stop()
        await page.reload()
        await expect(page.locator("offline-notice")).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.locator("[role=listitem]")).to_have_count(0)
        await nothing_is_kept(page)
        await expect(beside.locator("[role=listitem]")).to_have_count(0)
        await nothing_is_kept(beside)
        # The gateway is told as soon as it is there, before anything else.
        await gateway.start()
        await expect(page.get_by_role("dialog")).to_be_visible()
        # Both tabs may tell it, if they find the gateway in the same moment.
        assert set(signed_out) == {"/v1/session"}
        assert await page.evaluate(KEPT) is None
        assert await page.evaluate(TILES) == []


async def test_a_session_that_ends_elsewhere_takes_what_was_kept_with_it(
    browser: Browser, gateway: Restarting
) -> None:
    async with browsing(browser) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        gateway.played.credentials = "demo:secret"  # the session is none any more
        await gateway.stop()
        await page.reload()
        await expect(page.locator("[role=listitem]")).to_have_count(1)
        await gateway.start()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await expect(page.locator("[role=listitem]")).to_have_count(0)
        await nothing_is_kept(page)
        assert await page.evaluate(TILES) == []


async def test_another_user_finds_nothing_of_the_one_before(
    browser: Browser, gateway: Restarting
) -> None:
    async with browsing(browser) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        await gateway.stop()
        await page.reload()
        await expect(page.locator("[role=listitem]")).to_have_count(1)
        gateway.played.session |= {"user": "eve"}
        gateway.played.rows.clear()
        await gateway.start()
        await eve_sees_nothing_of_demo(page)


async def test_another_user_of_the_browser_deletes_what_the_one_before_left(
    browser: Browser, gateway: Restarting
) -> None:
    async with browsing(browser) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        await page.evaluate(
            """async () => {
              const { kept } = waylog.app.absence;
              kept.put("/tiles/of-demo", new Response("a"));
              await kept.last;
            }"""
        )
        assert "/tiles/of-demo" in await page.evaluate(TILES)
        # The session is another's, as after a sign-out that left no time to delete anything.
        gateway.played.session |= {"user": "eve"}
        gateway.played.rows.clear()
        await page.reload()
        state = await until(page, KEPT, lambda state: state and state["user"] == "eve")
        assert state["rows"] == []
        assert "/tiles/of-demo" not in await page.evaluate(TILES)


async def test_another_user_who_signs_in_on_the_open_page_finds_nothing(
    browser: Browser, gateway: Restarting
) -> None:
    async with browsing(browser) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        gateway.played.credentials = "eve:secret"  # the session is over
        await gateway.played.drop_viewers()
        await gateway.stop()
        await gateway.start()
        await expect(page.get_by_role("dialog")).to_be_visible()
        await nothing_is_kept(page)
        gateway.played.session |= {"user": "eve"}
        gateway.played.rows.clear()
        await page.get_by_label("User").fill("eve")
        await page.get_by_label("Token or password").fill("secret")
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await until(page, "() => globalThis.waylog?.app.session?.user", lambda user: user == "eve")
        await expect(page.locator("[role=listitem]")).to_have_count(0)


async def test_another_user_who_signs_in_beside_ends_the_one_before_in_all_tabs(
    browser: Browser, gateway: Restarting
) -> None:
    async with browsing(browser) as context:
        page, beside = await context.new_page(), await context.new_page()
        await with_kept_state(page, gateway)
        # The cookie of the browser is another user's; the stream of the first tab goes on.
        gateway.played.session |= {"user": "eve"}
        gateway.played.rows.clear()
        await opened(beside, gateway)
        await eve_sees_nothing_of_demo(page)


async def test_a_stream_that_comes_back_as_another_user_ends_the_one_before(
    browser: Browser, gateway: Restarting
) -> None:
    async with browsing(browser) as context:
        page = await context.new_page()
        # As a tab that slept while another one signed somebody in.
        await page.add_init_script("delete globalThis.BroadcastChannel")
        await with_kept_state(page, gateway)
        gateway.played.session |= {"user": "eve"}
        gateway.played.rows.clear()
        await gateway.played.drop_viewers()
        await eve_sees_nothing_of_demo(page)


@pytest.mark.parametrize(
    "denial",
    [
        "Object.defineProperty(globalThis, 'localStorage', { get() { throw new Error('no'); } })",
        "Storage.prototype.setItem = () => { throw new Error('full'); }",
    ],
    ids=["off", "full"],
)
async def test_signing_out_asks_the_gateway_where_the_browser_stores_nothing(
    browser: Browser, gateway: Restarting, denial: str
) -> None:
    signed_out: list[str] = []

    async def sign_out(request: web.Request) -> web.Response:
        signed_out.append(request.path)
        gateway.played.credentials = "demo:secret"
        return web.Response(status=204)

    def application() -> web.Application:
        app = FakeGateway.application(gateway.played)
        app.router.add_delete("/v1/session", sign_out)
        return app

    await gateway.stop()
    gateway.played.application = application  # type: ignore[method-assign]
    await gateway.start()
    async with browsing(browser) as context:
        page = await context.new_page()
        await page.add_init_script(denial)
        await opened(page, gateway)
        await expect(page.locator("[role=listitem]")).to_have_count(1)
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert signed_out == ["/v1/session"]


async def test_a_gateway_that_does_not_answer_is_none(
    browser: Browser, gateway: Restarting
) -> None:
    gateway.played.ground = True
    async with browsing(browser) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        await gateway.stop()
        taken: list[asyncio.StreamWriter] = []

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.append(writer)

        silent = await asyncio.start_server(take, "127.0.0.1", gateway.port)
        await page.reload(wait_until="commit")
        await expect(page.locator("offline-notice")).to_be_visible()
        await expect(page.locator("[role=listitem]")).to_have_count(1)
        drawn = """() => globalThis.waylog?.map
          ?.querySourceFeatures('land', {sourceLayer: 'land'}).length"""
        await until(page, drawn, bool)
        silent.close()
        for writer in taken:
            writer.close()
        await gateway.start()
        await expect(page.locator("offline-notice")).to_be_hidden()


async def test_without_a_worker_a_page_of_before_an_upgrade_loads_itself_anew(
    browser: Browser, tmp_path: Path, page_files: None
) -> None:
    folder = tmp_path / "page"
    shutil.copytree(PAGE, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__", "towns"))
    gateway = Restarting(tmp_path, folder)
    await gateway.start()
    gateway.played.fix("demo/phone", *VADUZ)
    try:
        async with browsing(browser, service_workers="block") as context:
            page = await context.new_page()
            await opened(page, gateway)
            first = await page.evaluate("() => document.documentElement.dataset.shell")
            with (folder / "css" / "theme.css").open("a") as file:
                file.write("\n")
            assert gateway.played.shell is not None
            assert gateway.played.shell.current().version != first
            await page.get_by_role("link", name="Places").click()
            await expect(page.locator(".room.places")).to_be_visible()
            second = await page.evaluate("() => document.documentElement.dataset.shell")
            assert second != first
    finally:
        await gateway.stop()


async def test_nothing_else_than_positions_and_the_map_is_kept(
    browser: Browser, gateway: Restarting
) -> None:
    gateway.played.ground = True
    async with browsing(browser) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        for view in ("Diary", "Places", "Devices", "Data", "Operations"):
            await page.get_by_role("link", name=view).click()
            await expect(page.locator(f".room.{view.lower()}")).to_be_visible()
        paths = await page.evaluate(
            """async () => {
              const found = [];
              for (const name of await caches.keys()) {
                for (const each of await (await caches.open(name)).keys()) found.push(each.url);
              }
              return found.map((url) => url.slice(location.origin.length));
            }"""
        )
    known = re.compile(
        r"/|/kept/state|/static/v-[0-9a-f]{16}/.+|/static/world/.+|/tiles(\.json|/.+)"
    )
    assert [path for path in paths if not known.fullmatch(path)] == []


async def test_tiles_and_devices_that_are_kept_are_bounded(
    browser: Browser, gateway: Restarting
) -> None:
    now = int(time.time() * 1000)
    for number in range(600):
        gateway.played.fix(f"other/d{number}", *VADUZ, time=now - number, received=now - number)
    async with browsing(browser) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        fill = """async () => {
          const { kept } = waylog.app.absence;
          const tile = (size) => new Response(new Uint8Array(size));
          for (let n = 0; n < 450; n += 1) kept.put(`/static/world/land/5/0/${n}.mvt`, tile(10));
          kept.put("/static/world/land/5/1/1.mvt", tile(400000));
          await kept.last;
        }"""
        await page.evaluate(fill)
        tiles = await page.evaluate(TILES)
        assert 300 < len(tiles) <= 400
        assert "/static/world/land/5/0/449.mvt" in tiles  # the newest stay
        assert "/static/world/land/5/1/1.mvt" not in tiles
        state = await until(page, KEPT, lambda state: len(state["rows"]) >= 500)
    assert len(state["rows"]) == 500
    assert state["rows"][0]["device"] == "demo/phone"  # one's own come first
    assert state["rows"][1]["device"] == "other/d0"


async def test_what_is_kept_for_too_long_is_deleted(browser: Browser, gateway: Restarting) -> None:
    async with browsing(browser) as context:
        page = await context.new_page()
        await with_kept_state(page, gateway)
        await page.evaluate(
            """async () => {
              const { kept } = waylog.app.absence;
              await kept.write(Date.now() - 31 * 86400e3, waylog.app.absence.rows());
              kept.user = null;  // nothing is written over it
            }"""
        )
        await gateway.stop()
        await page.reload()
        await page.wait_for_selector("html[data-ready=true]")
        await until(page, "async () => await caches.has('waylog-kept')", lambda there: not there)
        await expect(page.locator("[role=listitem]")).to_have_count(0)


# Where a gateway takes longer than six seconds, the page is the one that was kept: by design, and
# what happens on a machine that is busy with other tests.
@pytest.mark.long
async def test_an_upgrade_is_taken_at_the_next_load_and_versions_are_not_mixed(
    browser: Browser, tmp_path: Path, page_files: None
) -> None:
    folder = tmp_path / "page"
    shutil.copytree(PAGE, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__", "towns"))
    gateway = Restarting(tmp_path, folder)
    await gateway.start()
    gateway.played.fix("demo/phone", *VADUZ)
    texts = json.loads((folder / "locales" / "en.json").read_text())
    try:
        async with browsing(browser) as context:
            page = await context.new_page()
            asked: list[str] = []
            await opened(page, gateway)
            await installed(page)
            await page.reload()  # from here on the worker is between page and gateway
            await page.wait_for_selector("html[data-ready=true]")
            first = await page.evaluate("() => document.documentElement.dataset.shell")

            texts |= {"view.devices": "Trackers"}
            (folder / "locales" / "en.json").write_text(json.dumps(texts))
            await opened(await context.new_page(), gateway)  # reads the files once more
            # The page that is open is of the old version to its end.
            await page.get_by_role("link", name="Diary").click()
            await expect(page.locator(".room.diary")).to_be_visible()
            await expect(page.get_by_role("link", name="Devices")).to_be_visible()

            page.on("request", lambda request: asked.append(request.url))
            await page.reload()
            await page.wait_for_selector("html[data-ready=true]")
            await expect(page.get_by_role("link", name="Trackers")).to_be_visible()
            second = await page.evaluate("() => document.documentElement.dataset.shell")
            assert second != first
            assert not [url for url in asked if first in url]
            await until(page, SHELLS, lambda names: f"waylog-shell-{second}" in names)
            worker = "async () => (await navigator.serviceWorker.ready).active.state"
            await until(page, worker, lambda state: state == "activated")

            texts |= {"view.devices": "Things"}
            (folder / "locales" / "en.json").write_text(json.dumps(texts))
            await page.reload()
            await page.wait_for_selector("html[data-ready=true]")
            third = await page.evaluate("() => document.documentElement.dataset.shell")
            assert third != second  # at this load, not at the one after the worker's
            names = await until(page, SHELLS, lambda names: f"waylog-shell-{third}" in names)
            await until(page, SHELLS, lambda names: f"waylog-shell-{first}" not in names)
            assert len(names) <= 3
            await gateway.stop()
            await page.reload()
            await expect(page.get_by_role("link", name="Things")).to_be_visible()
    finally:
        await gateway.stop()


async def test_a_shell_with_a_file_of_another_version_is_not_installed(
    browser: Browser, gateway: Restarting
) -> None:
    @web.middleware
    async def other(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.endswith("/js/speed_chart.js"):
            return web.Response(body=b"// another version", content_type="text/javascript")
        response: web.StreamResponse = await handler(request)
        return response

    def application() -> web.Application:
        app = FakeGateway.application(gateway.played)
        app.middlewares.append(other)
        return app

    await gateway.stop()
    original = gateway.played.application
    gateway.played.application = application  # type: ignore[method-assign]
    await gateway.start()
    async with browsing(browser) as context:
        page = await context.new_page()
        await page.goto(gateway.played.url)
        failed = """async () => {
          try {
            await navigator.serviceWorker.register("/service-worker.js");
          } catch { return true; }
          const made = await navigator.serviceWorker.getRegistration("/");
          if (!made?.installing) return !made?.active;
          return new Promise((resolve) => {
            made.installing.onstatechange = (event) => resolve(event.target.state === "redundant");
          });
        }"""
        assert await page.evaluate(failed)
        await until(page, SHELLS, lambda names: names == [])
    gateway.played.application = original  # type: ignore[method-assign]


@pytest.mark.parametrize("language", ["en", "de"])
async def test_the_worker_shows_pushes_in_the_language_of_the_page(
    browser: Browser, gateway: Restarting, language: str
) -> None:
    async with browsing(browser, locale=language) as context:
        page = await context.new_page()
        await opened(page, gateway)
        await installed(page)
        session = await context.new_cdp_session(page)
        registrations: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def registered(event: dict[str, Any]) -> None:
            for each in event["registrations"]:
                if not each["isDeleted"] and not registrations.done():
                    registrations.set_result(each["registrationId"])

        session.on("ServiceWorker.workerRegistrationUpdated", registered)
        await session.send("ServiceWorker.enable")
        # A browser without a window allows no notifications, so they end where it would take them.
        worker, *_ = context.service_workers or [await context.wait_for_event("serviceworker")]
        await worker.evaluate(
            """() => {
              self.shown = [];
              self.registration.showNotification = async (title, { body }) => { shown.push(body); };
            }"""
        )
        message = {"device": "demo/phone", "type": "enter", "fence": "Home"}
        await session.send(
            "ServiceWorker.deliverPushMessage",
            {
                "origin": gateway.played.url.rstrip("/"),
                "registrationId": await registrations,
                "data": json.dumps(message),
            },
        )
        texts = json.loads((PAGE / "locales" / f"{language}.json").read_text())
        wanted = texts["event.enter"].replace("{device}", "phone").replace("{zone}", "Home")
        assert await until(worker, "() => shown", bool) == [wanted]


@pytest.mark.parametrize("language", ["en", "de"])
async def test_a_browser_can_install_the_page(language: str) -> None:
    manifest = json.loads((PAGE / "manifest" / f"{language}.webmanifest").read_text())
    texts = json.loads((PAGE / "locales" / f"{language}.json").read_text())
    assert (manifest["id"], manifest["start_url"], manifest["scope"]) == ("/", "/", "/")
    assert manifest["display"] == "standalone"
    assert {each["sizes"] for each in manifest["icons"]} >= {"any", "192x192", "512x512"}
    assert "maskable" in {each["purpose"] for each in manifest["icons"]}
    for icon in manifest["icons"]:
        content = (PAGE / icon["src"].removeprefix("/static/")).read_bytes()
        if icon["type"] == "image/png":
            width, height = (int.from_bytes(content[at : at + 4]) for at in (16, 20))
            assert icon["sizes"] == f"{width}x{height}"
    named = {texts[f"view.{each['url'].partition('=')[2]}"] for each in manifest["shortcuts"]}
    assert named == {each["name"] for each in manifest["shortcuts"]}


async def test_the_browser_accepts_the_manifest(browser: Browser, gateway: Restarting) -> None:
    async with browsing(browser) as context:
        page = await context.new_page()
        await opened(page, gateway)
        session = await context.new_cdp_session(page)
        found = await session.send("Page.getAppManifest")
        assert found["errors"] == []
        assert json.loads(found["data"])["name"] == "Waylog"


async def test_a_page_of_the_gateway_from_before_has_no_worker(
    browser: Browser, played: FakeGateway
) -> None:
    async with browsing(browser) as context:
        page = await context.new_page()
        await page.goto(played.url)
        await page.wait_for_selector("html[data-ready=true]")
        found = "async () => Boolean(await navigator.serviceWorker.getRegistration())"
        assert await page.evaluate(found) is False
