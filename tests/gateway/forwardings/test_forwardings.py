"""Forwardings over HTTP, on a real log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.consumers.running import Broker
from tests.gateway.forwardings.conftest import HOOK, PATH
from tests.gateway.running import Gateway
from waylog.forwarding.definition import Progress, encode, record_key
from waylog.kafka.librdkafka_producer import append_records
from waylog.kafka.ranges.topic_reader import read_topic
from waylog.kafka.topics import FORWARDING, FORWARDING_PROGRESS
from waylog.sealing.sealing import is_sealed
from waylog.sealing.value_encryption import load_master_key
from waylog.sealing.value_keys import KeyRing


async def test_a_user_makes_changes_and_ends_forwardings(gateway: Gateway) -> None:
    anna, bert = gateway.user("anna"), gateway.user("bert")
    async with gateway.client(anna) as client, gateway.client(bert) as other:
        async with client.post(PATH, json=HOOK) as answer:
            assert answer.status == 201
            made = await answer.json()
        one = f"{PATH}/{made['id']}"
        assert made["url"] == "https://hook.example.org/..."
        assert (made["token"], made["signing_secret"], made["state"]) == ("set", "set", "new")
        async with client.patch(one, json={"devices": ["phone"]}) as answer:
            assert (await answer.json())["devices"] == ["phone"]
        async with client.post(f"{one}/pause") as answer:
            assert answer.status == 200
        async with client.get(one) as answer:
            shown = await answer.json()
            assert (shown["state"], shown["paused_by"]) == ("paused", "anna")
        async with client.post(f"{one}/resume", json={"skip": True}) as answer:
            resumed = await answer.json()
            assert resumed["paused_by"] is None
            assert resumed["since"] > made["since"]
        for method, path in (
            *(("GET", one), ("PATCH", one), ("DELETE", one)),
            *(("POST", f"{one}/pause"), ("POST", f"{one}/resume")),
        ):
            async with other.request(method, path, data=b"{}") as answer:
                assert answer.status == 404, "nobody else's"
        async with other.get(PATH) as answer:
            assert await answer.json() == []
        async with client.get(PATH) as answer:
            assert [each["id"] for each in await answer.json()] == [made["id"]]
        async with client.delete(one) as answer:
            assert answer.status == 204
        async with client.get(PATH) as answer:
            assert await answer.json() == []


async def test_no_secret_is_in_the_log_or_in_a_line(gateway: Gateway) -> None:
    async with gateway.client(gateway.user("cleo")) as client:
        async with client.post(PATH, json=HOOK) as answer:
            text = await answer.text()
        async with client.post(PATH, json=HOOK | {"kind": "no-kind"}) as answer:
            text += await answer.text()
        async with client.get(PATH) as answer:
            text += await answer.text()
    stored = [value for key, value in gateway.records(FORWARDING) if b"cleo" in (key or b"")]
    assert stored
    assert all(is_sealed(value) for value in stored)
    for secret in ("path-secret", "bearer-secret", "hmac-secret"):
        assert secret not in text
        assert secret not in gateway.process.output
        assert not any(secret.encode() in value for value in stored)


async def test_how_it_fares_is_shown(gateway: Gateway, key_file: Path) -> None:
    async with gateway.client(gateway.user("dora")) as client:
        async with client.post(PATH, json=HOOK) as answer:
            made = await answer.json()
        keys = KeyRing(gateway.bootstrap_servers, load_master_key(key_file))
        try:
            progress: dict[int, dict[str, Any]] = {
                0: {"offset": 7, "live": True, "forwarded": 1000},
                1: {"offset": 9, "forwarded": 2000, "error": "it is down", "error_time": 3000},
            }
            records = []
            for partition, members in progress.items():
                key = record_key("dora", made["id"], partition)
                value = encode(Progress(**members))
                records.append(
                    (FORWARDING_PROGRESS, key, keys.seal_value(FORWARDING_PROGRESS, value, key))
                )
            append_records(gateway.bootstrap_servers, records)
        finally:
            keys.close()
        async with client.get(f"{PATH}/{made['id']}") as answer:
            shown = await answer.json()
    assert (shown["state"], shown["forwarded"], shown["error"]) == ("failing", 2000, "it is down")
    assert shown["partitions"] == [
        {"partition": 0, "offset": 7, "live": True},
        {"partition": 1, "offset": 9, "live": False},
    ]


async def test_a_user_has_so_many_and_no_more(gateway: Gateway) -> None:
    async with gateway.client(gateway.user("eve")) as client:
        statuses = []
        for _ in range(11):
            async with client.post(PATH, json=HOOK) as answer:
                statuses.append(answer.status)
        assert statuses == [201] * 10 + [409]
        # On a slow machine some more are allowed meanwhile.
        while statuses[-1] != 429:
            assert len(statuses) < 500
            async with client.post(PATH, json=HOOK) as answer:
                statuses.append(answer.status)
    async with gateway.client(gateway.user("fred")) as client, client.post(PATH, json=HOOK) as one:
        assert one.status == 201, "others are not affected"


async def test_a_device_and_nobody_have_none(gateway: Gateway) -> None:
    owner = gateway.user("gina")
    token = owner._replace(token=gateway.users.add_token("gina", "phone"))
    async with gateway.client(token) as client, client.post(PATH, json=HOOK) as answer:
        assert answer.status == 403
    async with gateway.client() as client, client.get(PATH) as answer:
        assert answer.status == 401


async def test_without_a_key_there_are_none(gateway_broker: Broker, tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, gateway_broker.address)
    try:
        hans = gateway.user("hans")
        async with gateway.client(hans) as client, client.post(PATH, json=HOOK) as answer:
            assert answer.status == 404
            assert "WAYLOG_FORWARDING_KEY" in await answer.text()
    finally:
        gateway.close()


async def test_a_revocation_ends_forwardings_also_of_a_name_that_is_given_again(
    gateway: Gateway,
) -> None:
    gone, again = gateway.user("gone"), gateway.user("again")
    for login in (gone, again):
        async with gateway.client(login) as client, client.post(PATH, json=HOOK) as answer:
            assert answer.status == 201
    gateway.users.revoke("gone")
    gateway.users.revoke("again")
    again = gateway.user("again")

    def left() -> set[str]:
        newest = {
            each.key() or b"": each.value()
            for each in read_topic(gateway.bootstrap_servers, FORWARDING)
        }
        users = {key.partition(b"\n")[0] for key, value in newest.items() if value is not None}
        return {user.decode() for user in users}

    async with asyncio.timeout(60):
        while {"gone", "again"} & await asyncio.to_thread(left):
            await asyncio.sleep(0.1)
    async with gateway.client(again) as client:
        async with client.get(PATH) as answer:
            assert await answer.json() == []
        async with client.post(PATH, json=HOOK) as answer:
            assert answer.status == 201
    assert "again" in await asyncio.to_thread(left)


async def test_to_stop_is_not_limited(gateway: Gateway) -> None:
    async with gateway.client(gateway.user("hasty")) as client:
        async with client.post(PATH, json=HOOK) as answer:
            one = f"{PATH}/{(await answer.json())['id']}"
        statuses = [201]
        while statuses[-1] != 429:
            assert len(statuses) < 500
            async with client.patch(one, json={"name": "x"}) as answer:
                statuses.append(answer.status)
        for _ in range(2):
            async with client.post(f"{one}/pause") as answer:
                assert (await answer.json())["paused_by"] == "hasty"
        async with client.delete(one) as answer:
            assert answer.status == 204
