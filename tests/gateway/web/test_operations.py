"""The view of operations in a real browser, on a real gateway and a real log."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Literal
from urllib.parse import quote, unquote

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from tests.consumers.running import Broker
from tests.gateway.operations.written_log import Log
from tests.gateway.running import Gateway
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import DEADLINE_MS, PIXEL_RATIO, Visit
from waylog.kafka.topics import ERROR
from waylog.messages import Rejected, encode

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PASSWORD = "correct horse battery"
HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
GROUP = f"readers/{HOSTILE}"
HUGE_BYTES = 900_000
#: The tabs, and what is seen on each when it is there.
TABS = {
    "Overview": "Parts of the platform",
    "Brokers": "Controllers",
    "Topics": "platform",
    "Groups": "readers/",
    "Refused": "not a fix",
    "Log lines": "gateway",
}


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    running = Gateway(tmp_path_factory.mktemp("operations-page"), gateway_broker.address)
    running.users.add("ada", admin=True, password=PASSWORD)
    running.users.add("bob", password=PASSWORD)
    yield running
    running.close()


@pytest.fixture(scope="module")
def log(gateway: Gateway) -> Log:
    """Return the log, with a topic of everything, a group, and a refused record."""
    written = Log(gateway.bootstrap_servers)
    written.create("seen", 2)
    written.create("retried")
    written.write(
        "seen",
        {"key": b"plain", "value": b'{"city":"Vaduz"}', "partition": 0, "timestamp": 1_000},
        {"key": HOSTILE.encode(), "value": HOSTILE.encode(), "partition": 1, "timestamp": 2_000,
         "headers": [("kind", HOSTILE.encode())]},
        {"key": b"sealed", "value": b"\xe1\x01" + bytes(30), "partition": 0, "timestamp": 3_000},
        {"key": b"raw", "value": b"\x80\x81\xff", "partition": 0, "timestamp": 4_000},
        {"key": b"huge", "value": b"x" * HUGE_BYTES, "partition": 1, "timestamp": 5_000},
    )  # fmt: skip
    # One more than a partition has: the group has offsets in both.
    written.take(GROUP, "seen", 4).close()
    refused = Rejected(
        reason=f"not a fix {HOSTILE}", source="resolver", time=1_900_000_000_000,
        raw=HOSTILE.encode(), device="ada/phone",
        headers={"topic": "retried", "partition": "0", "offset": "4"},
    )  # fmt: skip
    written.write(ERROR, {"key": b"ada/phone", "value": encode(refused)})
    return written


@asynccontextmanager
async def signed_in(
    browser: Browser, gateway: Gateway, user: str = "ada", **options: Any
) -> AsyncIterator[Visit]:
    """Yield a page of somebody who has signed in."""
    context = await browser.new_context(
        **{
            **{"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"},
            **{"timezone_id": "UTC", "locale": "en-GB"},
        }
        | options,
        device_scale_factor=PIXEL_RATIO,
    )
    context.set_default_timeout(DEADLINE_MS)
    answer = await context.request.post(
        f"{gateway.url}/v1/session", data={"user": user, "token": PASSWORD}
    )
    assert answer.ok, await answer.text()
    yield Visit(await context.new_page())
    await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def visit(browser: Browser, gateway: Gateway, log: Log) -> AsyncIterator[Visit]:
    """Yield the page of an administrator, which all tests of actions share."""
    async with signed_in(browser, gateway) as page:
        await page.open(f"{gateway.url}/#view=operations")
        yield page
        # Refusals that tests ask for are errors of the console, too.
        assert [each for each in page.complaints if "Failed to load" not in each] == []


async def opened(page: Page, path: str) -> None:
    """Open a page of the view as a link does, and wait until it is there."""
    await page.evaluate("at => waylog.app.go({page: 'operations', at})", path)
    await expect(page.locator("#operations-panel")).to_have_attribute("data-shown", unquote(path))


async def at(page: Page, path: str, title: str) -> None:
    """Do the same, for a page with this title."""
    await opened(page, path)
    await expect(page.locator(".operations-title")).to_have_text(title)


async def confirm(page: Page, name: str, action: str) -> None:
    """Type the name into the dialog, and do it; nothing but the name is good."""
    dialog = page.get_by_role("dialog")
    does = dialog.get_by_role("button", name=action, exact=True)
    typed = dialog.get_by_label(re.compile("to confirm$"))
    await typed.fill(f"{name}x")
    await expect(does).to_be_disabled()
    await typed.fill(name)
    await does.click()
    await expect(dialog).to_be_hidden()


async def test_every_page_shows_what_there_is_and_keeps_nobody_out(visit: Visit) -> None:
    page = visit.page
    await expect(page.get_by_role("link", name="Operations")).to_be_visible()
    for tab, seen in TABS.items():
        await page.get_by_role("tab", name=tab, exact=True).click()
        await expect(page.locator("#operations-panel")).to_contain_text(seen)
        await self_check(page, tab)
    await page.get_by_role("tab", name="Topics", exact=True).click()
    await page.get_by_role("button", name="seen", exact=True).click()
    await expect(page.locator("#operations-panel")).to_contain_text("retention.ms")
    await self_check(page, "topic")
    await page.get_by_role("button", name="Records", exact=True).click()
    await expect(page.locator(".operations-records li")).to_have_count(5)
    await self_check(page, "records")
    await page.go_back()
    await expect(page.locator(".operations-title")).to_have_text("seen")


async def test_the_overview_goes_on_by_itself(visit: Visit, log: Log) -> None:
    page = visit.page
    await at(page, "overview", "Overview")
    await expect(page.get_by_role("region", name="Lag by group")).to_contain_text("readers/")
    log.create("flowing")
    rates = page.get_by_role("region", name="Busiest topics")

    async def write() -> None:
        while True:
            await asyncio.to_thread(log.write, "flowing", {"value": b"x"})
            await asyncio.sleep(0.1)

    writing = asyncio.create_task(write())
    try:
        await expect(rates).to_contain_text("flowing")
    finally:
        writing.cancel()


@pytest.mark.parametrize(
    ("width", "theme", "locale"),
    # Without a graphics card so many pixels take half a minute.
    [(360, "dark", "de-DE"), pytest.param(3840, "light", "en-GB", marks=pytest.mark.long)],
)
async def test_on_a_phone_and_on_a_wall(
    browser: Browser,
    gateway: Gateway,
    log: Log,
    width: int,
    theme: Literal["light", "dark"],
    locale: str,
) -> None:
    size: Any = {"width": width, "height": 780 if width < 1000 else 2160}
    async with signed_in(
        browser, gateway, viewport=size, color_scheme=theme, locale=locale
    ) as narrow:
        page = narrow.page
        await narrow.open(f"{gateway.url}/#view=operations")
        for path in (
            *("overview", "brokers", "topics", "topics/seen", "topics/seen/records", "groups"),
            f"groups/{quote(GROUP, safe='')}",
            *("refused", "log"),
        ):
            await opened(page, path)
            panel = page.locator("#operations-panel")
            await expect(panel.locator("section, li, form, table").first).to_be_visible()
            await self_check(page, path)
            # Only tables scroll sideways, in boxes of their own.
            wide = await panel.evaluate("panel => panel.scrollWidth - panel.clientWidth")
            assert wide <= 0, path
        assert narrow.complaints == []


async def test_records_of_others_are_text_and_a_huge_one_is_cut(visit: Visit) -> None:
    page = visit.page
    await at(page, "topics/seen/records", "Records of seen")
    rows = page.locator(".operations-records li")
    await expect(rows).to_have_count(5)
    hostile = rows.filter(has_text="onerror").first
    await hostile.locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(hostile.locator("pre").last).to_have_text(HOSTILE)
    huge = rows.filter(has_text="huge")
    await huge.locator("summary").click()
    await expect(huge).to_contain_text("shortened")
    assert len(await huge.locator("pre").last.inner_text()) == 2048
    async with page.expect_download() as download:
        await huge.get_by_role("link", name="All bytes").click()
    path = await (await download.value).path()
    assert path.stat().st_size == HUGE_BYTES
    sealed = rows.filter(has_text="Sealed")
    await sealed.locator("summary").click()
    await expect(sealed.get_by_role("link", name="All bytes")).to_have_count(0)
    # From an offset, in one partition, with a key.
    await page.get_by_label("Partition").fill("0")
    await page.locator("select[name=from]").select_option("at")
    await page.get_by_label(re.compile("^Offset, ")).fill("1")
    await page.get_by_role("button", name="Read", exact=True).click()
    await expect(rows).to_have_count(2)
    await page.get_by_label("Key contains").fill("raw")
    await page.get_by_role("button", name="Read", exact=True).click()
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("80 81 ff")
    await page.get_by_label("Partition").fill("9")
    await page.get_by_role("button", name="Read", exact=True).click()
    await expect(page.get_by_role("alert").filter(has_text="no partition 9")).to_be_visible()
    assert await page.title() != "taken"


async def test_a_topic_is_made_changed_and_deleted_by_its_name(visit: Visit, log: Log) -> None:
    page = visit.page
    await at(page, "topics", "Topics")
    await page.get_by_role("button", name="New topic").click()
    await page.get_by_label("Name", exact=True).fill("made-in-page")
    await page.get_by_label("Partitions", exact=True).fill("3")
    await page.get_by_label(re.compile("^Settings, a line")).fill("retention.ms=60000")
    await page.get_by_role("button", name="Next", exact=True).click()
    await self_check(page, "confirm")
    await confirm(page, "made-in-page", "Create")
    await expect(page.locator(".operations-title")).to_have_text("made-in-page")
    name = page.get_by_role("rowheader", name="retention.ms", exact=True)
    row = page.get_by_role("row").filter(has=name)
    await expect(row).to_contain_text("60000")
    await expect(row).to_contain_text("This topic")
    await page.get_by_role("button", name="Change: retention.ms").click()
    await page.get_by_role("dialog").get_by_label("Value").fill("nonsense")
    await page.get_by_role("dialog").get_by_label(re.compile("to confirm$")).fill("made-in-page")
    await page.get_by_role("dialog").get_by_role("button", name="Change", exact=True).click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("retention.ms")
    await page.get_by_role("dialog").get_by_label("Value").fill("70000")
    await confirm(page, "made-in-page", "Change")
    await expect(row).to_contain_text("70000")
    await page.get_by_role("button", name="Change: retention.ms").click()
    await page.get_by_label("Back to the broker's default").check()
    await confirm(page, "made-in-page", "Change")
    await expect(row).not_to_contain_text("This topic")
    await page.get_by_role("button", name="Add partitions").click()
    await page.get_by_role("dialog").get_by_label("Partitions", exact=True).fill("5")
    await confirm(page, "made-in-page", "Change")
    await expect(page.get_by_role("heading", name="5 partitions")).to_be_visible()
    await page.get_by_role("button", name="Delete topic").click()
    await confirm(page, "made-in-page", "Delete topic")
    await expect(page.locator(".operations-title")).to_have_text("Topics")
    assert "made-in-page" not in log.admin.list_topics(timeout=60).topics


async def test_a_question_that_is_one_too_many_is_asked_again(visit: Visit) -> None:
    page = visit.page
    refused = 2

    async def busy(route: Route) -> None:
        nonlocal refused
        if refused:
            refused -= 1
            await route.fulfill(status=429, body='{"error": "busy"}', headers={"Retry-After": "1"})
        else:
            await route.continue_()

    # What is asked of one topic is not what is asked of the next.
    await at(page, "topics/location/records", "Records of location")
    await page.route("**/v1/admin/topics/seen/records*", busy)
    await at(page, "topics/seen/records", "Records of seen")
    await expect(page.locator(".operations-records li")).to_have_count(5)
    await page.unroute("**/v1/admin/topics/seen/records*")
    visit.complaints.clear()  # the browser's own lines about the two refusals


async def test_the_platforms_own_topics_are_not_deleted(visit: Visit) -> None:
    page = visit.page
    await at(page, "topics/location", "location")
    await expect(page.get_by_text("The platform relies on this topic")).to_be_visible()
    for name in ("Delete topic", "Add partitions"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
    await at(page, "topics/__consumer_offsets", "__consumer_offsets")
    await expect(page.get_by_text("The log keeps this topic for itself")).to_be_visible()
    await expect(page.get_by_role("button", name=re.compile("^Change: "))).to_have_count(0)


async def test_leaders_are_elected_and_replicas_moved(visit: Visit) -> None:
    page = visit.page
    await at(page, "topics/seen", "seen")
    await page.get_by_role("button", name="Elect leaders").click()
    await confirm(page, "seen", "Elect leaders")
    await expect(page.locator("#announce")).to_have_text("Leaders of seen are elected.")
    await page.get_by_role("button", name="Move replicas").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label(re.compile("^Brokers, with")).fill("77")
    await dialog.get_by_role("button", name="Show what would happen").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("no broker 77")
    # Without having seen what would move, nothing is moved.
    await dialog.get_by_label(re.compile("to confirm$")).fill("seen")
    moves = dialog.get_by_role("button", name="Move replicas", exact=True)
    await expect(moves).to_be_disabled()
    await dialog.get_by_label(re.compile("^Brokers, with")).fill("0")
    await dialog.get_by_role("button", name="Show what would happen").click()
    await expect(dialog).to_contain_text("Nothing has to move.")
    await self_check(page, "move")
    await moves.click()
    await expect(dialog).to_be_hidden()


async def test_offsets_are_set_after_a_rehearsal(visit: Visit) -> None:
    page = visit.page
    await at(page, "groups", "Groups")
    await page.get_by_role("button", name=GROUP).click()
    await expect(page.locator(".operations-title")).to_have_text(GROUP)
    offsets = page.get_by_role("region", name="Offsets")
    await expect(offsets.get_by_role("row")).to_have_count(3)
    await page.get_by_role("button", name="Set offsets").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label(re.compile("to confirm$")).fill(GROUP)
    does = dialog.get_by_role("button", name="Set offsets", exact=True)
    await expect(does).to_be_disabled()
    await dialog.get_by_role("button", name="Show what would happen").click()
    await expect(dialog.get_by_role("region", name="What would be set")).to_be_visible()
    await self_check(page, "offsets")
    await does.click()
    await expect(dialog).to_be_hidden()
    for partition in ("0", "1"):
        row = offsets.get_by_role("row").filter(has=page.get_by_role("cell", name=partition)).first
        await expect(row.get_by_role("cell").nth(1)).to_have_text("0")
    await at(page, "log", "Log lines")
    line = page.locator(".operations-log li").filter(has_text="did set offsets").first
    await expect(line).to_contain_text(HOSTILE)
    await expect(line).to_contain_text("ada did set offsets")
    assert await page.title() != "taken"


async def test_a_refused_record_is_tried_again_once(visit: Visit, gateway: Gateway) -> None:
    page = visit.page
    await at(page, "refused", "Refused")
    row = page.locator(".operations-records li").filter(has_text=f"not a fix {HOSTILE}").first
    await row.locator("summary").click()
    await expect(row).to_contain_text("retried:0:4")
    await expect(row.locator("pre")).to_have_text(HOSTILE)
    again = row.get_by_role("button", name=re.compile("^Try again"))
    await again.click()
    said = page.locator(".operations-body .lead")
    await expect(said).to_contain_text("was sent again, to retried")
    assert gateway.records("retried") == [(b"ada/phone", HOSTILE.encode())]
    await again.click()
    await expect(said).to_contain_text("was left out")
    assert gateway.records("retried") == [(b"ada/phone", HOSTILE.encode())]


async def test_tabs_work_by_the_keyboard(visit: Visit) -> None:
    page = visit.page
    await at(page, "overview", "Overview")
    await page.get_by_role("tab", name="Overview").focus()
    await page.keyboard.press("ArrowLeft")
    await expect(page.get_by_role("tab", name="Log lines")).to_be_focused()
    await expect(page.locator(".operations-title")).to_have_text("Log lines")
    await page.keyboard.press("ArrowRight")
    await expect(page.get_by_role("tab", name="Overview")).to_be_focused()


async def test_a_user_is_shown_nothing_of_it(browser: Browser, gateway: Gateway, log: Log) -> None:
    async with signed_in(browser, gateway, "bob") as visit:
        page = visit.page
        await visit.open(f"{gateway.url}/#view=operations&at=topics/seen")
        await expect(page.get_by_text("This is for administrators.")).to_be_visible()
        await expect(page.get_by_role("link", name="People")).to_be_visible()
        await expect(page.get_by_role("link", name="Operations")).to_have_count(0)
        assert not [url for url in visit.requests if "/v1/admin" in url]
        assert visit.complaints == []
