"""Every cell of the authorisation matrix, tested against a running gateway."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from gateway.http.listener import build_application
from tests.attacks import authorization
from tests.attacks.authorization import (
    CONTENTS,
    HIDDEN,
    HTTP,
    MQTT,
    NO,
    WHO,
    YES,
    Row,
    Rows,
)
from tests.attacks.test_nobody import UPGRADE, basic, relayed
from tests.consumers.running import Broker
from tests.gateway.parts import parts
from tests.gateway.raw_http import Headers, ask
from tests.gateway.running import Gateway, Login

DOCUMENT = Path(__file__).parents[2] / "docs" / "authorization.md"
WAIT_S = 40


class People:
    """A gateway, and all persons of the matrix."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        users, add = gateway.users, gateway.user
        self.logins = {name: add(name) for name in ("owner", "friend", "former", "other", "looker")}
        self.logins["admin"] = add("administrator", admin=True)
        self.logins["token"] = Login("owner", users.add_token("owner", "phone"))
        users.rights.befriend("owner", "friend")
        users.rights.befriend("owner", "former")
        users.rights.unfriend("owner", "former")
        users.rights.set_sending("looker", False)
        self._cookie = ""

    async def headers(self, who: str) -> Headers:
        """Return the headers of a person's requests."""
        if who in ("nobody", "proxied"):
            return ()
        if who != "session":
            return (basic(self.logins[who]),)
        if not self._cookie:
            owner = self.logins["owner"]
            body = json.dumps({"user": owner.name, "token": owner.token}).encode()
            kind = ("Content-Type", "application/json")
            answer = await ask(self.gateway.address, "POST", "/v1/session", (kind,), body)
            self._cookie = answer.headers["set-cookie"].partition(";")[0]
        named, origin = ("Host", self.gateway.http), ("Origin", self.gateway.url)
        return (named, origin, ("Cookie", self._cookie))

    def url_token(self, who: str) -> str:
        """Return what a person writes where a path has a token."""
        login = self.logins.get(who)
        return "wl_unknown" if login is None else login.token


@pytest.fixture(scope="module")
def people(gateway_broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """A gateway with MQTT and notifications, whose geocoder is away."""
    options = (
        *("--mqtt", "127.0.0.1:0", "--geo-url", "http://127.0.0.1:1"),
        *("--push-contact", "mailto:ops@example.org"),
    )
    gateway = Gateway(tmp_path_factory.mktemp("matrix"), gateway_broker.address, *options)
    try:
        yield People(gateway)
    finally:
        gateway.close()


async def test_every_route_has_a_row(tmp_path: Path) -> None:
    async with parts(tmp_path) as services:
        application = build_application(services, "test")
        routes = {
            (route.method, resource.canonical)
            for resource in application.router.resources()
            for route in resource
            if route.method != "HEAD"
        }
    in_rows = [route for rows in HTTP for route in rows.routes]
    # A path with a slash at its end has the handler of the one without.
    routes = {
        (method, path[:-1] if (method, path[:-1]) in in_rows else path) for method, path in routes
    }
    assert len(in_rows) == len(set(in_rows))
    assert routes == set(in_rows)


def test_the_document_says_what_is_tested() -> None:
    expected = authorization.document()
    written = DOCUMENT.read_text(encoding="utf-8")
    assert written == expected, "python -m tests.attacks.authorization > docs/authorization.md"


@pytest.mark.parametrize("rows", HTTP, ids=lambda rows: rows.row.title)
async def test_routes(people: People, rows: Rows) -> None:
    found: dict[str, dict[str, str]] = {}
    async with relayed(people.gateway.address) as proxy:
        for who in WHO:
            address = proxy if who == "proxied" else people.gateway.address
            headers = await people.headers(who)
            # Concurrently, as fixes are answered only when the log has them.
            verdicts = await asyncio.gather(
                *(_asked(people, who, address, *each, rows.row, headers) for each in rows.routes)
            )
            for (method, route), verdict in zip(rows.routes, verdicts, strict=True):
                if verdict != rows.row.expected[who]:
                    found.setdefault(f"{method} {route}", {})[who] = verdict
    assert found == {}


async def _asked(
    people: People,
    who: str,
    address: tuple[str, int],
    method: str,
    route: str,
    row: Row,
    headers: Headers,
) -> str:
    names = {"device": "owner%2Fphone", "path": "js/app.js", "partition": "0", "topic": "place"}
    names |= {"archive": "0", "z": "0", "x": "0", "y": "0"}
    in_path = "{token}" in route
    if in_path:
        names |= {"token": people.url_token(who), "device": "phone"}
        headers = tuple(each for each in headers if each[0] != "Authorization")
    if method == "DELETE" and route == "/v1/session":
        headers = tuple(each for each in headers if each[0] != "Cookie")
    target = re.sub(r"\{(\w+)\}", lambda name: names.get(name[1], "x"), route)
    if row.query and not (method == "GET" and route == "/"):
        target += f"?{row.query}"
    if route in ("/v1/ws", "/mqtt"):
        headers = (*headers, *UPGRADE)
    body = row.body if method != "GET" else None
    if body is not None and row.body and row.body[:1] in b"{[":
        headers = (*headers, ("Content-Type", "application/json"))
    answer = await ask(address, method, target, headers, body)
    # Rights are checked before the contents of a request.
    assert answer.status < 500 or b"geocoder" in answer.body or b"127.0.0.1:1" in answer.body, (
        method,
        target,
        answer,
    )
    return str(answer.status) if answer.status in (401, 403, 410) else YES


# --- contents of answers and streams -------------------------------------------------------------


async def _send_position(people: People, user: str, lat: float) -> None:
    """Send a position as an administrator, who may send for all users."""
    time_ms = time.time_ns() // 1_000_000
    fix = {"device": f"{user}/phone", "lat": lat, "lon": 9.0, "time": time_ms}
    headers = (basic(people.logins["admin"]),)
    body = json.dumps(fix).encode()
    answer = await ask(people.gateway.address, "POST", "/v1/positions", headers, body)
    assert answer.status == 200


async def _lines(people: People, who: str, stack: AsyncExitStack) -> AsyncIterator[str]:
    """Yield the lines of the server-sent events."""
    client = await stack.enter_async_context(people.gateway.client())
    headers = {name: str(value) for name, value in await people.headers(who)}
    answer = await stack.enter_async_context(client.get("/v1/stream", headers=headers))
    assert answer.status == 200
    async for line in answer.content:
        yield line.decode()


async def _frames(people: People, who: str, stack: AsyncExitStack) -> AsyncIterator[str]:
    """Yield the frames of the WebSocket."""
    client = await stack.enter_async_context(people.gateway.client())
    headers = {name: str(value) for name, value in await people.headers(who)}
    socket = await stack.enter_async_context(client.ws_connect("/v1/ws", headers=headers))
    async for frame in socket:
        yield str(frame.data)


@pytest.mark.parametrize("channel", ["sse", "websocket"])
async def test_streams(people: People, channel: str) -> None:
    expected = CONTENTS[channel].expected
    watching = [who for who in WHO if expected[who] in (YES, HIDDEN)]
    seen: dict[str, set[str]] = {who: set() for who in watching}
    news = asyncio.Condition()

    async def watch(who: str, stack: AsyncExitStack) -> None:
        read = _lines if channel == "sse" else _frames
        async for text in read(people, who, stack):
            for user in re.findall(r'"device":"(\w+)/phone"', text):
                seen[who].add(user)
            if "ready" in text:
                seen[who].add("ready")
            async with news:
                news.notify_all()

    async def until(condition: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(WAIT_S), news:
                await news.wait_for(condition)
        except TimeoutError:
            pytest.fail(f"not seen in time: {seen}")

    async with AsyncExitStack() as stack:
        tasks = [asyncio.create_task(watch(who, stack)) for who in watching]
        try:
            await until(lambda: all("ready" in each for each in seen.values()))
            await _send_position(people, "owner", 47.2)
            await until(lambda: "owner" in seen["admin"])
            # By now it was offered to all; later fixes show who did not get it.
            for who in ("former", "other", "looker"):
                await _send_position(people, who, 1.0)
            await until(
                lambda: all(
                    ("owner" if expected[who] == YES else who) in seen[who] for who in watching
                )
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    found = {who: YES if "owner" in seen[who] else HIDDEN for who in watching}
    assert found == {who: expected[who] for who in watching}


async def test_lists_and_answers_to_phones(people: People) -> None:
    await _send_position(people, "owner", 47.3)
    owntracks = json.dumps(
        {"_type": "location", "lat": 1, "lon": 2, "tst": int(time.time()), "tid": "x"}
    ).encode()
    found: dict[str, dict[str, str]] = {"list": {}, "owntracks": {}}
    for who in WHO:
        headers = await people.headers(who)
        listed = await ask(people.gateway.address, "GET", "/v1/devices", headers)
        found["list"][who] = _shown(listed.status, b'"owner/phone"' in listed.body)
        answer = await ask(people.gateway.address, "POST", "/owntracks?d=x", headers, owntracks)
        positions = [each for each in json.loads(answer.body or b"[]") if isinstance(each, dict)]
        shown = any(each.get("_type") == "location" for each in positions)
        found["owntracks"][who] = _shown(answer.status, shown)
    for channel, verdicts in found.items():
        assert verdicts == CONTENTS[channel].expected, channel


def _shown(status: int, shown: bool) -> str:
    if status != 200:
        return str(status)
    return YES if shown else HIDDEN


# --- MQTT ---------------------------------------------------------------------------------------


async def _mqtt_verdicts(people: People, who: str) -> dict[tuple[str, str], str]:
    """Return a person's verdicts by action and topic."""
    found = people.gateway.process.output
    match = re.search(r"gateway ready http=\S+ mqtt=([^:\s]+):(\d+)", found)
    assert match
    loop = asyncio.get_running_loop()
    answers: asyncio.Queue[bool] = asyncio.Queue()

    def tell(code: ReasonCode) -> None:
        loop.call_soon_threadsafe(answers.put_nowait, not code.is_failure)

    client = paho.Client(
        CallbackAPIVersion.VERSION2, f"matrix-{who}", protocol=MQTTProtocolVersion.MQTTv5
    )
    client.on_connect = lambda _c, _u, _f, code, _p: tell(code)
    client.on_subscribe = lambda _c, _u, _m, codes, _p: tell(codes[0])
    client.on_publish = lambda _c, _u, _m, code, _p: tell(code)
    login = people.logins.get(who)
    if who == "session":
        cookie = dict(await people.headers(who))["Cookie"]
        client.username_pw_set("owner", str(cookie).partition("=")[2])
    elif login is not None:
        client.username_pw_set(*login)
    host, port = match[1], int(match[2])
    await asyncio.to_thread(client.connect, host, port)
    client.loop_start()
    verdicts: dict[tuple[str, str], str] = {}
    try:
        async with asyncio.timeout(WAIT_S):
            if not await answers.get():
                return dict.fromkeys(MQTT, NO)
            for does, topic in MQTT:
                if does == "subscribe":
                    client.subscribe(topic, 1)
                else:
                    client.publish(topic, b"{}", 1)
                verdicts[does, topic] = YES if await answers.get() else NO
        return verdicts
    finally:
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize("who", [who for who in WHO if who != "proxied"])
async def test_mqtt_topics(people: People, who: str) -> None:
    found = await _mqtt_verdicts(people, who)
    assert found == {key: row[who] for key, row in MQTT.items()}
