"""The HTTP interface as a page, on a real gateway: it is read, searched and tried."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.consumers.running import Broker
from tests.gateway.running import Gateway
from tests.gateway.web.conftest import DEADLINE_MS, PIXEL_RATIO, Visit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

#: What axe has against Swagger UI's own markup: no landmark around the title, levels of headings
#: that leave one out, a button in a button.
OF_THE_RENDERER = ("region", "heading-order", "nested-interactive")
PASSWORD = "correct horse battery"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("docs-page")
    running = Gateway(folder, gateway_broker.address)
    running.users.add("ada", password=PASSWORD)
    yield running
    running.close()


async def context_of(browser: Browser, **options: object) -> BrowserContext:
    """Open a browser profile of its own."""
    settings = {"viewport": {"width": 1000, "height": 800}, "reduced_motion": "reduce"}
    made = await browser.new_context(**settings | options, device_scale_factor=PIXEL_RATIO)  # type: ignore[arg-type]
    made.set_default_timeout(DEADLINE_MS)
    return made


async def tried(page: Page, method: str, path: str) -> tuple[str, str]:
    """Try an operation without parameters; return the status and the body that are shown."""
    operation = page.locator(f".opblock-{method}").filter(
        has=page.locator(f'.opblock-summary-path[data-path="{path}"]')
    )
    await operation.locator(".opblock-summary-control").click()
    await operation.get_by_role("button", name="Try it out").click()
    await operation.get_by_role("button", name="Execute").click()
    live = operation.locator(".live-responses-table")
    status = await live.locator(".response-col_status").last.inner_text()
    body = await live.locator(".response-col_description pre").first.inner_text()
    return status.split()[0], body


async def test_operations_are_shown_and_tried_in_the_own_session(
    browser: Browser, gateway: Gateway
) -> None:
    context = await context_of(browser)
    try:
        visit = Visit(await context.new_page())
        page = visit.page
        await visit.open(gateway.url + "/docs")
        await expect(page.get_by_role("heading", name="Waylog gateway")).to_be_visible()
        status, _ = await tried(page, "get", "/v1/session")
        assert status == "401"
        visit.complaints.clear()  # the browser names the 401 that was asked for

        signed_in = await page.evaluate(
            """async (body) => (await fetch("/v1/session", {method: "POST",
              headers: {"content-type": "application/json"}, body})).status""",
            json.dumps({"user": "ada", "token": PASSWORD}),
        )
        assert signed_in == 200
        # What was open is in the fragment: a reload would open it again, sooner or later.
        await visit.open(gateway.url + "/docs")
        status, body = await tried(page, "get", "/v1/session")
        assert status == "200"
        assert '"ada"' in body
        # What changes something needs an Origin of the gateway's own, which the browser sends.
        status, _ = await tried(page, "delete", "/v1/account/sessions")
        assert status == "204"

        hosts = {urlsplit(url).netloc for url in visit.requests if url.startswith("http")}
        assert hosts == {urlsplit(gateway.url).netloc}
        # Swagger UI complains of the underscores in names that it has itself made of the paths.
        others = [each for each in visit.complaints if "escaping deep link" not in each]
        assert others == []  # nothing broke the content security policy
    finally:
        await context.close()


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.long), "dark"])
async def test_the_page_keeps_nobody_out(browser: Browser, gateway: Gateway, scheme: str) -> None:
    narrow = {"width": 360, "height": 640}
    context = await context_of(browser, viewport=narrow, color_scheme=scheme, locale="de-CH")
    try:
        visit = Visit(await context.new_page())
        await visit.open(gateway.url + "/docs")
        page = visit.page
        await expect(page.get_by_text("führt es wirklich aus")).to_be_visible()
        assert await page.title() == "Waylog · HTTP-Schnittstelle"
        rules = {name: {"enabled": False} for name in OF_THE_RENDERER}
        found = (await Axe().run(page, options={"rules": rules})).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= 360
        ground = await page.evaluate(
            "() => getComputedStyle(document.documentElement).backgroundColor.match(/[0-9]+/g)"
        )
        assert (int(ground[0]) > 128) == (scheme == "light")
        assert visit.complaints == []
    finally:
        await context.close()


async def test_a_link_cannot_lead_the_page_to_another_document(
    browser: Browser, gateway: Gateway
) -> None:
    context = await context_of(browser)
    try:
        visit = Visit(await context.new_page())
        await visit.open(f"{gateway.url}/docs?url=/healthz&configUrl=/healthz")
        await expect(visit.page.get_by_role("heading", name="Waylog gateway")).to_be_visible()
        assert not [url for url in visit.requests if urlsplit(url).path == "/healthz"]
    finally:
        await context.close()


async def test_the_settings_lead_to_it(browser: Browser, gateway: Gateway) -> None:
    context = await context_of(browser)
    try:
        page = await context.new_page()
        await page.goto(gateway.url)
        await page.get_by_label("User", exact=True).fill("ada")
        await page.get_by_label("Token or password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await page.keyboard.press("Escape")  # the guide of who has no device
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_role("link", name="HTTP interface").click()
        await page.wait_for_selector("html[data-ready=true]")
        await expect(page.get_by_role("heading", name="Waylog gateway")).to_be_visible()
    finally:
        await context.close()
