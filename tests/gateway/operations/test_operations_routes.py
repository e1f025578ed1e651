"""What administrators see and change over HTTP, on a real gateway and a real broker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
import pytest_asyncio

from tests.apache_kafka import apache_kafka
from tests.attacks.test_nobody import basic
from tests.consumers.running import Broker
from tests.gateway.operations.written_log import Log
from tests.gateway.raw_http import ask
from tests.gateway.running import Gateway, answered, json_of
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topics import ERROR, LOCATION
from waylog.messages import Rejected, encode

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "<img src=x onerror=alert(1)>"
SEALED = b"\xe1\x01" + bytes(30)


@pytest.fixture(
    scope="module", params=["waylog", pytest.param("apache-kafka", marks=pytest.mark.kafka)]
)
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """Yield a gateway on our broker, and one on Apache Kafka (-m kafka)."""
    with ExitStack() as stack:
        if request.param == "apache-kafka":
            servers = stack.enter_context(apache_kafka())
            ensure_topics(servers)
        else:
            broker: Broker = request.getfixturevalue("gateway_broker")
            servers = broker.address
        folder = tmp_path_factory.mktemp("operations")
        day = folder / "history" / "date=2026-05-30"
        day.mkdir(parents=True)
        (day / "location-0-0-9.parquet").touch()
        running = Gateway(folder, servers, "--history", str(folder / "history"))
        stack.callback(running.close)
        yield running


@pytest.fixture(scope="module")
def log(gateway: Gateway) -> Log:
    return Log(gateway.bootstrap_servers)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(gateway: Gateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with gateway.client(gateway.admin) as client:
        yield client


async def told(client: aiohttp.ClientSession, path: str, status: int = 200) -> Any:
    async with client.get(f"/v1/admin/{path}") as answer:
        return await json_of(answer, status)


async def sent(
    client: aiohttp.ClientSession, method: str, path: str, body: Any = None, status: int = 200
) -> Any:
    async with client.request(method, f"/v1/admin/{path}", json=body) as answer:
        if status == 204:
            assert answer.status == 204, await answer.text()
            return None
        return await json_of(answer, status)


async def test_the_overview_tells_rates_lag_disks_and_parts(
    admin: aiohttp.ClientSession, log: Log
) -> None:
    first = await told(admin, "overview")
    assert first["cluster"]["brokers"][0]["answers"]
    assert abs(first["history_written"] / 1000 - time.time()) < 600
    assert first["cluster"]["brokers"][0]["disks"][0]["total_bytes"] > 0
    assert {"name": "appending", "healthy": True, "detail": ""} in first["parts"]
    assert {each["name"] for each in first["stages"]} >= {"append", "resolve"}
    log.create("measured")
    log.write("measured", *({"value": b"x"} for _ in range(50)))
    await asyncio.to_thread(lambda: log.take("counted", "measured", 10).close())

    async def overview() -> Any:
        return await told(admin, "overview")

    def has_lag(body: Any) -> bool:
        lags = {each["group"]: each["lag"] for each in body["groups"]}
        known = body["records_in_per_second"] is not None and not body["unknown"]
        return lags.get("counted") == 40 and known

    body = await answered(overview, has_lag)
    assert {each["group"]: each["state"] for each in body["groups"]}["counted"] == "empty"


async def test_brokers_and_their_quorum(admin: aiohttp.ClientSession) -> None:
    cluster = await told(admin, "brokers")
    [broker] = cluster["brokers"]
    assert broker["answers"] and broker["is_controller"] and broker["leads"] > 0
    assert [each["role"] for each in cluster["quorum"]] == ["active"]
    assert cluster["under_replicated"] == 0 and cluster["unknown"] == []


async def test_a_topic_is_created_configured_and_deleted_by_its_name(
    admin: aiohttp.ClientSession,
) -> None:
    new = {"name": "made-here", "partitions": 3, "settings": {"retention.ms": "60000"}}
    refusal = await sent(admin, "POST", "topics", new, 400)
    assert "confirm" in refusal["error"]
    await sent(admin, "POST", "topics", new | {"dry_run": True})
    await told(admin, "topics/made-here", 404)
    await sent(admin, "POST", "topics", new | {"confirm": "made-here"}, 201)
    refusal = await sent(admin, "POST", "topics", new | {"confirm": "made-here"}, 409)
    assert "exists" in refusal["error"]
    topic = await told(admin, "topics/made-here")
    assert topic["partitions"] == 3 and topic["owner"] == "other"
    settings = {each["name"]: (each["value"], each["source"]) for each in topic["settings"]}
    assert settings["retention.ms"] == ("60000", "topic")
    assert settings["cleanup.policy"][1] != "topic"
    changes = {"settings": {"retention.ms": "70000"}, "partitions": 4}
    await sent(admin, "PATCH", "topics/made-here", changes, 400)
    await sent(admin, "PATCH", "topics/made-here", changes | {"dry_run": True})
    assert (await told(admin, "topics/made-here"))["partitions"] == 3
    await sent(admin, "PATCH", "topics/made-here", changes | {"confirm": "made-here"})
    reset = {"defaults": ["retention.ms"], "confirm": "made-here"}
    await sent(admin, "PATCH", "topics/made-here", reset)
    topic = await told(admin, "topics/made-here")
    assert topic["partitions"] == 4
    sources = {each["name"]: each["source"] for each in topic["settings"]}
    assert sources["retention.ms"] != "topic"
    wrong = {"settings": {"no.such.setting": "1"}, "confirm": "made-here"}
    assert (
        "no.such.setting" in (await sent(admin, "PATCH", "topics/made-here", wrong, 409))["error"]
    )
    await sent(admin, "DELETE", "topics/made-here", status=400)
    await sent(admin, "DELETE", "topics/made-here?confirm=other", status=400)
    await sent(admin, "DELETE", "topics/made-here?confirm=made-here", status=204)
    await told(admin, "topics/made-here", 404)


async def test_what_the_platform_and_the_log_rely_on_stays(admin: aiohttp.ClientSession) -> None:
    refusal = await sent(admin, "DELETE", f"topics/{LOCATION}?confirm={LOCATION}", status=409)
    assert "platform" in refusal["error"]
    grown = {"partitions": 9, "confirm": LOCATION}
    await sent(admin, "PATCH", f"topics/{LOCATION}", grown, 409)
    forgetting = ({"retention.ms": "+1"}, {"retention.bytes": "5"}, {"cleanup.policy": "compact"})
    for forgets in forgetting:
        body = {"settings": forgets, "confirm": LOCATION}
        assert (
            next(iter(forgets))
            in (await sent(admin, "PATCH", f"topics/{LOCATION}", body, 409))["error"]
        )
    policy = {"defaults": ["cleanup.policy"], "confirm": LOCATION}
    await sent(admin, "PATCH", f"topics/{LOCATION}", policy, 409)
    longer = {"settings": {"retention.ms": "-1"}, "confirm": LOCATION, "dry_run": True}
    await sent(admin, "PATCH", f"topics/{LOCATION}", longer)
    own = "__consumer_offsets"
    changed = {"settings": {"retention.ms": "1"}, "confirm": own}
    await sent(admin, "PATCH", f"topics/{own}", changed, 409)
    await sent(admin, "DELETE", f"topics/{own}?confirm={own}", status=409)
    await sent(admin, "POST", "topics", {"name": "__mine", "confirm": "__mine"}, 409)
    listed = {each["name"]: each for each in (await told(admin, "topics"))["topics"]}
    assert listed[LOCATION]["owner"] == "platform" and listed[LOCATION]["bytes"] is not None


async def test_records_are_shown_as_what_they_are(admin: aiohttp.ClientSession, log: Log) -> None:
    log.create("mixed", 2)
    await sent(admin, "POST", "topics/mixed/elections", {"confirm": "mixed"})
    log.write(
        "mixed",
        {"key": b"a", "value": b'{"city":"Vaduz"}', "partition": 0, "timestamp": 1000},
        {"key": HOSTILE.encode(), "value": HOSTILE.encode(), "partition": 1, "timestamp": 2000},
        {"key": b"b", "value": SEALED, "partition": 0, "timestamp": 3000},
        {"key": b"c", "value": b"\x80\x81\xff", "partition": 0, "timestamp": 4000},
        {"key": b"d", "value": None, "partition": 0, "timestamp": 5000},
        {"key": b"e", "value": b"\x00\x00\x00\x00\x07abc", "partition": 0, "timestamp": 6000},
        {"key": b"\xff", "value": b"plain", "partition": 0, "headers": [("h", b"<b>")],
         "timestamp": 7000},
    )  # fmt: skip
    found = await told(admin, "topics/mixed/records")
    records = {each["time"]: each for each in found["records"]}
    assert [each["time"] for each in found["records"]] == [7000, 6000, 5000, 4000, 3000, 2000, 1000]
    assert records[1000]["value"] == {"kind": "json", "bytes": 16, "text": '{"city":"Vaduz"}'}
    assert records[2000]["value"]["text"] == records[2000]["key"]["text"] == HOSTILE
    # Of what is sealed there is nothing but that.
    assert records[3000]["value"] == {"kind": "sealed", "bytes": 32}
    assert records[4000]["value"]["kind"] == "bytes"
    assert records[4000]["value"]["text"].startswith("00000000  80 81 ff")
    assert records[5000]["value"] == {"kind": "null"}
    assert (
        records[6000]["value"]["kind"] == "bytes" and "registry" in records[6000]["value"]["note"]
    )
    assert records[7000]["headers"] == [["h", "<b>"]] and records[7000]["key"]["kind"] == "bytes"
    # From an offset, from a time, by key.
    found = await told(admin, "topics/mixed/records?partition=0&from=1&limit=2")
    assert [each["offset"] for each in found["records"]] == [1, 2]
    assert found["partitions"] == [{"partition": 0, "next": 3, "end": 6}]
    found = await told(admin, "topics/mixed/records?partition=0&from=1970-01-01T00:00:05")
    assert [each["offset"] for each in found["records"]] == [3, 4, 5]
    found = await told(admin, f"topics/mixed/records?key={quote('<img')}")
    assert [each["time"] for each in found["records"]] == [2000]
    await told(admin, "topics/mixed/records?partition=7", 404)
    await told(admin, "topics/no-such/records", 404)
    await told(admin, "topics/mixed/records?from=yesterday", 400)
    await told(admin, "topics/mixed/records?partition=x", 400)
    async with admin.get("/v1/admin/topics/mixed/records/0/2") as answer:
        assert await answer.read() == b"\x80\x81\xff"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.content_type == "application/octet-stream"
    await told(admin, "topics/mixed/records/0/1", 409)  # sealed
    await told(admin, "topics/mixed/records/0/99", 404)


async def test_a_huge_value_is_cut_and_the_answer_is_bounded(
    admin: aiohttp.ClientSession, log: Log
) -> None:
    log.create("huge")
    huge = json.dumps({"text": "ä" * 400_000}).encode()
    log.write("huge", *({"value": huge[:900_000]} for _ in range(20)))
    async with admin.get("/v1/admin/topics/huge/records?bytes=262144&limit=200") as answer:
        body = await answer.read()
    assert len(body) < 3 * 1024 * 1024
    [first, *_] = json.loads(body)["records"]
    assert first["value"]["cut"] and len(first["value"]["text"]) == 262_144
    async with admin.get("/v1/admin/topics/huge/records/0/0") as answer:
        assert await answer.read() == huge[:900_000]


async def test_offsets_are_set_after_a_dry_run_and_not_under_a_running_group(
    admin: aiohttp.ClientSession, log: Log
) -> None:
    group = f"readers {HOSTILE}/1"
    path = f"groups/{quote(group, safe='')}"
    log.create("read-on")
    log.write("read-on", *({"value": b"x"} for _ in range(20)))
    member = await asyncio.to_thread(log.take, group, "read-on", 5)
    shown = await told(admin, path)
    assert shown["members"][0]["reads"] == {"read-on": [0]}
    assert [(each["committed"], each["end"], each["lag"]) for each in shown["places"]] == [
        (5, 20, 15)
    ]
    assert shown["lag"] == 15
    reset = {"topic": "read-on", "to": "beginning"}
    refusal = await sent(admin, "POST", f"{path}/offsets", reset | {"confirm": group}, 409)
    assert "is running" in refusal["error"]
    await asyncio.to_thread(member.close)
    planned = await sent(admin, "POST", f"{path}/offsets", reset | {"dry_run": True})
    assert planned == [{"topic": "read-on", "partition": 0, "before": 5, "after": 0}]
    assert (await told(admin, path))["places"][0]["committed"] == 5
    await sent(admin, "POST", f"{path}/offsets", reset, 400)
    await sent(admin, "POST", f"{path}/offsets", reset | {"confirm": group})
    assert (await told(admin, path))["places"][0]["committed"] == 0
    await sent(admin, "POST", f"{path}/offsets", {"topic": "read-on", "to": "+7", "confirm": group})
    assert (await told(admin, path))["places"][0]["committed"] == 7
    assert group in {each["group"] for each in await told(admin, "groups")}
    await told(admin, "groups/nobody", 404)
    await sent(admin, "POST", "groups/nobody/offsets", reset | {"dry_run": True}, 404)
    await sent(
        admin, "POST", f"{path}/offsets", {"topic": "read-on", "to": "x", "dry_run": True}, 400
    )


async def test_leaders_and_replicas(admin: aiohttp.ClientSession, log: Log) -> None:
    log.create("moved", 2)
    await sent(admin, "POST", "topics/moved/elections", {}, 400)
    assert await sent(admin, "POST", "topics/moved/elections", {"confirm": "moved"}) == []
    await sent(admin, "POST", "topics/moved/elections", {"confirm": "moved", "unclean": True}, 400)
    await sent(admin, "POST", "topics/no-such/elections", {"confirm": "no-such"}, 404)
    [broker] = (await told(admin, "brokers"))["brokers"]
    there = {"brokers": [broker["id"]]}
    assert await sent(admin, "POST", "topics/moved/reassignments", there | {"dry_run": True}) == []
    refusal = await sent(
        admin, "POST", "topics/moved/reassignments", {"brokers": [77], "dry_run": True}, 409
    )
    assert "no broker 77" in refusal["error"]
    replicas = {"replicas": {"1": [broker["id"]]}}
    await sent(admin, "POST", "topics/moved/reassignments", replicas, 400)
    [move] = await sent(
        admin, "POST", "topics/moved/reassignments", replicas | {"confirm": "moved"}
    )
    assert move == {
        "partition": 1, "before": [broker["id"]], "after": [broker["id"]], "refused": "",
    }  # fmt: skip
    await sent(admin, "POST", "topics/moved/reassignments", {"dry_run": True}, 400)
    assert (
        await sent(
            admin, "POST", "topics/moved/reassignments", {"cancel": True, "confirm": "moved"}
        )
        == []
    )


async def test_refused_records_are_shown_and_sent_again_once(
    admin: aiohttp.ClientSession, log: Log, gateway: Gateway
) -> None:
    log.create("source")
    headers = {"topic": "source", "partition": "0", "offset": "3"}
    raw = f'{{"name":"{HOSTILE}"}}'.encode()
    letters = [
        Rejected(reason=f"not a fix {HOSTILE}", source="resolver", time=1_900_000_000_000 + number,
                 raw=raw, device="ada/phone", headers=origin)
        for number, origin in enumerate((headers, None))
    ]  # fmt: skip
    log.write(ERROR, *({"key": b"ada/phone", "value": encode(each)} for each in letters))
    listed = await told(admin, "refused")
    never, record = listed["records"][:2]
    assert record["reason"] == f"not a fix {HOSTILE}" and record["value"]["text"] == raw.decode()
    assert record["origin"] == "source:0:3" and never["origin"] is None
    shown = await told(admin, f"refused/{record['place']}")
    assert shown["record"]["value"]["text"] == raw.decode() and shown["base64"]
    places = {"places": [record["place"], never["place"]]}
    planned = await sent(admin, "POST", "refused/retries", places | {"dry_run": True})
    assert [(each["to"], bool(each["left_out"])) for each in planned] == [
        ("source", False), (None, True),
    ]  # fmt: skip
    assert gateway.records("source") == []
    done = {each["place"]: each for each in await sent(admin, "POST", "refused/retries", places)}
    assert done[record["place"]]["to"] == "source"
    assert gateway.records("source") == [(b"ada/phone", raw)]
    again = {each["place"]: each for each in await sent(admin, "POST", "refused/retries", places)}
    assert "sent before" in again[record["place"]]["left_out"]
    assert gateway.records("source") == [(b"ada/phone", raw)]
    await told(admin, "refused/location:0:1", 409)
    await told(admin, "refused/error:0:999999", 404)
    older = int(record["place"].rpartition(":")[2])
    assert all(
        int(each["place"].rpartition(":")[2]) < older
        for each in (await told(admin, f"refused?before={older}"))["records"]
    )


async def test_who_changed_what_is_in_the_log(
    admin: aiohttp.ClientSession, gateway: Gateway
) -> None:
    await sent(admin, "POST", "topics", {"name": "audited", "confirm": "audited"}, 201)
    await sent(admin, "POST", "topics", {"name": "audited", "confirm": "audited"}, 409)
    lines = await told(admin, "log")
    said = [each["message"] for each in lines if each["logger"] == "gateway.operations.audit"]
    assert "admin did create topic audited" in said
    assert any(each.startswith("admin could not create topic audited:") for each in said)
    assert await told(admin, f"log?after={lines[-1]['number']}") == []
    assert all(gateway.admin.token not in each["message"] for each in lines)

    async def stored() -> bool:
        return any(
            b"admin did create topic audited" in value for _, value in gateway.records("log")
        )

    await answered(stored)


async def test_a_page_of_another_site_changes_nothing(gateway: Gateway) -> None:
    body = json.dumps({"user": gateway.admin.name, "token": gateway.admin.token}).encode()
    kind = ("Content-Type", "application/json")
    answer = await ask(gateway.address, "POST", "/v1/session", (kind,), body)
    cookie = ("Cookie", answer.headers["set-cookie"].partition(";")[0])
    host = ("Host", gateway.http)
    new = json.dumps({"name": "forged", "confirm": "forged"}).encode()
    for headers in (
        (host, cookie, kind),
        (host, cookie, kind, ("Origin", "http://evil.example")),
        (host, cookie, kind, ("Origin", gateway.url), ("Sec-Fetch-Site", "cross-site")),
        (host, cookie, kind, ("Origin", "null")),
    ):
        answer = await ask(gateway.address, "POST", "/v1/admin/topics", headers, new)
        assert answer.status == 403, headers
    own = (host, cookie, kind, ("Origin", gateway.url), ("Sec-Fetch-Site", "same-origin"))
    answer = await ask(gateway.address, "POST", "/v1/admin/topics", own, new)
    assert answer.status == 201


async def test_the_token_of_an_administrators_device_is_good_for_nothing_here(
    gateway: Gateway,
) -> None:
    token = gateway.users.add_token(gateway.admin.name, "phone")
    headers = (("Authorization", f"Bearer {token}"),)
    for path in ("overview", "topics", "groups", "refused", "log", "brokers"):
        answer = await ask(gateway.address, "GET", f"/v1/admin/{path}", headers)
        assert answer.status == 403, path
    assert (
        await ask(gateway.address, "GET", "/v1/admin/log", (basic(gateway.admin),))
    ).status == 200


# Last: Apache Kafka takes minutes to delete so many.
# A cluster of ours holds 10,000; the platform's own are among them.
@pytest.mark.parametrize("count", [1_200, pytest.param(9_800, marks=pytest.mark.long)])
async def test_as_many_partitions_as_the_cluster_holds_come_in_pages(
    admin: aiohttp.ClientSession, log: Log, count: int
) -> None:
    name = f"wide-{count}"
    log.create(name, count)

    async def first() -> Any:
        async with admin.get(f"/v1/admin/topics/{name}") as answer:
            return await answer.json() if answer.status == 200 else None

    async def last() -> Any:
        return await told(admin, f"topics/{name}?start={count - 50}")

    # Apache Kafka takes a moment until brokers know a topic, and new leaders tell their offsets.
    topic = await answered(first)
    assert topic["partitions"] == count and len(topic["rows"]) == 100 and topic["next"] == 100
    topic = await answered(last, lambda body: body["rows"][0]["end"] == 0)
    assert [each["partition"] for each in topic["rows"]] == list(range(count - 50, count))
    assert topic["next"] is None
    refusal = await told(admin, f"topics/{name}/records", 409)
    assert "choose one" in refusal["error"]
    assert (await told(admin, f"topics/{name}/records?partition={count - 1}"))["records"] == []

    async def overview() -> Any:
        return await told(admin, "overview")

    def counts(body: Any) -> bool:
        return bool(body["cluster"]["partitions"] > count)

    assert "very many" in (await answered(overview, counts))["unknown"][0]
    await sent(admin, "DELETE", f"topics/{name}?confirm={name}", status=204)
