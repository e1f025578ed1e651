"""Users over HTTP: administrators invite, change and revoke them."""

from __future__ import annotations

import itertools

import aiohttp
import pytest

from tests.gateway.running import Gateway, Login, json_of

_names = (f"guest{number}" for number in itertools.count())
USERS = "/v1/admin/users"


async def listed(client: aiohttp.ClientSession, name: str) -> dict[str, object] | None:
    rows = await json_of(await client.get(USERS))
    return next((row for row in rows if row["name"] == name), None)


async def test_an_invited_user_signs_in_once_by_the_link(gateway: Gateway) -> None:
    name = next(_names)
    async with gateway.client(gateway.admin) as client, gateway.client() as browser:
        made = await json_of(await client.post(USERS, json={"name": name}), 201)
        assert made["link"].startswith(f"{gateway.url}/#sign-in=")
        code = {"code": made["link"].partition("#sign-in=")[2]}
        session = await json_of(await browser.post("/v1/session", json=code))
        assert session["user"] == name and session["admin"] is False
        assert (await browser.post("/v1/session", json=code)).status == 401
        found = await listed(client, name)
        assert found is not None and found["password"] is False and found["devices"] == 0
        assert (await client.post(USERS, json={"name": name})).status == 409
        # Another link, for somebody who has lost everything.
        again = await json_of(await client.post(f"{USERS}/{name}/invitation"), 201)
        assert again["user"] == name and again["link"] != made["link"]


async def test_rights_are_changed_and_taken_at_once(gateway: Gateway, user: Login) -> None:
    path = f"{USERS}/{user.name}"
    async with gateway.client(gateway.admin) as client, gateway.client(user) as own:
        changes = {"may_send": False, "fixes_per_minute": 60, "devices_max": 3}
        assert (await client.patch(path, json=changes)).status == 204
        assert (await client.patch(path, json={"devices_max": None})).status == 204
        found = await listed(client, user.name)
        assert found is not None
        assert (found["may_send"], found["fixes_per_minute"], found["devices_max"]) == (
            *(False, 60, None),
        )
        answer = await own.post("/v1/positions", json={"lat": 1, "lon": 2})
        assert answer.status == 403
        assert (await client.patch(path, json={"admin": True})).status == 204
        assert (await listed(client, user.name) or {})["admin"] is True
        assert (await client.patch(path, json={"fixes_per_minute": 0})).status == 400
        assert (await client.patch(path, json={"name": "x"})).status == 400
        assert (await client.delete(path)).status == 204
        assert await listed(client, user.name) is None
        assert (await own.get("/v1/session")).status in (200, 401)
        assert not gateway.users.exists(user.name)


@pytest.mark.parametrize("name", ["", "a b", "../x", "<b>", "_operator", "x" * 65])
async def test_names_that_nobody_can_have(gateway: Gateway, name: str) -> None:
    async with gateway.client(gateway.admin) as client:
        assert (await client.post(USERS, json={"name": name})).status == 400


async def test_nobody_locks_themselves_out_or_changes_the_installations_own(
    gateway: Gateway, user: Login
) -> None:
    gateway.users.ensure_operator()
    async with gateway.client(gateway.admin) as client, gateway.client(user) as other:
        path = f"{USERS}/{gateway.admin.name}"
        assert (await client.patch(path, json={"admin": False})).status == 409
        assert (await client.delete(path)).status == 409
        for unknown in ("_operator", "nobody-here"):
            assert (await client.delete(f"{USERS}/{unknown}")).status == 404
            assert (await client.post(f"{USERS}/{unknown}/invitation")).status == 404
        assert await listed(client, "_operator") is None
        for method in ("GET", "POST"):
            assert (await other.request(method, USERS, json={"name": "x"})).status == 403
