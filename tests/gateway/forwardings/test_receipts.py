"""Receipts over HTTP tell what forwardings have sent to those who may list them, and no others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from tests.gateway.forwardings.conftest import HOOK, PATH
from tests.gateway.running import Gateway, Login, json_of
from waylog.forwarding.definition import Progress, encode, record_key
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.topics import FORWARDING_PROGRESS
from waylog.sealing.value_encryption import load_master_key
from waylog.sealing.value_keys import KeyRing

#: A zone in which it is about noon: the day of a run near midnight would be another at its end.
ZONE = f"Etc/GMT{time.gmtime().tm_hour - 12:+d}"
_ERROR = "https://hook.example.org answered 500: stack trace of the owner's"


async def told(gateway: Gateway, login: Login, device: str) -> dict[str, Any]:
    async with gateway.client(login) as client:
        return await receipt(client, device)


async def told_in_a_browser(gateway: Gateway, login: Login, device: str) -> dict[str, Any]:
    async with gateway.client() as client:
        asked = {"user": login.name, "token": login.token}
        answer = await client.post("/v1/session", json=asked, headers={"Origin": gateway.url})
        assert answer.status == 200
        client.headers["Cookie"] = answer.headers["Set-Cookie"].partition(";")[0]
        return await receipt(client, device)


async def receipt(client: aiohttp.ClientSession, device: str) -> dict[str, Any]:
    path = f"/v1/devices/{quote(device, safe='')}/receipts?tz={quote(ZONE)}"
    found: dict[str, Any] = await json_of(await client.get(path))
    return found


def put_progress(gateway: Gateway, key_file: Path, user: str, forwarding_id: str) -> None:
    """Write that it is behind, and that its server fails, in all partitions."""
    keys = KeyRing(gateway.bootstrap_servers, load_master_key(key_file))
    try:
        records = []
        for partition in range(4):
            key = record_key(user, forwarding_id, partition)
            value = encode(Progress(offset=0, error=_ERROR, error_time=1))
            sealed = keys.seal_value(FORWARDING_PROGRESS, value, key)
            records.append((FORWARDING_PROGRESS, key, sealed))
        append_records(gateway.bootstrap_servers, records)
    finally:
        keys.close()


async def test_owners_and_administrators_are_told_what_they_may_see_of_forwardings(
    gateway: Gateway, key_file: Path
) -> None:
    owner, other = gateway.user("mona"), gateway.user("nina")
    async with gateway.client(other) as client:
        await json_of(await client.post(PATH, json=HOOK | {"name": "ninas"}), 201)
    async with gateway.client(owner) as client:
        fix = {"device": "phone", "lat": 47.1, "lon": 9.5}
        await json_of(await client.post("/v1/positions", json=fix))
        assert (await receipt(client, "mona/watch"))["forwardings"] == []
        made = await json_of(await client.post(PATH, json=HOOK), 201)
        await json_of(await client.post(f"{PATH}/{made['id']}/pause"))
        put_progress(gateway, key_file, "mona", made["id"])
        await json_of(await client.post("/v1/positions", json=fix))
        (shown,) = (await receipt(client, "mona/phone"))["forwardings"]
        assert (shown["name"], shown["state"], shown["paused_by"]) == ("my hook", "paused", "mona")
        assert (shown["not_asked"], shown["waiting"], shown["sent"]) == (1, 1, 0)
        assert (shown["url"], shown["error"]) == ("https://hook.example.org/...", _ERROR)
    # Administrators see where it leads and how far it is, not what the server answers.
    (seen,) = (await told(gateway, gateway.admin, "mona/phone"))["forwardings"]
    assert seen == shown | {"error": None, "error_time": None}
    # A client that cannot list forwardings is not told of them here.
    device = Login("mona", gateway.users.add_token("mona", "phone"))
    others = [
        await told(gateway, device, "mona/phone"),
        await told_in_a_browser(gateway, owner, "mona/phone"),
    ]
    for each in others:
        assert (each["forwardings"], each["acknowledged"]) == (None, 2)
        assert any("not to a token of one device" in text for text in each["unknown"])
    text = str([shown, seen, others])
    for secret in ("path-secret", "bearer-secret", "hmac-secret", "ninas"):
        assert secret not in text
