"""Friends in a real browser, on a real gateway: asked, shown, changed, and followed on the map."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect
from playwright.async_api import Error as PlaywrightError

from tests.consumers.running import Broker
from tests.gateway.records import address
from tests.gateway.running import Gateway, Login, answered
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import FakeGateway, Visit
from tests.gateway.web.test_people import opened
from tests.gateway.web.test_share_page import known, send
from waylog.observability.telemetry import now_ms

pytestmark = [pytest.mark.early, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

HOUR_MS: Final = 3_600_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("web-friends")
    running = Gateway(folder, gateway_broker.address)
    yield running
    running.close()


def add(gateway: Gateway, name: str) -> Login:
    return Login(name, gateway.users.add(name) or "")


async def sign_in(visit: Visit, gateway: Gateway, user: Login, view: str) -> Page:
    code = gateway.users.sessions.new_code(user.name)
    await visit.open(f"{gateway.url}/#sign-in={code}&view={view}")
    return visit.page


async def test_a_user_asks_and_the_other_one_chooses_what_is_shown(
    browser: Browser, gateway: Gateway
) -> None:
    gina, hugo = add(gateway, "gina"), add(gateway, "hugo")
    await send(gateway, gina, "phone", 47.14, 9.52)
    await known(gateway, gina, "phone")
    async with (
        opened(browser) as one,
        opened(browser, viewport={"width": 390, "height": 844}) as two,
    ):
        asker = Visit(await one.new_page())
        page = await sign_in(asker, gateway, hugo, "people")
        await page.get_by_role("tab", name="Friends").click()
        await page.get_by_label("Ask a user").fill("nobody")
        await page.get_by_role("button", name="Ask to see").click()
        await expect(page.locator("friend-panel").get_by_role("alert")).to_contain_text(
            "There is no user named nobody"
        )
        await page.get_by_label("Ask a user").fill("gina")
        await page.get_by_role("button", name="Ask to see").click()
        await expect(page.locator("friend-panel h3")).to_have_text(["gina"])
        await expect(page.locator("friend-panel")).to_contain_text("asked, not answered yet")
        await self_check(page)

        asked = Visit(await two.new_page())
        phone = await sign_in(asked, gateway, gina, "live")
        people = phone.get_by_role("link", name="People")
        await expect(people).to_contain_text("1 user asks to see you")
        await self_check(phone)
        await people.click()
        await expect(phone.get_by_role("heading", name="Who asks to see you")).to_be_visible()
        # By keyboard: the terms are opened, chosen and sent.
        accept = phone.get_by_role("button", name="Show…: hugo")
        await accept.focus()
        await accept.press("Enter")
        await expect(accept).to_have_attribute("aria-expanded", "true")
        card = phone.locator("friend-panel .cards li", has_text="hugo")
        await expect(card.get_by_label("How exactly")).to_be_focused()
        await card.get_by_label("How exactly").select_option("town")
        await card.get_by_label("Ends").select_option("hour")
        await self_check(phone)
        assert await phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # What is chosen stands in the form, too: it is gone once it was saved.
        form = card.get_by_role("combobox")
        await card.get_by_role("button", name="Show my devices: hugo").press("Enter")
        await expect(form).to_have_count(0)
        await expect(card).to_contain_text("The town alone")
        await expect(people).not_to_contain_text("asks to see you")
        shown = gateway.users.rights.friendships(("gina",))["gina", "hugo"]
        assert shown.precision == "town"
        assert shown.until is not None
        assert 0 < shown.until - now_ms() <= HOUR_MS
        # Another precision: the end stays.
        await phone.get_by_role("button", name="Change: hugo").click()
        await expect(card.get_by_label("How exactly")).to_have_value("town")
        await card.get_by_label("How exactly").select_option("500")
        await card.get_by_role("button", name="Save: hugo").click()
        await expect(form).to_have_count(0)
        await expect(card).to_contain_text("About 500")
        changed = gateway.users.rights.friendships(("gina",))["gina", "hugo"]
        assert (changed.precision, changed.metres, changed.until) == ("metres", 500, shown.until)
        await self_check(phone)
        # On a date, without hugo's request in the way any more.
        await phone.get_by_role("button", name="Change: hugo").click()
        await card.get_by_label("Ends").select_option("day")
        await card.get_by_label("Last day").fill("2099-12-30")
        await card.get_by_role("button", name="Save: hugo").click()
        await expect(form).to_have_count(0)
        await expect(card).to_contain_text("2099")
        assert asked.complaints == []
        await page.reload()
        await page.get_by_role("link", name="People").click()
        await page.get_by_role("tab", name="Friends").click()
        await expect(page.locator("friend-panel")).not_to_contain_text("asked, not answered yet")
        await expect(page.locator("friend-panel")).to_contain_text("About 500")
        assert [each for each in asker.complaints if "404" not in each] == []


async def test_who_asks_is_declined_or_blocked_and_may_be_heard_again(
    visit: Visit, gateway: Gateway
) -> None:
    ida = add(gateway, "ida")
    for name in ("jan", "kim"):
        add(gateway, name)
        gateway.users.friend_requests.ask("ida", name)
    page = await sign_in(visit, gateway, ida, "people")
    await expect(page.get_by_role("link", name="People")).to_contain_text("2 users ask to see you")
    await page.get_by_role("tab", name="Friends").click()
    await page.get_by_role("button", name="Decline: jan").click()
    await expect(page.get_by_role("button", name="Decline: jan")).to_have_count(0)
    await page.get_by_role("button", name="Block: kim", exact=True).click()
    await expect(page.get_by_role("heading", name="Blocked")).to_be_visible()
    await self_check(page)
    assert gateway.users.friend_requests.blocked("ida") == ["kim"]
    await page.get_by_role("button", name="Unblock: kim").click()
    await expect(page.get_by_role("button", name="Decline: kim")).to_be_visible()
    assert visit.complaints == []


async def test_what_is_refused_is_said_beside_what_was_sent_in_the_viewers_language(
    browser: Browser, gateway: Gateway
) -> None:
    rosa, sven = add(gateway, "rosa"), add(gateway, "sven")
    requests = gateway.users.friend_requests
    requests.ask(sven.name, rosa.name)
    requests.decline(sven.name, rosa.name)
    requests.ask(rosa.name, sven.name)
    async with opened(browser, viewport={"width": 390, "height": 844}, locale="de-DE") as context:
        visit = Visit(await context.new_page())
        page = await sign_in(visit, gateway, rosa, "people")
        await page.get_by_role("tab", name="Freunde").click()
        panel = page.locator("friend-panel")
        asking = panel.locator("form", has_text="Um Ansicht bitten")
        alert = panel.get_by_role("alert")

        async def refused(name: str) -> int:
            await asking.get_by_label("Einen Benutzer fragen").fill(name)
            async with page.expect_response("**/request") as answer:
                await asking.get_by_role("button").click()
            return (await answer.value).status

        for name, said in (
            ("niemand", "Hier gibt es keinen Benutzer namens niemand."),
            ("rosa", "Deine eigenen Geräte siehst du immer."),
            ("sven", "sven hat abgelehnt. Du kannst ab "),
        ):
            await refused(name)
            await expect(asking.get_by_role("alert")).to_contain_text(said)
            await expect(alert).to_have_count(1)
            await expect(alert).to_be_in_viewport(ratio=1)
        await self_check(page)
        # In the card that was answered, by the form that it has opened.
        card = panel.locator(".cards li", has_text="sven")
        await card.get_by_role("button", name="Zeigen…").click()
        await page.route("**/v1/friends/sven", answer_with(400, "not as you think", "unheard"))
        await card.get_by_role("button", name="Meine Geräte zeigen").click()
        # What the page has no words for is told as the gateway says it.
        await expect(card.locator("form").get_by_role("alert")).to_have_text("not as you think")
        await expect(alert).to_have_count(1)
        await expect(alert).to_be_in_viewport(ratio=1)
        await page.route("**/v1/friends/sven/decline", lambda route: route.abort())
        await card.get_by_role("button", name="Ablehnen").click()
        await expect(card.get_by_role("alert")).to_contain_text("ist nicht erreichbar")
        await expect(alert).to_have_count(1)
        await expect(alert).to_be_in_viewport(ratio=1)
        await self_check(page)
        # The limit of requests is said to be one of requests.
        for number in range(100):  # a slow machine needs more than the ten of a minute
            if await refused(f"niemand{number}") == 429:
                break
        await expect(asking.get_by_role("alert")).to_contain_text("zu viele Namen in einer Minute")
        await expect(alert).not_to_contain_text("devices a minute")


def answer_with(status: int, error: str, code: str) -> Callable[[Route], Awaitable[None]]:
    """Return what answers a request in the gateway's place."""

    async def answer(route: Route) -> None:
        await route.fulfill(status=status, json={"error": error, "code": code})

    return answer


async def test_who_is_hidden_comes_back_until_the_panel_is_left(
    visit: Visit, gateway: Gateway
) -> None:
    viewer, toni, ute = (add(gateway, name) for name in ("vera", "toni", "ute"))
    rights = gateway.users.rights

    def seen() -> set[str]:
        return {user for user, friend in rights.friendships((viewer.name,)) if friend == "vera"}

    async def only(names: set[str]) -> None:
        await answered(lambda: asyncio.to_thread(seen), lambda found: found == names)

    for friend in (toni, ute):
        rights.befriend(friend.name, viewer.name)
    page = await sign_in(visit, gateway, viewer, "people")
    await page.get_by_role("tab", name="Friends").click()
    hide, undo = (page.get_by_role("button", name=f"{verb}: toni") for verb in ("Hide", "Undo"))
    # By keyboard: the same key hides and undoes.
    await hide.press("Enter")
    await expect(undo).to_be_focused()
    await expect(page.locator("friend-panel li", has_text="toni")).to_contain_text("undo this")
    await self_check(page)
    await page.keyboard.press("Enter")
    await expect(hide).to_be_focused()
    await page.get_by_role("tab", name="Links").click()
    await page.get_by_role("tab", name="Friends").click()
    await expect(hide).to_be_visible()
    assert seen() == {"toni", "ute"}
    # The end of the page.
    await page.get_by_role("button", name="Hide: ute").click()
    await expect(page.get_by_role("button", name="Undo: ute")).to_be_visible()
    assert seen() == {"toni", "ute"}
    await page.goto("about:blank")
    await only({"toni"})
    # Another tab of the view; whoever sees less then gets the page anew.
    page = await sign_in(visit, gateway, viewer, "people")
    await page.get_by_role("tab", name="Friends").click()
    await hide.click()
    await expect(undo).to_be_visible()
    await expect(page.locator("friend-panel li", has_text="ute")).to_have_count(0)
    assert seen() == {"toni"}
    await page.get_by_role("tab", name="Links").click()
    await only(set())
    assert visit.complaints == []


@pytest.mark.parametrize(
    ("width", "theme"), [(390, "dark"), pytest.param(1280, "light", marks=pytest.mark.long)]
)
async def test_friends_are_persons_that_are_followed_on_the_map(
    browser: Browser, gateway: Gateway, width: int, theme: Literal["light", "dark"]
) -> None:
    viewer = add(gateway, f"lea{width}")
    exact, coarse, silent = (add(gateway, f"{name}{width}") for name in ("max", "nora", "olga"))
    rights = gateway.users.rights
    rights.befriend(exact.name, viewer.name)
    rights.befriend(coarse.name, viewer.name, precision="town", until=now_ms() + HOUR_MS)
    rights.befriend(silent.name, viewer.name)
    await send(gateway, exact, "old", 46.0, 8.0, time=now_ms())
    sent = now_ms() + 5
    await send(gateway, exact, "phone", 47.14, 9.52, battery=15, time=sent)
    await send(gateway, coarse, "phone", 47.512345, 9.912345, battery=80, time=sent)
    for user, at in ((exact, (47.14, 9.52)), (coarse, (47.512345, 9.912345))):
        await known(gateway, user, "phone")
        parts = {"road": "Seeweg", "house_number": "3", "town": "Lindau", "country": "Germany"}
        made = address(f"{user.name}/phone", sent, lat=at[0], lon=at[1], address=parts)
        made.display_name = "Seeweg 3, Lindau, Germany"
        gateway.publish(made)
    async with opened(
        browser, viewport={"width": width, "height": 844}, color_scheme=theme, locale="de-DE"
    ) as context:
        visit = Visit(await context.new_page())
        page = await sign_in(visit, gateway, viewer, "live")
        people = page.get_by_role("region", name="Freunde")
        await expect(people.locator(".person .name")).to_have_text(
            [exact.name, coarse.name, silent.name]
        )
        first, second, third = (people.locator(".person").nth(number) for number in range(3))
        await expect(first).to_contain_text("Seeweg 3")
        await expect(first.locator(".battery")).to_contain_text("15")
        await expect(first.locator(".age")).not_to_be_empty()
        await expect(second.locator(".address")).to_have_text("Lindau, Germany")
        await expect(second).to_contain_text("Nur der Ort")
        await expect(second.locator(".battery")).to_be_empty()
        await expect(third).to_contain_text("Noch keine Position")
        await self_check(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # It is said how many there are, and to be seen that there are more than fit.
        await expect(people.get_by_role("heading")).to_have_text("Freunde 3 Personen")
        if width == 390:
            [one, two, half] = await people.locator(".person").evaluate_all(IN_SIGHT)
            assert (one, two) == (1, 1)
            assert 0.25 < half < 0.75
            await expect(people).to_have_attribute("data-more", "")
            await third.focus()
            await answered(lambda: people.locator(".person").evaluate_all(IN_SIGHT), all_of_third)
            await expect(people).not_to_have_attribute("data-more", "")
            await self_check(page)
        # The newest device of a person is followed, by a key as by a finger.
        await first.press("Enter")
        await expect(page.locator("device-panel .name")).to_have_text("phone")
        await expect(page.get_by_role("button", name="Auf der Karte folgen")).to_have_attribute(
            "aria-pressed", "true"
        )
        device = f"{exact.name}/phone"
        await send(gateway, exact, "phone", 47.30, 9.60, time=now_ms() + 10)
        await answered(lambda: page.evaluate(f"waylog.store.get('{device}').lat === 47.3"))

        async def centre() -> list[float]:
            found: list[float] = await page.evaluate("waylog.map.getCenter().toArray()")
            return found

        await answered(centre, lambda found: abs(found[1] - 47.3) < 0.2)
        await self_check(page)
        # Nothing exact of the other one has come to the page.
        everything = await page.evaluate("JSON.stringify(waylog.store.records)")
        assert "47.51234" not in everything
        assert visit.complaints == []


#: How much of each row is to be seen in its list, from 0 to 1.
IN_SIGHT: Final = """rows => rows.map((row) => {
  const {top, bottom, height} = row.getBoundingClientRect();
  const list = row.closest("ul").getBoundingClientRect();
  const end = Math.min(bottom, list.bottom, innerHeight);
  return Math.max(0, (end - Math.max(top, list.top)) / height);
})"""


def all_of_third(shares: list[float]) -> bool:
    return shares[2] > 0.95


KEPT: Final = """async () => {
  const found = await (await caches.open("waylog-kept")).match("/kept/state");
  const shown = JSON.stringify(globalThis.waylog?.store.records ?? null);
  return shown + (found ? await found.text() : "");
}"""


async def test_what_friends_show_no_more_is_nowhere_on_an_open_page(
    browser: Browser, gateway: Gateway
) -> None:
    viewer, friend = add(gateway, "pia"), add(gateway, "quentin")
    rights = gateway.users.rights
    rights.befriend(friend.name, viewer.name, since=0)
    await send(gateway, friend, "phone", 47.512345, 9.912345, time=now_ms() - HOUR_MS)
    await send(gateway, friend, "phone", 47.567891, 9.987654, time=now_ms())
    await known(gateway, friend, "phone")
    async with opened(browser) as context:
        visit = Visit(await context.new_page())
        page = await sign_in(visit, gateway, viewer, "live")

        async def shown() -> str:
            try:
                return str(await page.evaluate(KEPT))
            except PlaywrightError:
                return ""  # it is loaded anew

        await page.get_by_role("region", name="Friends").locator(".person").press("Enter")
        await expect(page.locator("device-panel .name")).to_have_text("phone")
        await answered(shown, lambda found: found.count("47.5678") == 2)
        rights.befriend(friend.name, viewer.name, precision="town")
        await answered(
            shown, lambda found: f"{friend.name}/phone" in found and "47.5678" not in found
        )
        await expect(page.locator("device-panel .name")).to_have_text("phone")
        rights.unfriend(friend.name, viewer.name)
        await answered(shown, lambda found: found.startswith("[]") and friend.name not in found)
        await expect(page.locator("device-panel .name")).to_be_hidden()


async def test_without_friends_there_is_no_list_of_persons(
    visit: Visit, played: FakeGateway
) -> None:
    played.fix("demo/phone", 47.1, 9.5)
    await visit.open(played.url)
    await expect(visit.page.locator("device-list")).to_be_visible()
    await expect(visit.page.locator("person-list")).to_be_hidden()
    assert visit.complaints == []


async def test_what_is_open_stays_when_nothing_has_changed(visit: Visit, gateway: Gateway) -> None:
    viewer, rudi = add(gateway, "wilma"), add(gateway, "rudi")
    gateway.users.rights.befriend(viewer.name, rudi.name)
    page = await sign_in(visit, gateway, viewer, "people")
    await page.get_by_role("tab", name="Friends").click()
    await page.get_by_role("button", name="Change: rudi").click()
    precision = page.locator("friend-panel .cards form").get_by_role("combobox").first
    await precision.select_option("town")
    async with page.expect_response("**/v1/friends/requests"):
        await page.evaluate("waylog.app.tell('known')")
    await page.evaluate("new Promise(requestAnimationFrame)")
    await expect(precision).to_have_value("town")
    await expect(precision).to_be_focused()
    # Somebody else asks: the list is drawn anew, and the button keeps the focus.
    change = page.get_by_role("button", name="Change: rudi")
    await change.focus()
    gateway.users.friend_requests.ask(viewer.name, add(gateway, "irma").name)
    await page.evaluate("waylog.app.tell('known')")
    await expect(page.get_by_role("button", name="Block: irma")).to_be_visible()
    await expect(change).to_be_focused()
    assert visit.complaints == []
