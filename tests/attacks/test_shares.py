"""Shares, against a gateway: what their links show, to whom, how precisely, and until when."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from gateway.friends.home_blur import RADIUS_M
from gateway.shares.share_table import SHARES_MAX
from gateway.users.permissions import RECHECK_S
from tests.attacks.test_friends_over_http import (
    AWAY,
    HOME,
    REACHES_S,
    Watching,
    ada,
    bob,
    gateway,
    send,
)
from tests.attacks.test_nobody import basic
from tests.attacks.test_sessions import JSON, host, signed_in
from tests.gateway.raw_http import ask
from tests.gateway.records import address
from tests.gateway.running import Gateway, Login, answered, json_of
from waylog.observability.telemetry import now_ms

__all__ = ["ada", "bob", "gateway"]

HOUR_MS = 3_600_000
#: Of the largest squares.
STEP_MS = 900_000
GONE = {"error": "there is no such share, or it has ended"}
HOSTILE = "<img src=x onerror=alert(1)>\u202e\x07\r\nSet-Cookie: x=1"


class WatchingShare(Watching):
    """What the stream of a share has shown, and whether it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()


async def share(gateway: Gateway, user: Login, **members: Any) -> dict[str, Any]:
    """Return the answer to a POST for a new share."""
    asked = {"devices": [f"{user.name}/phone"], "until": now_ms() + HOUR_MS} | members
    async with gateway.client(user) as client:
        answer = await client.post("/v1/shares", json=asked)
        assert answer.headers["Cache-Control"] == "no-store"
        made: dict[str, Any] = await json_of(answer, 201)
        return made


def token_of(made: dict[str, Any]) -> str:
    base, _, token = made["url"].partition("#")
    assert base.endswith("/share")
    return str(token)


def opened(gateway: Gateway, token: str) -> Any:
    """Return a client that has nothing but a link."""
    return gateway_client(gateway, {"Waylog-Share": token})


@asynccontextmanager
async def gateway_client(
    gateway: Gateway, headers: dict[str, str]
) -> AsyncIterator[aiohttp.ClientSession]:
    async with gateway.client() as client:
        client.headers.update(headers)
        yield client


async def seen(gateway: Gateway, made: dict[str, Any]) -> dict[str, Any]:
    """Return what a link shows as soon as the first device has a position."""
    async with opened(gateway, token_of(made)) as client:

        async def view() -> dict[str, Any]:
            found: dict[str, Any] = await json_of(await client.get("/v1/shared"))
            return found

        return await answered(view, lambda found: found["devices"][0]["fix"])


@asynccontextmanager
async def watching(gateway: Gateway, made: dict[str, Any]) -> AsyncIterator[WatchingShare]:
    """Open the stream of a share."""
    watch, ready = WatchingShare(), asyncio.Event()

    async def read(client: aiohttp.ClientSession) -> None:
        async with client.get("/v1/shared/stream") as answer:
            assert answer.status == 200
            async for line in answer.content:
                if line == b": ready\n":
                    ready.set()
                elif line.startswith(b"data: "):
                    watch.take(json.loads(line[6:]))
        watch.ended.set()

    async with opened(gateway, token_of(made)) as client:
        reading = asyncio.create_task(read(client))
        try:
            async with asyncio.timeout(60):
                await ready.wait()
            yield watch
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


def metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    north = (one[0] - other[0]) * 111_195
    east = (one[1] - other[1]) * 111_195 * math.cos(math.radians(one[0]))
    return math.hypot(north, east)


def at(record: dict[str, Any]) -> tuple[float, float]:
    return record["lat"], record["lon"]


async def test_a_link_shows_only_its_devices_live_until_it_is_revoked(
    gateway: Gateway, ada: Login
) -> None:
    await send(gateway, ada, device="other", at=(1.0, 1.0))
    await send(gateway, ada, battery=55, attributes={"note": "secret", "wifi": "home"})
    made = await share(gateway, ada, name=HOSTILE)
    shown = await seen(gateway, made)
    assert shown["by"] == ada.name
    assert [each["device"] for each in shown["devices"]] == [f"{ada.name}/phone"]
    fix = shown["devices"][0]["fix"]
    assert at(fix) == AWAY
    assert fix["battery"] == 55
    assert "secret" not in json.dumps(shown)
    # A name is shown as text; what could turn the text around is not in it.
    assert shown["name"] == "<img src=x onerror=alert(1)> Set-Cookie: x=1"
    async with watching(gateway, made) as watch, opened(gateway, token_of(made)) as client:
        await send(gateway, ada, device="other", at=(2.0, 2.0))
        await send(gateway, ada, at=(AWAY[0] + 0.01, AWAY[1]))
        news = await watch.fix()
        assert news["device"] == f"{ada.name}/phone"
        assert at(news) == (AWAY[0] + 0.01, AWAY[1])
        # The token opens nothing else, in whatever place it is tried.
        token = token_of(made)
        for path in ("/v1/devices", f"/v1/devices/{ada.name}%2Fphone", "/v1/session", "/v1/shares"):
            assert (await client.get(path)).status == 401, path
            bearer = {"Authorization": f"Bearer {token}"}
            assert (await client.get(path, headers=bearer)).status == 401, path
        answer = await client.get(f"/v1/shared/track?device={ada.name}%2Fphone")
        assert answer.status == 403
        # By then the gateway has read that ada was added; only the end of the share is news.
        await asyncio.sleep(2 * RECHECK_S)
        async with gateway.client(ada) as own:
            assert (await own.delete(f"/v1/shares/{made['id']}")).status == 204
            assert (await own.delete(f"/v1/shares/{made['id']}")).status == 404
        async with asyncio.timeout(REACHES_S + 8):
            await watch.ended.wait()
        assert await json_of(await client.get("/v1/shared"), 404) == GONE


async def test_a_stream_ends_when_the_time_is_over(gateway: Gateway, ada: Login) -> None:
    made = await share(gateway, ada, until=now_ms() + 2_000)
    async with watching(gateway, made) as watch:
        async with asyncio.timeout(30):
            await watch.ended.wait()
        assert now_ms() >= made["until"] - 50
    async with opened(gateway, token_of(made)) as client:
        assert await json_of(await client.get("/v1/shared"), 404) == GONE
    async with gateway.client(ada) as own:
        assert await json_of(await own.get("/v1/shares")) == []


async def test_ended_and_unknown_links_look_the_same_and_guesses_are_counted(
    gateway: Gateway, ada: Login
) -> None:
    revoked = token_of(made := await share(gateway, ada))
    until = now_ms() + 2_000  # so long the gateway may take to answer
    expired = token_of(await share(gateway, ada, until=until))
    async with gateway.client(ada) as own:
        await own.delete(f"/v1/shares/{made['id']}")
    while now_ms() <= until:
        await asyncio.sleep(0.05)
    answers = []
    for token in (revoked, expired, "x" * 32, "", "wl_" + "x" * 40, ada.token, "ä", "x" * 9000):
        headers = (("Waylog-Share", token.encode()),)
        answer = await ask(gateway.address, "GET", "/v1/shared", headers)
        if len(token) > 8190:
            assert answer.status == 400
            continue
        kept = {name: answer.headers[name] for name in answer.headers if name != "date"}
        answers.append((answer.status, kept, answer.body))
    assert all(each == answers[0] for each in answers)
    assert answers[0][0] == 404
    # A page of another site cannot ask, and no place but the header takes the token.
    good = token_of(await share(gateway, ada))
    foreign = (("Waylog-Share", good), ("Sec-Fetch-Site", "cross-site"))
    assert (await ask(gateway.address, "GET", "/v1/shared", foreign)).status == 403
    for target in (f"/v1/shared?token={good}", f"/v1/shared/{good}"):
        assert (await ask(gateway.address, "GET", target)).status == 404
    preflight = (("Origin", "http://evil.example"), ("Access-Control-Request-Method", "GET"))
    answer = await ask(gateway.address, "OPTIONS", "/v1/shared", preflight)
    assert answer.status == 405
    assert "access-control-allow-origin" not in answer.headers
    # No file has a token, and no line of the log.
    for file in gateway.folder.glob("users.db*"):
        assert good.encode() not in file.read_bytes()
    assert good not in gateway.process.output


async def test_homes_are_hidden_as_from_friends(gateway: Gateway, ada: Login) -> None:
    await send(gateway, ada, at=HOME, speed=3.0)
    fix = (await seen(gateway, await share(gateway, ada)))["devices"][0]["fix"]
    assert 0 < metres(at(fix), HOME) <= RADIUS_M
    assert fix["accuracy"] == RADIUS_M
    assert "speed" not in fix
    assert fix["time"] % (15 * 60_000) == 0
    open_home = await share(gateway, ada, hides_home=False)
    assert at((await seen(gateway, open_home))["devices"][0]["fix"]) == HOME


async def test_cells_hide_the_position_in_every_answer(gateway: Gateway, ada: Login) -> None:
    sent = now_ms() - 3 * HOUR_MS
    sent += STEP_MS - sent % STEP_MS
    await send(gateway, ada, altitude=400.0, speed=2.0, time=sent)
    gateway.publish(
        address(
            f"{ada.name}/phone",
            time=sent,
            lat=AWAY[0],
            lon=AWAY[1],
            display_name="Seeweg 3, Lindau, Germany",
            address={"road": "Seeweg", "house_number": "3", "town": "Lindau", "country": "Germany"},
        )
    )
    for precision, cell_m in (
        ({"precision": "metres", "metres": 800}, 800),
        ({"precision": "town"}, 5000),
        # Several towns are in such a square, and their names would tell where in it.
        ({"precision": "metres", "metres": 20_000}, 20_000),
    ):
        made = await share(gateway, ada, **precision)
        async with opened(gateway, token_of(made)) as client:

            async def view(client: aiohttp.ClientSession = client) -> dict[str, Any]:
                found: dict[str, Any] = await json_of(await client.get("/v1/shared"))
                return found

            shown = await answered(view, lambda found: all(found["devices"][0].values()))
        [device] = shown["devices"]
        fix = device["fix"]
        assert 0 < metres(at(fix), AWAY) <= cell_m * 0.75
        assert "speed" not in fix and "altitude" not in fix
        assert at(device["address"]) == at(fix)
        name = "Germany" if cell_m > 5000 else "Lindau, Germany"
        assert device["address"]["display_name"] == name
        assert ("Lindau" in json.dumps(shown)) == (cell_m <= 5000)
        assert "Seeweg" not in json.dumps(shown)
        # In one step of time it is one square, wherever the device goes.
        await send(gateway, ada, at=(AWAY[0] - 0.5, AWAY[1]), time=sent + 1_000)
        await known(gateway, ada, AWAY[0] - 0.5)
        assert (await seen(gateway, made))["devices"][0]["fix"] == fix
        for north in (0.5, 0.0):
            sent += STEP_MS
            await send(gateway, ada, at=(AWAY[0] + north, AWAY[1]), time=sent)
            await known(gateway, ada, AWAY[0] + north)
            moved = at((await seen(gateway, made))["devices"][0]["fix"])
            assert (metres(moved, at(fix)) > 40_000) is bool(north)
    async with watching(gateway, made) as watch:
        await send(gateway, ada, at=(AWAY[0] + 0.000001, AWAY[1]))
        assert at(await watch.fix()) == at(fix)


async def known(gateway: Gateway, user: Login, lat: float) -> None:
    """Wait until the newest position of a user's device is the one of this latitude."""
    async with gateway.client(user) as own:

        async def newest() -> float | None:
            rows = await json_of(await own.get("/v1/devices"))
            return rows[0]["fix"]["lat"] if rows else None

        await answered(newest, lambda found: found is not None and abs(found - lat) < 1e-6)


async def test_a_period_shows_the_way_in_it_and_nothing_of_now(
    gateway: Gateway, ada: Login
) -> None:
    start = now_ms() - 3 * HOUR_MS
    start += 1_234 - start % 60_000  # not at the beginning of a step of time
    sent_at = {start + number * 60_000 for number in range(30)}
    for number in range(30):
        at_minute = start + number * 60_000
        await send(gateway, ada, at=(47.5 + number * 0.001, 9.9), time=at_minute)
    await send(gateway, ada, at=HOME, time=start + 36 * 60_000)  # in a step of its own
    await send(gateway, ada, at=(46.0, 9.0))
    # When the last one is known, all of them are.
    await known(gateway, ada, 46.0)
    period = {"from": start + 5 * 60_000, "to": start + 40 * 60_000}
    for precision in ({}, {"precision": "metres", "metres": 500}):
        made = await share(gateway, ada, **period, **precision)
        async with opened(gateway, token_of(made)) as client:
            shown = await json_of(await client.get("/v1/shared"))
            assert shown["live"] is False
            assert shown["devices"] == [
                {"device": f"{ada.name}/phone", "fix": None, "address": None}
            ]
            path = f"/v1/shared/track?device={ada.name}%2Fphone"

            async def track(client: aiohttp.ClientSession = client, path: str = path) -> Any:
                return await json_of(await client.get(path))

            found = await answered(track, lambda found: found["features"])
            other = await client.get(f"/v1/shared/track?device={ada.name}%2Fother")
            assert other.status == 403
        [feature] = found["features"]
        coordinates, times = feature["geometry"]["coordinates"], feature["properties"]["times"]
        assert sent_at.isdisjoint(times) is bool(precision)
        assert all(period["from"] - 300_000 <= time <= period["to"] for time in times)
        assert all(metres((lat, lon), HOME) > 1 for lon, lat, *_ in coordinates)
        assert 46.5 < min(lat for _, lat, *_ in coordinates) < 47.2  # the circle around the home
        assert len(coordinates) == 26 if not precision else len(coordinates) < 12


async def test_only_users_share_their_own_devices_and_within_bounds(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    now = now_ms()
    good: dict[str, Any] = {"devices": [f"{ada.name}/phone"], "until": now + HOUR_MS}
    bad: list[tuple[dict[str, Any], int, str]] = [
        ({"devices": [f"{bob.name}/phone"]}, 403, "own devices"),
        ({"devices": []}, 400, "devices"),
        ({"devices": [f"{ada.name}/a+b"]}, 400, "devices"),
        ({"until": now - 1}, 400, "until"),
        ({"until": now + 31 * 24 * HOUR_MS}, 400, "30 days"),
        ({"until": "never"}, 400, "until"),
        ({"from": now - HOUR_MS}, 400, "from and to"),
        ({"from": now, "to": now - 1}, 400, "passed"),
        ({"from": now - 1, "to": now + HOUR_MS}, 400, "passed"),
        ({"from": now - 40 * 24 * HOUR_MS, "to": now - 1}, 400, "31 days"),
        ({"precision": "metres"}, 400, "metres"),
        ({"precision": "metres", "metres": 3}, 400, "metres"),
        ({"metres": 300}, 400, "metres"),
        ({"precision": "street"}, 400, "precision"),
        ({"name": "x" * 101}, 400, "name"),
        ({"hide_home": False}, 400, "hide_home"),
    ]
    async with gateway.client(ada) as client:
        for change, status, reason in bad:
            answer = await client.post("/v1/shares", json=good | change)
            assert reason in (await json_of(answer, status))["error"], change
        assert (await client.post("/v1/shares", data=b"no")).status == 400
    made = await share(gateway, ada)
    async with gateway.client(bob) as other:
        assert (await other.delete(f"/v1/shares/{made['id']}")).status == 404
        assert await json_of(await other.get("/v1/shares")) == []
    phone = Login(ada.name, gateway.users.add_token(ada.name, "phone"))
    async with gateway.client(phone) as device:
        assert (await device.get("/v1/shares")).status == 403
        assert (await device.post("/v1/shares", json=good)).status == 403
    # A browser's session may, from our page alone.
    body = json.dumps(good).encode()
    cookie = await signed_in(gateway, ada)
    for headers, status in (
        ((JSON, *cookie, ("Origin", gateway.url)), 201),
        ((JSON, *cookie, ("Origin", "http://evil.example")), 403),
        ((JSON, *cookie), 403),
        ((JSON, *cookie, ("Origin", gateway.url), ("Sec-Fetch-Site", "same-site")), 403),
        ((JSON, host(gateway)), 401),
    ):
        reply = await ask(gateway.address, "POST", "/v1/shares", headers, body)
        assert reply.status == status, (headers, reply)
    headers = (JSON, basic(ada))
    for _ in range(SHARES_MAX):
        reply = await ask(gateway.address, "POST", "/v1/shares", headers, body)
        if reply.status != 201:
            break
    assert reply.status in (403, 429), reply
    assert re.search(rb"shares: end some|a minute", reply.body)


async def test_a_revoked_user_shares_nothing(gateway: Gateway, ada: Login) -> None:
    made = await share(gateway, ada)
    async with watching(gateway, made) as watch:
        gateway.users.revoke(ada.name)
        async with asyncio.timeout(REACHES_S + 8):
            await watch.ended.wait()
    async with opened(gateway, token_of(made)) as client:
        assert await json_of(await client.get("/v1/shared"), 404) == GONE


def test_tokens_are_long(gateway: Gateway, ada: Login) -> None:
    made = asyncio.run(share(gateway, ada))
    assert len(token_of(made)) == 32  # 192 bits
    assert "<svg" in made["qr_code"]
