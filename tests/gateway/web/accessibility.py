"""Looks for what keeps people out of the page."""

from __future__ import annotations

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page


async def self_check(page: Page, name: str = "") -> None:
    """Let axe look at the page; what it finds is the message of the failure."""
    found = (await Axe().run(page)).response["violations"]
    seen = [(each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found]
    assert seen == [], name
