"""Passwords, second factors and sessions of browsers, against a gateway."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pyotp
import pytest

from gateway.factors.second_factor import STEP_S
from gateway.users.browser_sessions import session_hash
from tests.attacks.test_nobody import basic
from tests.attacks.test_sessions import JSON, cookie_of, host, origin, sign_in
from tests.consumers.running import Broker
from tests.gateway.raw_http import Answer, Headers, ask
from tests.gateway.running import Gateway, Login

PASSWORD = "correct horse battery"
AGENT = ("User-Agent", "Firefox <b>on</b> a phone")
_names = iter(f"eve{number}" for number in range(100))


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    running = Gateway(tmp_path_factory.mktemp("sign-in"), gateway_broker.address)
    yield running
    running.close()


@pytest.fixture
def eve(gateway: Gateway) -> Login:
    """A user with a password."""
    login = Login(next(_names), PASSWORD)
    gateway.users.add(login.name, password=login.token)
    return login


class Signed:
    """A browser that is signed in."""

    def __init__(self, gateway: Gateway, cookie: tuple[str, str]) -> None:
        self.gateway = gateway
        self.headers: Headers = (host(gateway), origin(gateway), cookie)

    async def ask(self, method: str, path: str, **body: Any) -> Answer:
        headers = (*self.headers, JSON)
        encoded = json.dumps(body).encode() if method != "GET" else None
        return await ask(self.gateway.address, method, path, headers, encoded)

    async def account(self) -> dict[str, Any]:
        answer = await self.ask("GET", "/v1/account")
        assert answer.status == 200, answer
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def grow_old(self) -> None:
        """Let the session have begun an hour ago."""
        hashed = session_hash(self.headers[2][1].partition("=")[2])  # type: ignore[arg-type]
        with self.gateway.users.sessions._lock:
            self.gateway.users.sessions._connection.execute(
                "UPDATE sessions SET created = created - 3600000 WHERE hash = ?", (hashed,)
            )


async def signed_in(gateway: Gateway, login: Login, **more: str) -> Signed:
    answer = await sign_in(
        gateway, origin(gateway), AGENT, user=login.name, token=login.token, **more
    )
    return Signed(gateway, cookie_of(answer))


async def turn_on(browser: Signed) -> tuple[pyotp.TOTP, list[str]]:
    """Turn the second factor on; return what makes codes, and the recovery codes."""
    answer = await browser.ask("POST", "/v1/account/second-factor", password=PASSWORD)
    assert answer.status == 201, answer
    found = json.loads(answer.body)
    assert found["uri"].startswith("otpauth://totp/") and "<svg" in found["qr_code"]
    totp = pyotp.TOTP(found["secret"])
    assert (await browser.ask("PUT", "/v1/account/second-factor", code="000")).status == 400
    answer = await browser.ask("PUT", "/v1/account/second-factor", code=totp.now())
    assert answer.status == 200, answer
    return totp, json.loads(answer.body)["recovery_codes"]


def unused(totp: pyotp.TOTP) -> str:
    """Return a code that is good for a minute: that of the next step, since this one's is used."""
    return totp.at(int(time.time()) + STEP_S)


async def test_a_browser_keeps_its_session_and_lists_and_ends_others(
    gateway: Gateway, eve: Login
) -> None:
    here, there = await signed_in(gateway, eve), await signed_in(gateway, eve)
    answer = await sign_in(gateway, origin(gateway), user=eve.name, token=eve.token)
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "Max-Age=2592000" in cookie
    found = await here.account()
    assert found["user"] == eve.name and found["password"] is True
    assert [each["current"] for each in found["sessions"]].count(True) == 1
    assert {each["agent"] for each in found["sessions"]} == {AGENT[1], ""}
    other = next(each["id"] for each in (await there.account())["sessions"] if each["current"])
    assert (await here.ask("DELETE", f"/v1/account/sessions/{other}")).status == 204
    assert (await here.ask("DELETE", f"/v1/account/sessions/{other}")).status == 404
    assert (await there.ask("GET", "/v1/account")).status == 401
    assert len((await here.account())["sessions"]) == 2
    assert (await here.ask("DELETE", "/v1/account/sessions")).status == 204
    assert len((await here.account())["sessions"]) == 1
    # Nobody ends sessions of others.
    mallory = Login(next(_names), PASSWORD)
    gateway.users.add(mallory.name, password=PASSWORD)
    foreign = await signed_in(gateway, mallory)
    [own] = (await here.account())["sessions"]
    assert (await foreign.ask("DELETE", f"/v1/account/sessions/{own['id']}")).status == 404


async def test_a_session_is_new_with_each_sign_in(gateway: Gateway, eve: Login) -> None:
    # Fixation: a cookie that somebody has planted stays worthless.
    name = cookie_of(await sign_in(gateway, origin(gateway), user=eve.name, token=eve.token))[1]
    planted = ("Cookie", f"{name.partition('=')[0]}={'x' * 43}")
    answer = await sign_in(gateway, origin(gateway), planted, user=eve.name, token=eve.token)
    assert cookie_of(answer)[1] not in (planted[1], name)
    assert (await Signed(gateway, planted).ask("GET", "/v1/account")).status == 401


async def test_changes_need_our_page_and_a_proof(gateway: Gateway, eve: Login) -> None:
    browser = await signed_in(gateway, eve)
    body = json.dumps({"new": "another password", "password": PASSWORD}).encode()
    path = "/v1/account/password"
    cookie = browser.headers[2]
    for headers in (
        (host(gateway), cookie),
        (host(gateway), cookie, ("Origin", "http://evil.example")),
        (host(gateway), cookie, ("Origin", "null")),
        (*browser.headers, ("Sec-Fetch-Site", "same-site")),
    ):
        answer = await ask(gateway.address, "PUT", path, (*headers, JSON), body)
        assert answer.status == 403, headers
    # Basic is not enough, and neither is a session that was left open.
    assert (await ask(gateway.address, "PUT", path, (basic(eve), JSON), body)).status == 401
    browser.grow_old()
    for proof in ({}, {"password": "wrong"}):
        answer = await browser.ask("PUT", path, new="another password", **proof)
        assert answer.status == 403, answer
        answer = await browser.ask("POST", "/v1/account/second-factor", **proof)
        assert answer.status == 403, answer
        answer = await browser.ask("POST", "/v1/account/passkeys/options", **proof)
        assert answer.status == 403, answer
    assert (await browser.ask("PUT", path, new="short", password=PASSWORD)).status == 400
    other = await signed_in(gateway, eve)
    answer = await browser.ask("PUT", path, new="another password", password=PASSWORD)
    assert answer.status == 204
    # All sessions have ended; this browser has a new one.
    assert (await other.ask("GET", "/v1/account")).status == 401
    assert (await browser.ask("GET", "/v1/account")).status == 401
    cookie_now = answer.headers["set-cookie"].partition(";")[0]
    assert len((await Signed(gateway, ("Cookie", cookie_now)).account())["sessions"]) == 1
    answer = await sign_in(gateway, origin(gateway), user=eve.name, token=PASSWORD)
    assert answer.status == 401


async def test_a_second_factor_is_asked_for_wherever_the_password_is_taken(
    gateway: Gateway, eve: Login
) -> None:
    browser, other = await signed_in(gateway, eve), await signed_in(gateway, eve)
    # Known as a good password to this process, and yet not enough from now on.
    assert (await ask(gateway.address, "GET", "/v1/session", (basic(eve),))).status == 200
    totp, recovery = await turn_on(browser)
    assert (await other.ask("GET", "/v1/account")).status == 401
    await asyncio.sleep(1.2)  # what is promised of changes: verdicts are checked again each second
    assert (await ask(gateway.address, "GET", "/v1/session", (basic(eve),))).status == 401
    answer = await sign_in(gateway, origin(gateway), user=eve.name, token=PASSWORD)
    assert answer.status == 401
    assert json.loads(answer.body)["second_factor"] is True
    assert "set-cookie" not in answer.headers
    answer = await sign_in(gateway, origin(gateway), user=eve.name, token="wrong password")
    assert "second_factor" not in json.loads(answer.body)
    code = unused(totp)
    answer = await sign_in(
        gateway, origin(gateway), user=eve.name, token="wrong", second_factor=code
    )
    assert answer.status == 401
    # Of several requests with one code one is served, and none later.
    how = {"user": eve.name, "token": PASSWORD, "second_factor": code}
    answers = await asyncio.gather(*(sign_in(gateway, origin(gateway), **how) for _ in range(4)))
    assert sorted(each.status for each in answers) == [200, 401, 401, 401]
    assert (await sign_in(gateway, origin(gateway), **how)).status == 401
    # So is a recovery code.
    how["second_factor"] = recovery[0].upper()
    assert (await sign_in(gateway, origin(gateway), **how)).status == 200
    assert (await sign_in(gateway, origin(gateway), **how)).status == 401
    assert len(set(recovery)) == 10
    found = await browser.account()
    assert found["second_factor"] is True and found["recovery_codes"] == 9
    # Whoever has the password and guesses codes does not lock its owner out.
    statuses = set()
    for number in range(15):
        how["second_factor"] = f"{number:06}"
        statuses.add((await sign_in(gateway, origin(gateway), **how)).status)
    assert statuses == {401, 429}
    how["second_factor"] = recovery[1]
    assert (await sign_in(gateway, origin(gateway), **how)).status == 200
    # A token is no password: devices and programs go on.
    token = gateway.users.add_token(eve.name)
    assert (
        await ask(gateway.address, "GET", "/v1/session", (basic(Login(eve.name, token)),))
    ).status == 200
    # Turned off, the password is enough.
    answer = await browser.ask("DELETE", "/v1/account/second-factor", password=PASSWORD)
    assert answer.status == 204
    await signed_in(gateway, eve)


async def test_codes_are_not_guessed(gateway: Gateway, eve: Login) -> None:
    browser = await signed_in(gateway, eve)
    totp, _ = await turn_on(browser)
    good = {totp.at(int(time.time()) + step * STEP_S) for step in range(-2, 4)}
    wrong = next(code for code in ("000001", "000002", "123456", "999999") if code not in good)
    how = {"user": eve.name, "token": PASSWORD, "second_factor": wrong}
    answers = [await sign_in(gateway, origin(gateway), **how) for _ in range(12)]
    statuses = [each.status for each in answers]
    assert statuses == sorted(statuses) and statuses.count(401) in (9, 10)
    answer = answers[-1]
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) > 10
    # Not even the right one, until then.
    how["second_factor"] = unused(totp)
    assert (await sign_in(gateway, origin(gateway), **how)).status == 429
    # Others are not kept out by it.
    other = Login(next(_names), PASSWORD)
    gateway.users.add(other.name, password=PASSWORD)
    await signed_in(gateway, other)


async def test_unknown_users_take_as_long_as_known_ones(gateway: Gateway, eve: Login) -> None:
    await signed_in(gateway, eve)
    # Processor time, since the machine may be busy; it is counted in hundredths of a second.
    taken = {eve.name: 0.0, "nobody-at-all": 0.0}
    process = psutil.Process(gateway.process.pid)
    for number in range(7):
        for name in taken:
            before = process.cpu_times()
            answer = await sign_in(gateway, origin(gateway), user=name, token=f"wrong {number}")
            after = process.cpu_times()
            taken[name] += after.user + after.system - before.user - before.system
            assert answer.status == 401
            assert json.loads(answer.body) == {"error": "unknown user, or wrong password or token"}
    known, unknown = taken.values()
    assert 0.5 < known / unknown < 2, taken
