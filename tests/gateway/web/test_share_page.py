"""The page of a share in a real browser, on a real gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Request, expect

from tests.consumers.running import Broker
from tests.gateway.running import Gateway, Login, answered, json_of
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import PIXEL_RATIO, Visit
from waylog.observability.telemetry import now_ms

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

#: No name of a device has a space or a slash.
HOSTILE_DEVICE = '"><svg\u00a0onload=alert(1)>'
HOSTILE_NAME = "<img src=x onerror=alert(1)>"
HOUR_MS = 3_600_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("share-page")
    running = Gateway(folder, gateway_broker.address)
    yield running
    running.close()


async def send(
    gateway: Gateway, user: Login, device: str, lat: float, lon: float, **more: Any
) -> None:
    fix = {"device": device, "lat": lat, "lon": lon, "time": now_ms()} | more
    async with gateway.client(user) as client:
        await json_of(await client.post("/v1/positions", json=fix))


async def share(gateway: Gateway, user: Login, *devices: str, **members: Any) -> dict[str, Any]:
    names = [f"{user.name}/{device}" for device in devices]
    asked = {"devices": names, "until": now_ms() + HOUR_MS} | members
    async with gateway.client(user) as client:
        made: dict[str, Any] = await json_of(await client.post("/v1/shares", json=asked), 201)
        return made


async def known(gateway: Gateway, user: Login, device: str) -> None:
    async with gateway.client(user) as client:

        async def names() -> list[str]:
            rows = await json_of(await client.get("/v1/devices"))
            return [row["device"] for row in rows]

        await answered(names, lambda found: f"{user.name}/{device}" in found)


async def test_a_stranger_follows_live_until_the_share_is_ended(
    visit: Visit, gateway: Gateway
) -> None:
    ada = gateway.user("ada")
    await send(gateway, ada, HOSTILE_DEVICE, 47.14, 9.52)
    await send(gateway, ada, "secret", 10.0, 10.0)
    await known(gateway, ada, HOSTILE_DEVICE)
    made = await share(gateway, ada, HOSTILE_DEVICE, name=HOSTILE_NAME)
    token = made["url"].partition("#")[2]
    asked: list[Request] = []
    page = visit.page
    page.on("request", lambda request: asked.append(request))  # noqa: PLW0108
    await visit.open(made["url"])
    await expect(page.get_by_role("heading", name=HOSTILE_NAME)).to_be_visible()
    await expect(page.locator("#shared")).to_contain_text("Shared by ada")
    await expect(page.locator(".left")).to_contain_text("Ends")
    await expect(page.locator(".shared-device .name")).to_have_text([HOSTILE_DEVICE])
    assert await page.locator("#shared img, #shared svg").count() == 0
    await expect(page.locator("connection-dot")).to_have_attribute("data-state", "live")
    await self_check(page)
    await send(gateway, ada, "secret", 11.0, 11.0)
    await send(gateway, ada, HOSTILE_DEVICE, 47.15, 9.53)
    device = json.dumps(f"ada/{HOSTILE_DEVICE}")
    await answered(lambda: page.evaluate(f"waylog.store.get({device}).lat === 47.15"))
    assert await page.evaluate("waylog.store.size") == 1
    assert await page.evaluate(f"waylog.page.ways.get({device}).length") == 2
    # The token is in no URL, no Referer, no cookie and no storage.
    urls = [each.url for each in asked if not each.url.startswith("blob:")]
    assert all(token not in url.partition("#")[0] for url in urls)

    for each in asked:
        headers = await each.all_headers()
        assert not headers.get("referer")
        assert token not in json.dumps({**headers, "waylog-share": ""})
    assert await page.context.cookies() == []
    assert await page.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]
    async with gateway.client(ada) as client:
        assert (await client.delete(f"/v1/shares/{made['id']}")).status == 204
    await expect(page.get_by_role("heading", name="Nothing is shared here")).to_be_visible()
    await expect(page.locator("#map canvas")).to_have_count(0)
    assert "47.1" not in await page.locator("body").inner_text()
    await self_check(page)
    await page.reload()
    await expect(page.get_by_role("heading", name="Nothing is shared here")).to_be_visible()
    assert all("404" in each for each in visit.complaints), visit.complaints


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1280, "light")])
async def test_a_period_shows_the_way(
    browser: Browser, gateway: Gateway, width: int, theme: Literal["light", "dark"]
) -> None:
    bob = gateway.user(f"bob{width}")
    start = now_ms() - HOUR_MS
    for number in range(20):
        await send(gateway, bob, "phone", 47.1 + number / 500, 9.5, time=start + number * 60_000)
    await send(gateway, bob, "phone", 47.3, 9.5)
    await known(gateway, bob, "phone")
    made = await share(
        gateway, bob, "phone", **{"from": start, "to": start + 30 * 60_000}, precision="exact"
    )
    context = await browser.new_context(
        viewport={"width": width, "height": 800},
        device_scale_factor=PIXEL_RATIO,
        reduced_motion="reduce",
        color_scheme=theme,
        timezone_id="UTC",
        locale="de-DE",
    )
    try:
        visit = Visit(await context.new_page())
        page: Page = visit.page
        await visit.open(made["url"])
        await expect(
            page.get_by_role("heading", name=f"bob{width} teilt einen Standort")
        ).to_be_visible()
        await expect(page.locator(".shared-device .address")).to_have_text("20 Positionen")
        await self_check(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert visit.complaints == []
    finally:
        await context.close()
