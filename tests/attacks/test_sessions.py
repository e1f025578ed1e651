"""Browser sessions: how they begin, what they permit, and how they end."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.users.browser_sessions import CODES_MAX, SESSIONS_MAX, session_hash
from gateway.users.database import UserStore
from tests.attacks.test_nobody import FIX, basic, websocket
from tests.consumers.running import WAYLOG, Broker
from tests.gateway.raw_http import Answer, Headers, ask, read_answer, request
from tests.gateway.running import Gateway, Login

JSON = ("Content-Type", "application/json")


@pytest.fixture(scope="module")
def gateway(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One of two gateways that share a port and the users."""
    folder = tmp_path_factory.mktemp("sessions")
    running = Gateway(folder, gateway_broker.address, "--workers-share-port")
    yield running
    running.close()


@pytest.fixture(scope="module")
def ada(gateway: Gateway) -> Login:
    """An ordinary user."""
    return gateway.user("ada")


def origin(gateway: Gateway) -> tuple[str, str]:
    return "Origin", gateway.url


def host(gateway: Gateway) -> tuple[str, str]:
    return "Host", gateway.http


async def sign_in(gateway: Gateway, *more: tuple[str, str], **how: str) -> Answer:
    """Ask for a session as the page does."""
    headers = (JSON, host(gateway), *more)
    body = json.dumps(how).encode()
    return await ask(gateway.address, "POST", "/v1/session", headers, body)


def cookie_of(answer: Answer) -> tuple[str, str]:
    assert answer.status == 200, answer
    return "Cookie", answer.headers["set-cookie"].partition(";")[0]


async def signed_in(gateway: Gateway, login: Login) -> Headers:
    """Sign in; return the headers of the page's further requests."""
    answer = await sign_in(gateway, origin(gateway), user=login.name, token=login.token)
    return host(gateway), cookie_of(answer)


async def link_of(gateway: Gateway, *words: str) -> str:
    """Return what `waylog link` prints."""
    users = str(gateway.folder / "users.db")
    process = await asyncio.create_subprocess_exec(
        *(*WAYLOG, "link", *words, "--users", users, "--gateway", gateway.url),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode().strip()


async def test_a_link_signs_in_once_and_on_any_worker(
    gateway: Gateway, gateway_broker: Broker
) -> None:
    other = Gateway(gateway.folder, gateway_broker.address, "--workers-share-port")
    try:
        link = await link_of(gateway)
        code = re.fullmatch(re.escape(gateway.url) + "/#sign-in=(.{43})", link)
        assert code
        answer = await sign_in(other, origin(other), code=code[1])
        session = json.loads(answer.body)
        assert session.pop("sight")
        assert session == {
            **{"user": None, "device": None, "admin": True, "open": False, "oversees": True}
        }
        flags = answer.headers["set-cookie"]
        assert all(each in flags for each in ("HttpOnly", "SameSite=Strict", "Path=/"))
        assert "Secure" not in flags  # the request came over HTTP
        for worker in (gateway, other):
            headers = (host(worker), cookie_of(answer))
            assert (await ask(worker.address, "GET", "/v1/devices", headers)).status == 200
            refused = await sign_in(worker, origin(worker), code=code[1])
            assert refused.status == 401
            assert b"waylog link" in refused.body
    finally:
        other.close()


async def test_a_session_of_a_page_that_came_by_tls_is_sent_over_tls_alone(
    gateway: Gateway, ada: Login
) -> None:
    secure = "Origin", gateway.url.replace("http:", "https:")  # as if a proxy had terminated TLS
    answer = await sign_in(gateway, secure, user=ada.name, token=ada.token)
    assert "Secure" in answer.headers["set-cookie"].split("; ")


async def test_a_link_of_a_user_shows_what_that_user_may_see(gateway: Gateway, ada: Login) -> None:
    code = (await link_of(gateway, ada.name)).partition("=")[2]
    answer = await sign_in(gateway, origin(gateway), code=code)
    assert json.loads(answer.body)["user"] == ada.name
    headers = (host(gateway), cookie_of(answer))
    assert (await ask(gateway.address, "GET", "/metrics", headers)).status == 403
    other = "/v1/devices/bob%2Fphone"
    assert (await ask(gateway.address, "GET", other, headers)).status == 403
    told = json.loads((await ask(gateway.address, "GET", "/v1/entrances", headers)).body)
    assert told["demo_token"] is told["command"] is None


async def test_a_link_is_good_for_minutes_and_made_of_nothing_that_is_stored(
    gateway: Gateway, ada: Login
) -> None:
    sessions = gateway.users.sessions
    old = sessions.new_code(ada.name, lifetime_s=-1)
    answer = await sign_in(gateway, origin(gateway), code=old)
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)
    for made_up in ("", "x", session_hash(sessions.new_code(ada.name)), "\0", "ü" * 2000):
        assert (await sign_in(gateway, origin(gateway), code=made_up)).status in (401, 413)
    # Too many codes only push out the oldest one.
    codes = [sessions.new_code(ada.name) for _ in range(CODES_MAX + 1)]
    assert sessions.redeem(codes[0]) is None
    assert [sessions.redeem(code) for code in codes[1:]] == [ada.name] * CODES_MAX


def test_those_of_one_moment_go_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: moment)
    store = UserStore(tmp_path / "users.db")
    try:
        store.add("ada")
        codes = [store.sessions.new_code("ada") for _ in range(CODES_MAX + 5)]
        redeemed = [store.sessions.redeem(code) for code in codes]
        assert redeemed == [None] * 5 + ["ada"] * CODES_MAX
        begun = [session_hash(store.sessions.begin("ada")) for _ in range(SESSIONS_MAX + 5)]
        good = [store.sessions.find(session) is not None for session in begun]
        assert good == [False] * 5 + [True] * SESSIONS_MAX
    finally:
        store.close()


async def test_a_session_looks_and_does_nothing_else(gateway: Gateway) -> None:
    headers = await signed_in(gateway, gateway.admin)
    own = (*headers, origin(gateway))
    for path in ("/v1/devices", "/v1/session", "/v1/pipeline", "/metrics", "/v1/stream"):
        assert (await ask(gateway.address, "GET", path, headers)).status == 200, path
    assert (await websocket(gateway.address, "/v1/ws", *own)).status == 101
    registration = b'{"device_name":"x"}'
    for path, body in (
        *(("/v1/positions", FIX), ("/owntracks", FIX), ("/client/index.php", b"action=addpos")),
        *(("/api/mobile_app/registrations", registration), ("/topics/location", b"{}")),
    ):
        assert (await ask(gateway.address, "POST", path, own, body)).status == 401, path
    assert (await ask(gateway.address, "GET", "/topics", own)).status == 401
    # The session's secret is neither a token nor a password.
    secret = headers[1][1]
    assert isinstance(secret, str)
    secret = secret.partition("=")[2]
    for credentials in (
        basic(Login("admin", secret)),
        basic(Login("\0session", secret)),
        ("Authorization", f"Bearer {secret}"),
    ):
        for _ in range(2):
            answer = await ask(gateway.address, "POST", "/v1/positions", (credentials,), FIX)
            assert answer.status == 401
    async with asyncio.timeout(60):
        async with gateway.client() as client:
            page = {"Cookie": str(headers[1][1]), "Origin": gateway.url}
            async with client.ws_connect("/v1/ws", headers=page) as connection:
                await connection.send_json({"type": "fix", "lat": 1, "lon": 2})
                while (message := await connection.receive_json())["type"] != "error":
                    pass
                assert "credentials" in message["reason"]


@pytest.mark.parametrize(
    "page",
    [
        ("Origin", "https://evil.example"),
        ("Origin", "http://127.0.0.1:1"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),  # another port of this host
    ],
)
async def test_a_page_of_another_site_cannot_use_it(
    gateway: Gateway, ada: Login, page: tuple[str, str]
) -> None:
    headers = (*await signed_in(gateway, ada), page)
    for path in ("/v1/devices", "/v1/stream", "/v1/session"):
        assert (await ask(gateway.address, "GET", path, headers)).status == 403, path
    assert (await websocket(gateway.address, "/v1/ws", *headers)).status == 403
    assert (await ask(gateway.address, "DELETE", "/v1/session", headers)).status == 403
    answer = await ask(gateway.address, "DELETE", "/v1/push/subscriptions", headers, b"{}")
    assert answer.status in (403, 404)
    assert (await sign_in(gateway, page, user=ada.name, token=ada.token)).status == 403
    # A request that changes something must have an Origin.
    assert (await ask(gateway.address, "DELETE", "/v1/session", headers[:2])).status == 403
    # Credentials that the browser adds after its own prompt are not accepted, either.
    answer = await ask(gateway.address, "GET", "/v1/devices", (*headers[2:], basic(ada)))
    assert answer.status == (200 if page[0] == "Origin" else 403)
    # Under another host name the cookie is not accepted.
    evil = (("Host", "evil.example"), headers[1])
    assert (await ask(gateway.address, "GET", "/v1/devices", evil)).status == 421


async def test_a_form_of_another_site_cannot_sign_in(gateway: Gateway, ada: Login) -> None:
    body = json.dumps({"user": ada.name, "token": ada.token}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        headers = (host(gateway), ("Content-Type", kind))
        answer = await ask(gateway.address, "POST", "/v1/session", headers, body)
        assert answer.status == 415


@pytest.mark.parametrize("end", ["sign out", "revoke user", "revoke device", "expire", "too many"])
async def test_a_session_ends_and_its_stream_with_it(gateway: Gateway, end: str) -> None:
    name = f"user-{end.replace(' ', '-')}"
    login = gateway.user(name)
    if end == "revoke device":
        login = Login(name, gateway.users.add_token(name, "phone"))
    headers = await signed_in(gateway, login)
    sessions = gateway.users.sessions
    reader, writer = await asyncio.open_connection(*gateway.address)
    writer.write(request("GET", "/v1/stream", headers))
    assert (await read_answer(reader)).status == 200
    if end == "sign out":
        own = (*headers, origin(gateway))
        answer = await ask(gateway.address, "DELETE", "/v1/session", own)
        assert answer.status == 204
        assert "Max-Age=0" in answer.headers["set-cookie"]
    elif end == "revoke user":
        gateway.users.revoke(name)
    elif end == "revoke device":
        gateway.users.revoke_device(name, "phone")
    elif end == "too many":
        for _ in range(SESSIONS_MAX):
            sessions.begin(name)
    else:
        secret = str(headers[1][1]).partition("=")[2]
        ended = time.time_ns() // 1_000_000
        gateway.users._connection.execute(
            "UPDATE sessions SET expires = ? WHERE hash = ?", (ended, session_hash(secret))
        )
        sessions.begin(gateway.admin.name)  # removes expired sessions
    assert (await ask(gateway.address, "GET", "/v1/devices", headers)).status == 401
    async with asyncio.timeout(60):
        await reader.readuntil(b"\r\n0\r\n\r\n")  # the last chunk
    writer.close()


async def test_what_is_stored_of_sessions_and_links_is_of_no_use(
    gateway: Gateway, ada: Login
) -> None:
    headers = await signed_in(gateway, ada)
    code = gateway.users.sessions.new_code(ada.name)
    secret = str(headers[1][1]).partition("=")[2]
    stored = b"".join(path.read_bytes() for path in gateway.folder.glob("users.db*"))
    assert secret.encode() not in stored
    assert code.encode() not in stored
    assert secret not in gateway.process.output
    assert all(path.stat().st_mode & 0o077 == 0 for path in gateway.folder.glob("users.db*"))


async def test_the_operator_is_nobody_who_could_be_added_or_sign_in(gateway: Gateway) -> None:
    with pytest.raises(ValueError, match="_operator"):
        gateway.users.add("_operator")
    assert gateway.users.ensure_operator() == "_operator"
    for token in ("", "x"):
        answer = await sign_in(gateway, origin(gateway), user="_operator", token=token)
        assert answer.status == 401
    gateway.users.sessions.begin("_operator")
    gateway.users.revoke("_operator")
    assert gateway.users.sessions.find(session_hash("x")) is None
    with pytest.raises(KeyError):
        gateway.users.sessions.begin("_operator")
    assert gateway.users.ensure_operator() == "_operator"
