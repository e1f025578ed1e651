"""Accounts and links in a real browser, on a real gateway: as people and as thieves use them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pyotp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, CDPSession, Page, expect

from tests.attacks.test_sessions import JSON
from tests.consumers.running import Broker
from tests.gateway.raw_http import ask
from tests.gateway.running import Gateway, Login, answered
from tests.gateway.web.accessibility import self_check
from tests.gateway.web.conftest import DEADLINE_MS, PIXEL_RATIO, Visit
from tests.gateway.web.test_devices import scanned
from tests.gateway.web.test_share_page import HOSTILE_NAME, known, send

pytestmark = [pytest.mark.early, pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

PASSWORD = "correct horse battery"

#: The guide of who has no device is a dialog too, and comes when it is known that there is none.
_SIGN_IN = "dialog[open].sign-in"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(
    gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("people")
    running = Gateway(folder, gateway_broker.address)
    yield running
    running.close()


def localhost(gateway: Gateway) -> str:
    """Return the URL by which browsers let pages use passkeys without TLS."""
    return f"http://localhost:{gateway.http.rpartition(':')[2]}/"


@asynccontextmanager
async def opened(browser: Browser, **options: Any) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context(
        **{"viewport": {"width": 1000, "height": 800}, "reduced_motion": "reduce"} | options,
        device_scale_factor=PIXEL_RATIO,
    )
    context.set_default_timeout(DEADLINE_MS)
    yield context
    await context.close()


async def fill_in(page: Page, user: str, password: str = PASSWORD) -> None:
    await page.get_by_label("User", exact=True).fill(user)
    await page.get_by_label("Token or password").fill(password)
    await page.get_by_role("button", name="Sign in", exact=True).click()


async def open_account(page: Page) -> None:
    await page.get_by_role("link", name="People").click()
    await page.get_by_role("tab", name="Account").click()
    await expect(page.get_by_role("heading", name="Where you are signed in")).to_be_visible()


async def with_authenticator(page: Page) -> tuple[CDPSession, str]:
    """Give a page an authenticator of the platform that verifies its user."""
    session = await page.context.new_cdp_session(page)
    await session.send("WebAuthn.enable")
    added = await session.send(
        "WebAuthn.addVirtualAuthenticator",
        {
            "options": {
                **{"protocol": "ctap2", "transport": "internal", "hasResidentKey": True},
                **{"hasUserVerification": True, "isUserVerified": True},
                "automaticPresenceSimulation": True,
            }
        },
    )
    return session, added["authenticatorId"]


async def test_a_sign_in_lasts_and_a_second_factor_is_set_up(
    browser: Browser, gateway: Gateway
) -> None:
    gateway.users.add("ada", password=PASSWORD)
    async with opened(browser) as context:
        visit = Visit(await context.new_page())
        page = visit.page
        await visit.open(gateway.url)
        await fill_in(page, "ada", "wrong password")
        await expect(page.get_by_role("alert")).to_contain_text("Unknown user, or wrong password")
        await fill_in(page, "ada")
        await open_account(page)
        await self_check(page)
        # Another tab is signed in, and so is this one after a reload.
        other = await context.new_page()
        await other.goto(gateway.url)
        await expect(other.locator("#sign-out-button")).to_have_attribute("title", "Sign out ada")
        await expect(other.locator(_SIGN_IN)).to_be_hidden()
        await other.close()
        [cookie] = [each for each in await context.cookies() if "known" not in str(each["name"])]
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
        assert float(cookie["expires"]) > time.time() + 29 * 86_400
        await page.get_by_role("button", name="Set up").click()
        await page.get_by_label("Present password").fill("wrong password")
        await page.get_by_role("button", name="Next").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("wrong")
        await page.get_by_label("Present password").fill(PASSWORD)
        await page.get_by_role("button", name="Next").click()
        await expect(page.get_by_role("img", name="QR code that sets up the app")).to_be_visible()
        totp = pyotp.parse_uri(await scanned(page))
        assert isinstance(totp, pyotp.TOTP) and totp.name == "ada"
        await self_check(page)
        # Good for at least half a minute: one step later it is still taken.
        await page.get_by_label("Code", exact=True).fill(totp.now())
        await page.get_by_role("button", name="Turn on").click()
        await expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
        recovery = (await page.locator("dialog.sign-in pre").inner_text()).split()
        assert len(recovery) == 10
        await self_check(page)
        await page.get_by_role("button", name="I have kept them").click()
        await expect(page.get_by_text("On. 10 recovery codes are left.")).to_be_visible()
        await page.locator("#sign-out-button").click()
        await expect(page.locator(_SIGN_IN)).to_be_visible()
        await fill_in(page, "ada")
        code = page.get_by_label("Code of your second factor")
        await expect(code).to_be_focused()
        await code.fill("000 000")
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(page.get_by_role("alert")).to_contain_text("This code is wrong")
        await code.fill(recovery[3])
        await page.get_by_role("button", name="Sign in", exact=True).click()
        await expect(page.locator(_SIGN_IN)).to_be_hidden()
        await open_account(page)
        await expect(page.get_by_text("On. 9 recovery codes are left.")).to_be_visible()
        refused = [each for each in visit.complaints if "401" not in each and "403" not in each]
        assert refused == []


async def test_a_passkey_signs_in_and_no_copy_or_repetition_of_it(
    browser: Browser, gateway: Gateway
) -> None:
    gateway.users.add("bea", password=PASSWORD)
    async with opened(browser) as context:
        visit = Visit(await context.new_page())
        page = visit.page
        session, authenticator = await with_authenticator(page)
        await visit.open(localhost(gateway))
        await fill_in(page, "bea")
        await open_account(page)
        await page.get_by_role("button", name="Add a passkey").click()
        await page.get_by_label("Present password").fill(PASSWORD)
        await page.get_by_label("Name of the passkey").fill(HOSTILE_NAME)
        await page.get_by_role("button", name="Next").click()
        await expect(page.get_by_role("heading", name=HOSTILE_NAME)).to_be_visible()
        await page.locator("#sign-out-button").click()
        sent: list[str] = []
        page.on(
            "request",
            lambda each: (
                sent.append(each.post_data or "")
                if each.method == "POST" and each.url.endswith("/v1/session")
                else None
            ),
        )
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await expect(page.locator("#sign-out-button")).to_have_attribute("title", "Sign out bea")
        # What was sent is not good again, nor for another origin, nor with another challenge.
        [body] = sent
        host = ("Host", localhost(gateway).split("/")[2])
        origin = ("Origin", localhost(gateway).rstrip("/"))
        for headers in ((host, origin), (("Host", gateway.http), ("Origin", gateway.url))):
            answer = await ask(
                gateway.address, "POST", "/v1/session", (JSON, *headers), body.encode()
            )
            assert answer.status == 401, answer
        changed = json.loads(body)
        changed["passkey"]["response"]["userHandle"] = "AAAA"
        changed["passkey"]["response"]["signature"] = "AAAA"
        answer = await ask(
            *(gateway.address, "POST", "/v1/session", (JSON, host, origin)),
            json.dumps(changed).encode(),
        )
        assert answer.status == 401
        # A copy of the passkey, which has signed less often.
        [credential] = (
            await session.send("WebAuthn.getCredentials", {"authenticatorId": authenticator})
        )["credentials"]
        assert credential["signCount"] >= 2
        await session.send(
            "WebAuthn.removeCredential",
            {"authenticatorId": authenticator, "credentialId": credential["credentialId"]},
        )
        await session.send(
            "WebAuthn.addCredential",
            {"authenticatorId": authenticator, "credential": credential | {"signCount": 1}},
        )
        await page.locator("#sign-out-button").click()
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await expect(page.get_by_role("alert")).to_contain_text("does not fit")
        # Removed, it begins nothing more.
        await fill_in(page, "bea")
        await open_account(page)
        await page.get_by_role("button", name=f"Remove: {HOSTILE_NAME}").click()
        await expect(page.get_by_role("heading", name=HOSTILE_NAME)).to_have_count(0)
        await page.locator("#sign-out-button").click()
        await page.get_by_role("button", name="Sign in with a passkey").click()
        await expect(page.get_by_role("alert")).to_contain_text("not known here")


@pytest.mark.parametrize(
    ("width", "theme"), [(390, "dark"), pytest.param(1280, "light", marks=pytest.mark.long)]
)
async def test_a_link_is_made_handed_on_and_ended(
    browser: Browser, gateway: Gateway, width: int, theme: Literal["light", "dark"]
) -> None:
    cleo = Login(f"cleo{width}", gateway.users.add(f"cleo{width}") or "")
    await send(gateway, cleo, "phone", 47.14, 9.52)
    await send(gateway, cleo, "tablet", 47.14, 9.52)
    await known(gateway, cleo, "tablet")
    async with opened(
        browser, viewport={"width": width, "height": 844}, color_scheme=theme, locale="de-DE"
    ) as context:
        visit = Visit(await context.new_page())
        page = visit.page
        code = gateway.users.sessions.new_code(cleo.name)
        await visit.open(f"{gateway.url}/#sign-in={code}&view=people")
        await expect(page.get_by_text("Zurzeit teilst du nichts.")).to_be_visible()
        await page.get_by_role("button", name="Neuer Link").click()
        await page.get_by_label("phone").check()
        await page.get_by_label("Name, wenn du magst").fill(HOSTILE_NAME)
        await page.get_by_label("Genauigkeit").select_option("town")
        await self_check(page)
        await page.get_by_role("button", name="Link erstellen").click()
        await expect(page.get_by_role("img", name="QR-Code des Links")).to_be_visible()
        link = await scanned(page)
        assert link == await page.locator(".copyable code").inner_text()
        assert link.startswith(f"{gateway.url}/share#")
        await expect(page.locator("share-panel .cards h3")).to_have_text([HOSTILE_NAME])
        await expect(page.locator("share-panel .cards p")).to_contain_text("phone · Wo du gerade")
        await self_check(page)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        async with opened(browser) as elsewhere:
            stranger = Visit(await elsewhere.new_page())
            await stranger.open(link)
            await expect(stranger.page.locator(".shared-device .name")).to_have_text(["phone"])
            await expect(stranger.page.locator("#shared")).to_contain_text(
                "the town, not the place"
            )
            await page.get_by_role("button", name=f"{HOSTILE_NAME} beenden").click()
            await expect(stranger.page.locator("h1")).to_have_text("Nothing is shared here")
        await expect(page.locator("share-panel .cards li")).to_have_count(0)
        await page.get_by_role("tab", name="Konto").click()
        await expect(page.get_by_text("Dieser Browser")).to_be_visible()
        await self_check(page)
        # Another session ends here, and stays ended there.
        other = gateway.users.sessions.begin(cleo.name, agent="Mozilla/5.0 (X11) Firefox/150.0")
        await page.get_by_role("tab", name="Links").click()
        await page.get_by_role("tab", name="Konto").click()
        await page.get_by_role("button", name="Abmelden: Firefox").click()
        await expect(page.get_by_role("button", name="Abmelden: Firefox")).to_have_count(0)
        assert gateway.users.credential_of_session(other) is None
        # A password, without one before, from a session that has just begun.
        await page.get_by_role("button", name="Passwort setzen").click()
        await page.get_by_label("Neues Passwort").fill(PASSWORD)
        await page.get_by_role("button", name="Speichern").click()
        await expect(page.get_by_role("button", name="Passwort ändern")).to_be_visible()
        assert visit.complaints == []


async def test_friends_are_chosen_and_nothing_is_left_when_the_view_is_left(
    visit: Visit, gateway: Gateway
) -> None:
    dora = Login("dora", gateway.users.add("dora") or "")
    await send(gateway, dora, "phone", 47.14, 9.52)
    await known(gateway, dora, "phone")
    page = visit.page
    await visit.open(
        f"{gateway.url}/#sign-in={gateway.users.sessions.new_code('dora')}&view=people"
    )
    await page.get_by_role("button", name="New link").click()
    await page.get_by_role("button", name="Make the link").click()
    link = await page.locator(".copyable code").inner_text()
    token = link.partition("#")[2]
    # Friends: one is added by name, and ended; the keyboard goes through the tabs.
    gateway.users.add("emil")
    await page.get_by_role("tab", name="Links").press("ArrowLeft")
    await expect(page.get_by_role("tab", name="Friends")).to_be_focused()
    await page.get_by_label("Name of a user").fill("nobody")
    await page.get_by_role("button", name="Show my devices").click()
    refusal = page.locator("friend-panel form").get_by_role("alert")
    await expect(refusal).to_contain_text("There is no user named nobody")
    await page.get_by_label("Name of a user").fill("emil")
    await page.get_by_role("button", name="Show my devices").click()
    await expect(page.locator("friend-panel h3")).to_have_text(["emil"])
    await self_check(page)
    assert "emil" in gateway.users.rights.friends_of("dora")
    await page.get_by_role("button", name="End: emil").click()
    await expect(page.locator("friend-panel h3")).to_have_count(0)
    assert gateway.users.rights.friends_of("dora") == []
    await page.get_by_role("link", name="Live").click()
    await answered(page.content, lambda shown: token not in shown)
    assert token not in page.url
    assert await answered(
        lambda: page.evaluate("JSON.stringify([localStorage, sessionStorage])"),
        lambda kept: token not in kept,
    )


async def test_an_administrator_invites_somebody_who_signs_in(
    browser: Browser, visit: Visit, gateway: Gateway
) -> None:
    page = visit.page
    code = gateway.users.sessions.new_code(gateway.users.ensure_operator())
    await visit.open(f"{gateway.url}/#sign-in={code}&view=people")
    await page.get_by_label("Name of the new user").fill("fred")
    await page.get_by_role("button", name="Add and invite").click()
    await expect(page.get_by_role("heading", name="Invitation for fred")).to_be_focused()
    await self_check(page)
    link = await page.locator("user-panel .copyable code").inner_text()
    await page.get_by_role("button", name="Change: fred").click()
    await page.get_by_label("Devices, at most").fill("2")
    await self_check(page)
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("user-panel .cards", has_text="at most 2 devices")).to_be_visible()
    async with opened(browser) as elsewhere:
        guest = Visit(await elsewhere.new_page())
        await guest.open(link)
        await expect(guest.page.locator("#sign-out-button")).to_have_attribute(
            "title", "Sign out fred"
        )
        await page.get_by_role("button", name="Change: fred").click()
        await page.get_by_role("button", name="Revoke").click()
        await expect(page.get_by_role("button", name="Change: fred")).to_have_count(0)
        await expect(guest.page.get_by_role("heading", name="Sign in to Waylog")).to_be_visible()
    assert visit.complaints == []
