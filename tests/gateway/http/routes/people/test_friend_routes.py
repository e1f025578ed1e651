"""Friends over HTTP: users show their devices to others, and stop."""

from __future__ import annotations

import itertools
from typing import Any

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
        statuses = [(await client.put(f"/v1/friends/no{n}")).status for n in range(12)]
        assert 429 in statuses
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
