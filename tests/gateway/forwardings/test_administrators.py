"""Administrators see and pause forwardings of all users, over HTTP and by the command line."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.forwardings.store import ForwardingStore
from tests.consumers.running import WAYLOG
from tests.gateway.forwardings.conftest import HOOK, PATH
from tests.gateway.running import Gateway, Login, json_of
from waylog.forwarding.keys import FORWARDING_KEY
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import FORWARDING, LOG
from waylog.sealing.sealing import is_sealed

ALL = "/v1/admin/forwardings"
PAUSES = "/v1/admin/forwarding-pauses"


async def made(gateway: Gateway, login: Login, host: str) -> str:
    async with gateway.client(login) as client:
        body = HOOK | {"url": f"https://{host}/path-secret"}
        found: str = (await json_of(await client.post(PATH, json=body), 201))["id"]
        return found


async def said(gateway: Gateway, words: str) -> None:
    """Wait for a line of the gateway: a thread of this process reads them."""
    async with asyncio.timeout(60):
        while not any(words in line for line in gateway.process.lines):
            await asyncio.sleep(0.01)


async def seen(gateway: Gateway, login: Login, forwarding_id: str) -> dict[str, Any]:
    async with gateway.client(login) as client:
        found: dict[str, Any] = await json_of(await client.get(f"{PATH}/{forwarding_id}"))
        return found


async def test_administrators_see_owner_server_and_state_and_no_secrets(gateway: Gateway) -> None:
    ida, jon = gateway.user("ida"), gateway.user("jon")
    ids = [
        await made(gateway, ida, "one.example.org"),
        await made(gateway, ida, "Two.Example.org:8443"),
        await made(gateway, jon, "two.example.org"),
    ]
    async with gateway.client(gateway.admin) as client:

        async def listed(query: str) -> list[dict[str, Any]]:
            answer = await client.get(f"{ALL}?{query}")
            assert "secret" not in await answer.text()
            found: list[dict[str, Any]] = (await json_of(answer))["forwardings"]
            return found

        of_all = {each["id"]: each for each in await listed("")}
        assert of_all.keys() >= set(ids)
        first = of_all[ids[0]]
        assert (first["user"], first["url"], first["state"]) == (
            *("ida", "https://one.example.org/...", "new"),
        )
        assert {each["id"] for each in await listed("user=ida")} == set(ids[:2])
        assert {each["id"] for each in await listed("host=TWO.example.org.")} == set(ids[1:])
        assert await listed("user=nobody") == []
        assert {each["id"] for each in await listed("after=ida&host=two.example.org")} == {ids[2]}
        assert (await client.delete(f"{ALL}/jon/{ids[2]}")).status == 204
        assert (await client.delete(f"{ALL}/jon/{ids[2]}")).status == 404
        assert (await client.delete(f"{ALL}/jon/{ids[0]}")).status == 404, "it is ida's"
        assert (await client.delete(ALL)).status == 400
        found = await json_of(await client.delete(f"{ALL}?user=ida&host=two.example.org"))
        assert found == {"removed": 1}
        assert {each["id"] for each in await listed("user=ida")} == {ids[0]}
    await said(gateway, f"admin has ended forwarding {ids[1]} of ida")


@pytest.mark.parametrize(
    "scope",
    [
        {"user": "kim"},
        {"host": "complains.example.org"},
        {"user": "kim", "host": "Complains.example.org."},
        {"user": "kim", "forwarding": None},
    ],
    ids=str,
)
async def test_an_owner_sees_why_and_cannot_resume(
    gateway: Gateway, scope: dict[str, str | None]
) -> None:
    kim, lou = gateway.user("kim"), gateway.user("lou")
    one, of_other = (
        await made(gateway, kim, "complains.example.org"),
        await made(gateway, lou, "other.example.org"),
    )
    if "forwarding" in scope:
        scope = scope | {"forwarding": one}
    async with gateway.client(gateway.admin) as admin, gateway.client(kim) as client:
        pause = await json_of(
            await admin.post(PAUSES, json=scope | {"reason": "The server complains."}), 201
        )
        shown = await seen(gateway, kim, one)
        assert (shown["state"], shown["paused_by"]) == ("paused", None)
        assert shown["paused_by_administrator"]["reason"] == "The server complains."
        assert "admin" not in json.dumps(shown["paused_by_administrator"]), "no name"
        assert (await seen(gateway, lou, of_other))["state"] == "new"
        answer = await client.post(f"{PATH}/{one}/resume")
        assert "The server complains." in (await json_of(answer, 409))["error"]
        # Neither by a pause of one's own, nor by a change, nor by a new one.
        for request in (
            client.post(f"{PATH}/{one}/pause"),
            client.patch(f"{PATH}/{one}", json={"name": "other"}),
        ):
            async with request as answer:
                assert (await json_of(answer))["paused_by_administrator"]
        assert (await client.post(f"{PATH}/{one}/resume")).status == 409
        if "forwarding" not in scope:
            again = await made(gateway, kim, "complains.example.org")
            assert (await seen(gateway, kim, again))["state"] == "paused"
        assert pause["id"] in {each["id"] for each in await json_of(await admin.get(PAUSES))}
        assert (await admin.delete(f"{PAUSES}/{pause['id']}")).status == 204
        assert (await admin.delete(f"{PAUSES}/{pause['id']}")).status == 404
        shown = await seen(gateway, kim, one)
        assert (shown["paused_by"], shown["paused_by_administrator"]) == ("kim", None)
        async with client.post(f"{PATH}/{one}/resume") as answer:
            assert (await json_of(answer))["state"] == "new"
    await said(gateway, "admin has paused")
    await said(gateway, "admin has resumed")
    gateway.users.revoke("kim")
    gateway.users.revoke("lou")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "reason"),
        ({"reason": "x"}, "names a user, a host, or both"),
        ({"reason": " ", "user": "a"}, "a reason is needed"),
        ({"reason": "a\nb", "user": "a"}, "of one line"),
        ({"reason": "x" * 501, "user": "a"}, "length"),
        ({"reason": "x", "host": "https://example.org"}, "without scheme and port"),
        ({"reason": "x", "host": "example.org:80"}, "without scheme and port"),
        ({"reason": "x", "host": "exämple.org"}, "xn--"),
        ({"reason": "x", "host": ""}, "a name or an address"),
        ({"reason": "x", "user": "a/b"}, "no name of a user"),
        ({"reason": "x", "host": "example.org", "forwarding": "0" * 16}, "by its user"),
        ({"reason": "x", "user": "a", "forwarding": "1"}, "16 hexadecimal digits"),
        ({"reason": "x", "user": "a", "id": "1"}, "unknown field"),
    ],
    ids=str,
)
async def test_a_pause_that_cannot_be_meant_is_refused(
    gateway: Gateway, body: dict[str, str], message: str
) -> None:
    async with gateway.client(gateway.admin) as client:
        answer = await json_of(await client.post(PAUSES, json=body), 400)
    assert message in answer["error"]


async def test_the_forwardings_of_all_users_come_in_pages_of_whole_users(
    gateway: Gateway, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORWARDING_KEY, str(key_file))
    for name in ("pat", "pia"):
        login = gateway.user(name)
        for _ in range(2):
            await made(gateway, login, f"{name}.example.org")
    store = ForwardingStore(gateway.bootstrap_servers, "test")
    try:
        users = store.users()
        assert {"pat", "pia"} <= set(users)
        found: list[str] = []
        while page := store.of_users(found[-1] if found else "", 1):
            assert len(page) == 1
            found += page
        assert found == users
        assert len(store.of_users("pas", 1)["pat"]) == 2
        assert store.of_users("", 1000).keys() == set(users)
    finally:
        store.close()


async def test_only_administrators_may(gateway: Gateway) -> None:
    async with gateway.client(gateway.user("mia")) as client:
        for method, path in (("GET", ALL), ("DELETE", f"{ALL}?user=mia"), ("POST", PAUSES)):
            async with client.request(method, path, data=b"{}") as answer:
                assert answer.status == 403


async def test_pauses_are_sealed_and_end_with_their_user(gateway: Gateway) -> None:
    gateway.user("nell")
    async with gateway.client(gateway.admin) as client:
        body = {"user": "nell", "host": "home.example.org", "reason": "x"}
        pause = await json_of(await client.post(PAUSES, json=body), 201)
        stored = [
            (key, value)
            for key, value in gateway.records(FORWARDING)
            if pause["id"].encode() in (key or b"")
        ]
        assert len(stored) == 1
        assert is_sealed(stored[0][1])
        assert b"example" not in stored[0][0]  # type: ignore[operator]
        gateway.users.revoke("nell")
        gateway.user("nell")
        assert await _gone(client, pause["id"])


async def _gone(client: aiohttp.ClientSession, pause_id: str) -> bool:
    async with asyncio.timeout(60):
        while pause_id in {each["id"] for each in await json_of(await client.get(PAUSES))}:
            await asyncio.sleep(0.1)
    return True


async def test_operators_pause_and_resume_by_the_command_line(
    gateway: Gateway, key_file: Path
) -> None:
    olga = gateway.user("olga")
    one = await made(gateway, olga, "cli.example.org")

    def waylog(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*WAYLOG, "forwarding", *words, "--bootstrap-servers", gateway.bootstrap_servers],
            capture_output=True, text=True, check=False,
            env=os.environ | {FORWARDING_KEY: str(key_file)},
        )  # fmt: skip

    done = waylog("pause", "--host", "cli.example.org", "--reason", "They ask for it.")
    assert done.returncode == 0, done.stderr
    shown = await seen(gateway, olga, one)
    assert shown["paused_by_administrator"]["reason"] == "They ask for it."
    [row] = [
        json.loads(line)
        for line in waylog("list", "--json", "--host", "cli.example.org").stdout.splitlines()
    ]
    assert (row["user"], row["state"]) == ("olga", "paused")
    assert "They ask for it." in waylog("pauses").stdout
    done = waylog("resume", "--host", "cli.example.org", "--user", "olga")
    assert done.returncode == 1
    assert "nobody has paused all forwardings of olga to cli.example.org" in done.stderr
    assert waylog("resume", "--host", "cli.example.org").returncode == 0
    assert (await seen(gateway, olga, one))["state"] == "new"
    lines = b"".join(
        each.value() or b"" for each in read_topic(gateway.bootstrap_servers, LOG)
    ).decode()
    assert "has paused all forwardings to cli.example.org: They ask for it." in lines
    assert "has resumed all forwardings to cli.example.org" in lines
    assert waylog("pause", "--reason", "x").returncode == 2
