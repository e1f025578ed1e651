"""The log over HTTP, as used by clients of Confluent's REST proxy (version 2)."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from confluent_kafka import TopicPartition

from gateway.http.kafka_rest import rest_consumers
from gateway.http.kafka_rest.rest_consumers import RestConsumers, TooManyInstances, UnknownInstance
from tests.closed_consumers import observed_consumers
from tests.gateway.records import fix
from tests.gateway.running import Gateway, Login, json_of
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import Topic
from waylog.messages import encode

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
BINARY = {"Content-Type": "application/vnd.kafka.binary.v2+json"}


@pytest.fixture
def admin(gateway: Gateway, user: Login) -> Login:
    # Topics of their own: no other test should read the records of these tests.
    ensure_topics(
        gateway.bootstrap_servers,
        [Topic("rest", 1), Topic("rest-large", 1), Topic("rest-three", 3)],
    )
    return gateway.user(f"{user.name}-admin", admin=True)


async def read(client: aiohttp.ClientSession, instance: str, count: int) -> list[dict[str, Any]]:
    """Return the next records, at least `count`."""
    found: list[dict[str, Any]] = []
    for _ in range(30):
        found += await json_of(await client.get(f"{instance}/records?timeout=1000"))
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records")


async def test_the_log_is_for_administrators(gateway: Gateway, user: Login) -> None:
    async with gateway.client() as client:
        await json_of(await client.get("/topics"), 401)
    async with gateway.client(user) as client:
        for path in ("/topics", "/topics/location", "/brokers"):
            await json_of(await client.get(path), 403)
        await json_of(await client.post("/consumers/g", json={}), 403)


async def test_topics_and_partitions_are_described(gateway: Gateway, admin: Login) -> None:
    async with gateway.client(admin) as client:
        assert {"location", "address", "error"} <= set(await json_of(await client.get("/topics")))
        topic = await json_of(await client.get("/topics/location"))
        assert (topic["name"], len(topic["partitions"])) == ("location", 4)
        partitions = await json_of(await client.get("/topics/location/partitions"))
        one = await json_of(await client.get("/topics/location/partitions/1"))
        assert one == partitions[1]
        assert one["replicas"][0]["in_sync"] is True
        offsets = await json_of(await client.get("/topics/location/partitions/1/offsets"))
        assert offsets["beginning_offset"] <= offsets["end_offset"]
        assert len((await json_of(await client.get("/brokers")))["brokers"]) == 1
        for path, code in (
            ("/topics/none", 40401),
            ("/topics/location/partitions/99", 40402),
            ("/topics/location/partitions/x", 42203),
            ("/consumers/g/instances/none/records", 40403),
        ):
            answer = await json_of(await client.get(path), code // 100)
            assert answer["error_code"] == code


async def test_fixes_that_are_produced_count_for_the_quota(gateway: Gateway, admin: Login) -> None:
    value = json.loads(encode(fix(f"{admin.name}/phone")))
    records = [{"value": value}, {"value": value}]
    async with gateway.client(admin) as client:

        async def produce(topic: str) -> int:
            body = json.dumps({"records": records})
            answer = await client.post(f"/topics/{topic}", data=body, headers=JSON)
            return answer.status

        assert await produce("location") == 200
        gateway.users.rights.set_quota(admin.name, 3, None)
        async with asyncio.timeout(60):
            while await produce("location") != 429:
                await asyncio.sleep(0.05)
        assert await produce("rest") == 200
        gateway.users.rights.set_sending(admin.name, False)
        async with asyncio.timeout(60):
            while await produce("location") != 403:
                await asyncio.sleep(0.05)


async def test_records_are_produced_and_consumed(gateway: Gateway, admin: Login) -> None:
    group = f"/consumers/{admin.name}"
    async with gateway.client(admin) as client:
        records = [{"key": "k", "value": {"n": number}, "partition": 0} for number in range(3)]
        produced = await json_of(
            await client.post("/topics/rest", json={"records": records}, headers=JSON)
        )
        first = produced["offsets"][0]["offset"]
        assert [each["offset"] for each in produced["offsets"]] == [first, first + 1, first + 2]
        raw = base64.b64encode(b"\0raw").decode()
        await json_of(
            await client.post(
                "/topics/rest/partitions/0", json={"records": [{"value": raw}]}, headers=BINARY
            )
        )
        asked = {"name": "mine", "format": "binary", "auto.offset.reset": "earliest"}
        asked["auto.commit.enable"] = "false"
        created = await json_of(await client.post(group, json=asked))
        assert created["instance_id"] == "mine"
        instance = created["base_uri"].removeprefix(gateway.url)
        assert instance == f"{group}/instances/mine"
        taken = await json_of(await client.post(group, json=asked), 409)
        assert taken["error_code"] == 40902

        where = {"topic": "rest", "partition": 0}
        answer = await client.post(f"{instance}/assignments", json={"partitions": [where]})
        assert answer.status == 204
        assert (await json_of(await client.get(f"{instance}/assignments")))["partitions"] == [where]
        seek = {"offsets": [where | {"offset": first + 2}]}
        assert (await client.post(f"{instance}/positions", json=seek)).status == 204
        found = await read(client, instance, 2)
        assert [record["offset"] for record in found] == [first + 2, first + 3]
        assert base64.b64decode(found[0]["value"]) == b'{"n":2}'
        assert base64.b64decode(found[0]["key"]) == b'"k"'
        assert base64.b64decode(found[1]["value"]) == b"\0raw"
        await client.post(f"{instance}/positions/end", json={"partitions": [where]})
        assert await json_of(await client.get(f"{instance}/records?timeout=100")) == []

        commit = {"offsets": [where | {"offset": first + 2}]}
        assert (await client.post(f"{instance}/offsets", json=commit)).status == 200
        committed = await json_of(
            await client.get(f"{instance}/offsets", json={"partitions": [where]})
        )
        assert committed["offsets"] == [where | {"offset": first + 2, "metadata": ""}]
        assert (await client.delete(instance)).status == 204
        await json_of(await client.delete(instance), 404)


async def test_the_partition_of_the_path_counts_and_else_that_of_the_record(
    gateway: Gateway, admin: Login
) -> None:
    async with gateway.client(admin) as client:

        async def produced(path: str) -> list[int]:
            records = [{"value": 1, "partition": 1}, {"value": 2, "partition": 2}]
            answer = await client.post(path, json={"records": records}, headers=JSON)
            return [each["partition"] for each in (await json_of(answer))["offsets"]]

        assert await produced("/topics/rest-three") == [1, 2]
        assert await produced("/topics/rest-three/partitions/0") == [0, 0]


async def test_large_bodies_of_records_are_stored_and_read_as_small_ones_are(
    gateway: Gateway, admin: Login
) -> None:
    group = f"/consumers/{admin.name}-large"
    async with gateway.client(admin) as client:
        records = [{"key": n, "value": {"n": n, "text": "x" * 40}} for n in range(1_000)]
        sent = [record | {"partition": 0} for record in records]
        produced = await json_of(
            await client.post("/topics/rest-large", json={"records": sent}, headers=JSON)
        )
        offsets = [each["offset"] for each in produced["offsets"]]
        assert sorted(offsets) == offsets and len(offsets) == len(records)
        asked = {"name": "l", "format": "json", "auto.offset.reset": "earliest"}
        created = await json_of(await client.post(group, json=asked))
        instance = created["base_uri"].removeprefix(gateway.url)
        where = {"topic": "rest-large", "partition": 0}
        answer = await client.post(f"{instance}/assignments", json={"partitions": [where]})
        assert answer.status == 204
        found = await read(client, instance, len(records))
        assert [{name: each[name] for name in ("key", "value")} for each in found] == records
        assert (await client.delete(instance)).status == 204
        too_much = {"topics": ["t" * 200] * 1_000}
        refused = await client.post(f"{instance}/subscription", json=too_much)
        assert refused.status == 404
        created = await json_of(await client.post(group, json=asked))
        refused = await client.post(f"{instance}/subscription", json=too_much)
        assert refused.status == 413
        assert (await client.delete(instance)).status == 204


async def test_a_subscription_reads_json(gateway: Gateway, admin: Login, user: Login) -> None:
    async with gateway.client(user) as client:
        await json_of(
            await client.post("/v1/positions", json={"device": "phone", "lat": 1, "lon": 2})
        )
    async with gateway.client(admin) as client:
        created = await json_of(
            await client.post(
                f"/consumers/{admin.name}-s",
                json={"format": "json", "auto.offset.reset": "earliest"},
            )
        )
        instance = created["base_uri"].removeprefix(gateway.url)
        topics = {"topics": ["location"]}
        assert (await client.post(f"{instance}/subscription", json=topics)).status == 204
        assert await json_of(await client.get(f"{instance}/subscription")) == topics
        for _ in range(50):
            found = await json_of(await client.get(f"{instance}/records?timeout=1000"))
            own = [record for record in found if record["key"] == f"{user.name}/phone"]
            if own:
                break
        assert own[0]["value"]["lat"] == 1
        assert (await client.post(f"{instance}/offsets")).status == 200
        assert (await client.delete(f"{instance}/subscription")).status == 204
        assert (await client.delete(instance)).status == 204


@pytest.mark.parametrize(
    ("path", "body", "headers", "code"),
    [
        ("/topics/rest", b"{}", JSON, 42201),
        ("/topics/rest", b'{"records":[]}', JSON, 42202),
        ("/topics/rest", b'{"records":[{"value":1}]}', {"Content-Type": "text/plain"}, 41501),
        ("/topics/rest", b'{"records":[{"value":1}]}', BINARY, 42206),
        ("/topics/rest", b'{"records":[{"value":"%"}]}', BINARY, 42206),
        ("/topics/none", b'{"records":[{"value":1}]}', JSON, 40401),
        ("/consumers/g", b'{"format":"avro"}', JSON, 42204),
        ("/consumers/g", b'{"auto.offset.reset":"never"}', JSON, 42205),
    ],
)
async def test_refusals_have_the_proxys_form(
    gateway: Gateway, admin: Login, path: str, body: bytes, headers: dict[str, str], code: int
) -> None:
    async with gateway.client(admin) as client:
        answer = await json_of(await client.post(path, data=body, headers=headers), code // 100)
        assert answer["error_code"] == code
        assert answer["message"]


async def test_consumers_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_consumers, "INSTANCES_MAX", 2)
    consumers = RestConsumers("127.0.0.1:1", "test")
    for _ in range(2):
        await consumers.create("g", None, "json", {}, "root")
    with pytest.raises(TooManyInstances):
        await consumers.create("g", None, "json", {}, "root")
    assert len(consumers) == 2
    await consumers.close()
    assert len(consumers) == 0


async def test_one_administrator_does_not_take_all_consumers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rest_consumers, "INSTANCES_EACH_MAX", 2)
    consumers = RestConsumers("127.0.0.1:1", "test")
    for _ in range(2):
        await consumers.create("g", None, "json", {}, "root")
    with pytest.raises(TooManyInstances):
        await consumers.create("g", None, "json", {}, "root")
    await consumers.create("g", None, "json", {}, "another")
    await consumers.close()


class Busy:
    """Calls that last until they are let go."""

    def __init__(self) -> None:
        self.begun = 0
        self._let_go = threading.Event()
        self._begins = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def call(self) -> None:
        self.begun += 1
        self._loop.call_soon_threadsafe(self._begins.set)
        self._let_go.wait()

    async def until_begun(self, count: int) -> None:
        while self.begun < count:
            self._begins.clear()
            await self._begins.wait()

    def let_go(self) -> None:
        self._let_go.set()


@pytest.fixture
async def busy() -> AsyncIterator[Busy]:
    busy = Busy()
    yield busy
    # Threads that wait would keep the process of a failed test from ending.
    busy.let_go()


async def test_an_instance_serves_one_call_at_a_time(busy: Busy) -> None:
    consumers = RestConsumers("127.0.0.1:1", "test")
    first, second = [await consumers.create("g", None, "json", {}, "root") for _ in range(2)]
    calls = [asyncio.create_task(consumers.run(first, busy.call)) for _ in range(2)]
    async with asyncio.timeout(60):
        await busy.until_begun(1)
        # The call that waits for the first instance takes no turn from the other one.
        assert await consumers.run(second, lambda: busy.begun) == 1
        busy.let_go()
        await asyncio.gather(*calls)
    assert busy.begun == 2
    await consumers.close()


async def test_one_administrators_calls_leave_threads_to_others(busy: Busy) -> None:
    consumers = RestConsumers("127.0.0.1:1", "test")
    own = [await consumers.create("g", None, "json", {}, "root") for _ in range(5)]
    another = await consumers.create("g", None, "json", {}, "another")
    calls = [asyncio.create_task(consumers.run(each, busy.call)) for each in own]
    async with asyncio.timeout(60):
        await busy.until_begun(2)
        assert await consumers.run(another, lambda: busy.begun) == 2
        busy.let_go()
        await asyncio.gather(*calls)
    await consumers.close()


async def test_instances_that_nobody_uses_are_closed(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_consumers, "_SWEEP_S", 0.01)
    consumers = RestConsumers("127.0.0.1:1", "test")
    fresh, working, idle = [
        await consumers.create("g", name, "json", {}, "root")
        for name in ("fresh", "working", "idle")
    ]
    call = asyncio.create_task(consumers.run(working, busy.call))
    async with asyncio.timeout(60):
        await busy.until_begun(1)
        for each in (working, idle):
            each.used -= rest_consumers.IDLE_S + 1
        while len(consumers) == 3:
            await asyncio.sleep(0.01)
        with pytest.raises(UnknownInstance):
            consumers.instance("g", "idle")
        assert consumers.instance("g", "fresh") is fresh
        assert consumers.instance("g", "working") is working
        busy.let_go()
        await call
    await consumers.close()


async def test_an_instance_that_is_deleted_leaves_its_group_before_it_closes(
    gateway: Gateway, admin: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = observed_consumers()
    monkeypatch.setattr(rest_consumers, "Consumer", observed)
    consumers = RestConsumers(gateway.bootstrap_servers, "test")
    reading = await consumers.create(f"{admin.name}-group", None, "json", {}, "root")
    await consumers.run(reading, reading.subscribe, ["rest"])
    async with asyncio.timeout(60):
        while not reading.consumer.assignment():
            await consumers.run(reading, reading.records, 0.1, 1000)
    by_hand = await consumers.create(f"{admin.name}-hand", None, "json", {}, "root")
    await consumers.run(by_hand, by_hand.assign, [TopicPartition("rest", 0)])
    await consumers.close()
    assert observed.held == [[], [TopicPartition("rest", 0)]]
