"""A mailbox is added on the page, in a real browser, on a real gateway with a real mail server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from tests.consumers.running import Broker
from tests.gateway.alerts.mail_server import Mailboxes, mail_server
from tests.gateway.running import Gateway
from tests.gateway.web.conftest import DEADLINE_MS, PIXEL_RATIO, Visit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def boxes() -> Iterator[Mailboxes]:
    with mail_server() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visit(
    browser: Browser,
    gateway_broker: Broker,
    boxes: Mailboxes,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Visit]:
    """Yield the page of somebody who speaks German and has signed in."""
    gateway = Gateway(
        tmp_path_factory.mktemp("mailbox"),
        gateway_broker.address,
        *("--smtp-url", f"smtp://127.0.0.1:{boxes.port}", "--smtp-from", "waylog@example.org"),
    )
    gateway.user("mia")
    gateway.users.set_password("mia", PASSWORD)
    context = await browser.new_context(
        viewport={"width": 1000, "height": 800},
        device_scale_factor=PIXEL_RATIO,
        reduced_motion="reduce",
        locale="de-DE",
    )
    context.set_default_timeout(DEADLINE_MS)
    page = Visit(await context.new_page())
    await page.open(f"{gateway.url}/#view=places")
    await page.page.get_by_label("Benutzer", exact=True).fill("mia")
    await page.page.get_by_label("Token oder Passwort").fill(PASSWORD)
    await page.page.get_by_role("button", name="Anmelden", exact=True).click()
    yield page
    await context.close()
    gateway.close()


async def test_a_mailbox_is_added_confirmed_and_told(visit: Visit, boxes: Mailboxes) -> None:
    page = visit.page
    await page.get_by_role("button", name="Zonen").click()
    await page.get_by_text("Wie ich es erfahre").click()
    await page.get_by_text("Server oder Postfach hinzufügen").click()
    form = page.locator("alert-settings form.zone-form")
    await form.get_by_label("Art").select_option("ntfy")
    await expect(form.get_by_label("Token (darf leer sein)")).to_be_visible()
    await form.get_by_label("Art").select_option("email")
    await expect(form.get_by_label("Token (darf leer sein)")).to_be_hidden()
    await form.get_by_label("E-Mail-Adresse").fill("mia@example.org")
    await form.get_by_role("button", name="Hinzufügen").click()
    row = page.locator(".channels li")
    await expect(row).to_contain_text("E-Mail · mia@example.org")
    await expect(row.get_by_role("button", name="Testen")).to_have_count(0)
    [message] = await asyncio.to_thread(boxes.to, "mia@example.org")
    assert message["Subject"].startswith("Ihr Code ist ")

    await row.get_by_label("Code: E-Mail").fill("0")
    await row.get_by_role("button", name="Bestätigen").click()
    await expect(page.get_by_role("alert")).to_contain_text("not the code")

    # The mail may be quicker than the page's answer: what is typed meanwhile stays.
    answered = asyncio.Event()

    async def late(route: Route) -> None:
        answer = await route.fetch()
        await answered.wait()
        await route.fulfill(response=answer)

    await page.route("**/v1/alert-channels/*/confirmation", late, times=1)
    await row.get_by_role("button", name="Neuen Code schicken").click()
    code = await asyncio.to_thread(boxes.code, "mia@example.org", 2)
    entry = row.get_by_label("Code: E-Mail")
    await entry.fill(code)
    async with page.expect_response("**/v1/alert-channels/*/confirmation"):
        answered.set()
    await expect(entry).to_have_value(code)
    await expect(entry).to_be_focused()
    await row.get_by_role("button", name="Bestätigen").click()
    await row.get_by_role("button", name="Testen").click()
    await expect(row).to_contain_text("Zuletzt gemeldet")
    [*_, told] = await asyncio.to_thread(boxes.to, "mia@example.org", 3)
    assert told["Subject"] == "Ein Test: Hinweise kommen hier an"
