"""Friends over HTTP: users show their devices to others, and stop."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import aiohttp
import pytest

from tests.gateway.raw_http import ask
from tests.gateway.running import Gateway, Login, answered, json_of
from waylog.observability.telemetry import now_ms

_names = (f"pal{number}" for number in itertools.count())


@pytest.fixture
def ada(gateway: Gateway) -> Login:
    return gateway.user(next(_names))


@pytest.fixture
def bob(gateway: Gateway) -> Login:
    return gateway.user(next(_names))


async def friends(gateway: Gateway, user: Login) -> dict[str, list[str]]:
    async with gateway.client(user) as client:
        found = await json_of(await client.get("/v1/friends"))
    return {kind: [each["user"] for each in rows] for kind, rows in found.items()}


async def devices(gateway: Gateway, user: Login) -> list[str]:
    async with gateway.client(user) as client:
        rows: list[dict[str, Any]] = await json_of(await client.get("/v1/devices"))
    return [row["device"] for row in rows]


async def refused_for_the_rate(
    client: aiohttp.ClientSession, method: str, tail: str
) -> tuple[aiohttp.ClientResponse, int]:
    """Name users until there are too many; return that answer, and how many were not.

    On a slow machine the minute gives some back meanwhile.
    """
    for number in range(500):
        answer = await client.request(method, f"/v1/friends/no{number}{tail}")
        if answer.status == 429:
            return answer, number
    raise AssertionError("there is no limit")


async def test_a_user_shows_devices_until_either_side_ends_it(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    async with gateway.client(ada) as client, gateway.client(bob) as other:
        before = now_ms()
        assert (await client.put(f"/v1/friends/{bob.name}")).status == 204
        fix = {"device": "phone", "lat": 47.5, "lon": 9.9, "time": now_ms() + 1}
        await json_of(await client.post("/v1/positions", json=fix))
        assert await friends(gateway, ada) == {"shown_to": [bob.name], "seen": []}
        assert await friends(gateway, bob) == {"shown_to": [], "seen": [ada.name]}
        [since] = (await json_of(await client.get("/v1/friends")))["shown_to"]
        assert before <= since["since"] <= now_ms()
        # The same again changes nothing: what is shown does not begin anew.
        assert (await client.put(f"/v1/friends/{bob.name}")).status == 204
        assert (await json_of(await client.get("/v1/friends")))["shown_to"] == [since]
        await answered(lambda: devices(gateway, bob))
        assert await devices(gateway, bob) == [f"{ada.name}/phone"]
        # Nobody else is concerned, and nobody shows what belongs to another one.
        assert (await other.delete(f"/v1/friends/{ada.name}")).status == 204
        assert await devices(gateway, bob) == [f"{ada.name}/phone"]
        assert (await client.delete(f"/v1/friends/{bob.name}")).status == 204
        assert await answered(lambda: devices(gateway, bob), lambda found: not found) == []
        await client.put(f"/v1/friends/{bob.name}")
        assert (await other.delete(f"/v1/friends/{ada.name}/sight")).status == 204
        assert await friends(gateway, ada) == {"shown_to": [], "seen": []}


async def test_what_is_refused(gateway: Gateway, ada: Login, bob: Login) -> None:
    async with gateway.client(ada) as client:
        for name, status in ((ada.name, 400), ("nobody-here", 404), ("_operator", 404)):
            assert (await client.put(f"/v1/friends/{name}")).status == status, name
        # Names of users are not tried in any number.
        await refused_for_the_rate(client, "PUT", "")
    phone = Login(ada.name, gateway.users.add_token(ada.name, "phone"))
    async with gateway.client(phone) as device:
        assert (await device.put(f"/v1/friends/{bob.name}")).status == 403
        assert (await device.get("/v1/friends")).status == 403
    cookie = f"{gateway_cookie(gateway)}={gateway.users.sessions.begin(ada.name)}"
    headers = (("Host", gateway.http), ("Cookie", cookie))
    for origin, status in ((None, 403), ("http://evil.example", 403), (gateway.url, 204)):
        more = () if origin is None else (("Origin", origin),)
        target = f"/v1/friends/{bob.name}/sight"
        answer = await ask(gateway.address, "DELETE", target, (*headers, *more))
        assert answer.status == status, (origin, answer)


def gateway_cookie(gateway: Gateway) -> str:
    return f"waylog-{gateway.users.rights.secret('session cookie', 4).hex()}"


async def test_how_precisely_and_until_when_is_chosen_and_changed(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    path = f"/v1/friends/{bob.name}"
    async with gateway.client(ada) as client, gateway.client(bob) as other:

        async def shown() -> dict[str, Any]:
            [own] = (await json_of(await client.get("/v1/friends")))["shown_to"]
            [seen] = (await json_of(await other.get("/v1/friends")))["seen"]
            assert seen == own | {"user": ada.name}
            found: dict[str, Any] = {name: own[name] for name in ("precision", "metres", "until")}
            return found

        assert (await client.put(path)).status == 204
        assert await shown() == {"precision": "exact", "metres": None, "until": None}
        until = now_ms() + 3_600_000
        asked = {"precision": "metres", "metres": 500, "until": until}
        assert (await client.put(path, json=asked)).status == 204
        assert await shown() == asked
        # What old clients send changes nothing, and what is not named stays.
        assert (await client.put(path)).status == 204
        assert await shown() == asked
        assert (await client.put(path, json={"precision": "town"})).status == 204
        assert await shown() == {"precision": "town", "metres": None, "until": until}
        assert (await client.put(path, json={"until": None})).status == 204
        assert await shown() == {"precision": "town", "metres": None, "until": None}


@pytest.mark.parametrize(
    "asked",
    [
        *({"precision": "street"}, {"precision": "metres"}, {"metres": 500}),
        *({"precision": "metres", "metres": 49}, {"precision": "metres", "metres": 50_001}),
        *({"precision": "town", "metres": 500}, {"until": 1}, {"until": "tomorrow"}),
        *({"until": True}, {"untill": 1}, []),
    ],
)
async def test_terms_that_there_are_not_are_refused(
    gateway: Gateway, ada: Login, bob: Login, asked: Any
) -> None:
    async with gateway.client(ada) as client:
        answer = await client.put(f"/v1/friends/{bob.name}", json=asked)
        assert answer.status == 400, await answer.text()
        assert await json_of(await client.get("/v1/friends")) == {"shown_to": [], "seen": []}


@pytest.mark.parametrize("until", [1e300, 10**20])
async def test_a_far_end_is_as_good_as_none(
    gateway: Gateway, ada: Login, bob: Login, until: float
) -> None:
    async with gateway.client(ada) as client, gateway.client(bob) as other:
        path = f"/v1/friends/{bob.name}"
        assert (await client.put(path, json={"until": until})).status == 204
        [seen] = (await json_of(await other.get("/v1/friends")))["seen"]
        assert seen["until"] > now_ms()


async def test_open_streams_tell_once_that_a_friend_shows_less(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    path = f"/v1/friends/{bob.name}"

    async def told(line: bytes) -> None:
        while line not in await stream.content.readline():
            assert not stream.content.at_eof()

    async with gateway.client(ada) as client, gateway.client(bob) as other:
        assert (await client.put(path, json={"precision": "town"})).status == 204
        sights = [(await json_of(await other.get("/v1/session")))["sight"]]
        stream = await other.get("/v1/stream", headers={"Accept": "text/event-stream"})
        async with other.ws_connect("/v1/ws") as socket, asyncio.timeout(60):
            assert (await socket.receive_json())["type"] == "ready"
            # To see more is no such news.
            for shown in ({"precision": "exact"}, {"precision": "town"}, None):
                answer = client.delete(path) if shown is None else client.put(path, json=shown)
                assert (await answer).status == 204
                sights.append((await json_of(await other.get("/v1/session")))["sight"])
                if shown != {"precision": "exact"}:
                    assert await socket.receive_json() == {"type": "narrowed"}
                    await told(b"event: narrowed")
            await socket.send_json({"type": "ping"})
            assert (await socket.receive_json())["type"] == "pong"
        stream.close()
        assert len(set(sights)) == 4


async def test_a_friendship_ends_by_itself_and_nothing_is_shown_any_more(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    last_shown = 0

    async def shown() -> list[str]:
        nonlocal last_shown
        asked = now_ms()
        if found := await devices(gateway, bob):
            last_shown = asked
        return found

    async with gateway.client(ada) as client, gateway.client(bob) as other:
        assert (await client.put(f"/v1/friends/{bob.name}")).status == 204
        fix = {"device": "phone", "lat": 47.5, "lon": 9.9, "time": now_ms() + 1}
        await json_of(await client.post("/v1/positions", json=fix))
        await answered(lambda: devices(gateway, bob))
        path = f"/v1/devices/{ada.name}%2Fphone"
        assert (await other.get(path)).status == 200
        until = now_ms() + 3_000
        assert (await client.put(f"/v1/friends/{bob.name}", json={"until": until})).status == 204
        await answered(shown, lambda found: not found)
        assert until <= now_ms()
        assert last_shown < until + 2_000
        assert (await other.get(path)).status == 403
        assert await friends(gateway, ada) == {"shown_to": [], "seen": []}


async def requests_of(gateway: Gateway, user: Login) -> dict[str, list[str]]:
    async with gateway.client(user) as client:
        found = await json_of(await client.get("/v1/friends/requests"))
    sides = {side: [each["user"] for each in found[side]] for side in ("received", "sent")}
    return sides | {"blocked": found["blocked"]}


async def test_a_user_asks_and_the_other_one_shows_or_declines(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    nothing: dict[str, list[str]] = {"received": [], "sent": [], "blocked": []}
    async with gateway.client(ada) as client, gateway.client(bob) as other:
        assert (await other.post(f"/v1/friends/{ada.name}/request")).status == 204
        assert await requests_of(gateway, ada) == nothing | {"received": [bob.name]}
        assert await requests_of(gateway, bob) == nothing | {"sent": [ada.name]}
        [received] = (await json_of(await client.get("/v1/friends/requests")))["received"]
        assert received["until"] - received["time"] == 30 * 86_400_000
        # Nothing is shown by asking.
        assert await friends(gateway, bob) == {"shown_to": [], "seen": []}
        assert (await other.delete(f"/v1/friends/{ada.name}/request")).status == 204
        assert await requests_of(gateway, ada) == nothing
        await other.post(f"/v1/friends/{ada.name}/request")
        assert (await client.post(f"/v1/friends/{bob.name}/decline")).status == 204
        answer = await other.post(f"/v1/friends/{ada.name}/request")
        assert answer.status == 409
        assert 6 * 86_400 < int(answer.headers["Retry-After"]) <= 7 * 86_400
        # The other one may ask meanwhile, and is shown something.
        await client.post(f"/v1/friends/{bob.name}/request")
        assert (
            await other.put(f"/v1/friends/{ada.name}", json={"precision": "town"})
        ).status == 204
        assert await requests_of(gateway, ada) == await requests_of(gateway, bob) == nothing
        assert await friends(gateway, ada) == {"shown_to": [], "seen": [bob.name]}
        assert (await client.post(f"/v1/friends/{bob.name}/request")).status == 409


async def test_who_is_blocked_is_not_told_so(gateway: Gateway, ada: Login, bob: Login) -> None:
    async with gateway.client(ada) as client, gateway.client(bob) as other:
        await client.put(f"/v1/friends/{bob.name}")
        assert (await client.put(f"/v1/friends/{bob.name}/block")).status == 204
        assert await friends(gateway, ada) == {"shown_to": [], "seen": []}
        assert (await other.post(f"/v1/friends/{ada.name}/request")).status == 204
        assert (await requests_of(gateway, bob))["sent"] == [ada.name]
        found = await requests_of(gateway, ada)
        assert (found["received"], found["blocked"]) == ([], [bob.name])
        assert (await client.delete(f"/v1/friends/{bob.name}/block")).status == 204
        assert (await requests_of(gateway, ada))["received"] == [bob.name]


async def test_asking_and_blocking_tell_no_more_of_users_than_showing(
    gateway: Gateway, ada: Login
) -> None:
    async with gateway.client(ada) as client:
        for method, tail in (("PUT", ""), ("POST", "/request"), ("PUT", "/block")):
            for name, status in ((ada.name, 400), ("nobody-here", 404), ("_operator", 404)):
                answer = await client.request(method, f"/v1/friends/{name}{tail}")
                assert answer.status == status, (method, tail, name)
        # All of it is counted together.
        began, allowed = time.monotonic(), 0
        for method, tail in (("POST", "/request"), ("PUT", ""), ("PUT", "/block")):
            answer, before = await refused_for_the_rate(client, method, tail)
            allowed += before
            said = (await answer.json())["error"]
            assert said == f"{ada.name} may ask, show something to or block 10 users a minute"
        assert allowed <= 10 + (time.monotonic() - began) / 6
    phone = Login(ada.name, gateway.users.add_token(ada.name, "phone"))
    async with gateway.client(phone) as device:
        assert (await device.get("/v1/friends/requests")).status == 403
        for method, tail in (("POST", "request"), ("POST", "decline"), ("PUT", "block")):
            assert (await device.request(method, f"/v1/friends/x/{tail}")).status == 403


async def test_refusals_have_a_code_for_programs_that_speak_another_language(
    gateway: Gateway, ada: Login, bob: Login
) -> None:
    requests = gateway.users.friend_requests
    requests.ask(bob.name, ada.name)
    requests.decline(bob.name, ada.name)
    past = {"until": now_ms() - 1}
    async with gateway.client(ada) as client:
        for method, path, body, code in (
            ("PUT", ada.name, None, "oneself"),
            ("PUT", f"{ada.name}/block", None, "oneself"),
            ("PUT", "nobody-here", None, "no_such_user"),
            ("PUT", bob.name, past, "past_end"),
            ("POST", f"{bob.name}/request", None, "declined"),
        ):
            answer = await client.request(method, f"/v1/friends/{path}", json=body)
            assert (await answer.json())["code"] == code, (method, path)
        gateway.users.rights.befriend(bob.name, ada.name)
        answer = await client.post(f"/v1/friends/{bob.name}/request")
        assert (await answer.json())["code"] == "seen_already"
        answer, _ = await refused_for_the_rate(client, "POST", "/request")
        assert (await answer.json())["code"] == "too_often"
