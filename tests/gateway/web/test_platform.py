"""The live map in a real browser on the real platform: a POST moves a marker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import encode_basic_auth
from playwright.async_api import expect

from tests.end_to_end.running import Platform, start_platform
from tests.gateway.web.conftest import Visit
from tests.http_session import http_session

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(loop_scope="module")
async def platform(tmp_path: Path) -> AsyncIterator[Platform]:
    """Run broker, gateway and resolver, without Spark."""
    started = await asyncio.to_thread(start_platform, tmp_path / "data", "--no-history")
    yield started
    await asyncio.to_thread(started.stop)
    assert started.process.stdout is not None
    started.process.stdout.close()


async def post(platform: Platform, **position: Any) -> None:
    """Send a position as the demo user."""
    async with (
        http_session(
            headers={"Authorization": encode_basic_auth("demo", platform.demo_token)}
        ) as session,
        session.post(f"{platform.url}/v1/positions", json=position) as answer,
    ):
        assert answer.status == 200, await answer.text()


async def test_a_post_moves_the_marker_and_changes_the_address(
    visit: Visit, platform: Platform
) -> None:
    page = visit.page
    await visit.open(platform.link)
    assert "sign-in" not in page.url
    await visit.open(f"{platform.url}/#5/47.2/9.0")
    root = page.locator("html")
    await expect(root).to_have_attribute("data-connection", "live")
    await expect(page.get_by_role("dialog")).to_be_visible()  # nothing has been sent yet

    await post(platform, device="phone", lat=47.1410, lon=9.5209, battery=64)
    await expect(root).to_have_attribute("data-devices", "1")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    row = page.locator("[role=listitem]", has_text="phone")
    await expect(row).to_contain_text("Vaduz")
    await expect(row).to_contain_text("64 %")
    await page.wait_for_function("() => !waylog.moving")
    before = await page.evaluate("waylog.positionOf('demo/phone')")

    await row.get_by_role("button").click()
    await page.wait_for_function("() => !waylog.moving")
    await page.evaluate("() => { waylog.map.jumpTo({center: [9.0, 47.2], zoom: 5}); }")
    await post(platform, device="phone", lat=47.3769, lon=8.5417, battery=63)
    await expect(page.locator("device-panel .headline")).to_contain_text("Z")
    await expect(page.locator("device-panel .address-box")).to_contain_text("Switzerland")
    await page.wait_for_function(
        "x => !waylog.moving && waylog.positionOf('demo/phone').x < x - 20", arg=before["x"]
    )
    await expect(page.locator("device-panel .track-facts")).to_contain_text("2 positions")
    await expect(page.locator("pipeline-strip")).to_be_visible()

    hosts = {urlsplit(url).hostname for url in visit.requests if not url.startswith("blob:")}
    assert hosts == {"127.0.0.1"}
    assert visit.complaints == []
