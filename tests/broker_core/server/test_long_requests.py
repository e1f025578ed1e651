"""Requests about many things: the same answers as to many requests, and nobody waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core import errors
from broker_core.environment import Environment, SystemDisk
from broker_core.protocol import definitions as api
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.schema import AnyApi
from broker_core.server.runtime import Broker
from tests.broker_core.server.hasty_clock import HastyClock
from tests.broker_core.server.many_things import (
    NAMES,
    THERE,
    Connect,
    changed_settings,
    client_of_topics,
    new_topics,
)
from tests.broker_core.server.raw_client import RawClient, fetch_body, produce_body
from tests.broker_core.server.topics import create_topic, delete_topic
from waylog.network.connection_ends import reset

Start = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> RawClient:
    return await client_of_topics(broker, connect)


def _ask(name: str, **more: Any) -> Callable[[list[str]], dict[str, Any]]:
    """Return a function that makes a request with a list of names."""
    return lambda names: {name: names} | more


def _ask_partitions(names: list[str]) -> dict[str, Any]:
    partition = {"partition_index": 0, "partition": 0, "timestamp": -1, "leader_epoch": 0}
    return {
        "topics": [
            {"name": each, "topic": each, "partitions": [partition], "partition_indexes": [0]}
            for each in names
        ]
    }


ASKED: list[tuple[AnyApi, int, str, Callable[[list[str]], dict[str, Any]]]] = [
    (api.METADATA, 12, "topics", lambda names: {"topics": [{"name": each} for each in names]}),
    (api.METADATA, 1, "topics", lambda names: {"topics": [{"name": each} for each in names]}),
    (
        api.DESCRIBE_CONFIGS,
        4,
        "results",
        lambda names: {
            "resources": [{"resource_type": 2, "resource_name": each} for each in names],
            "include_synonyms": True,
        },
    ),
    (api.LIST_OFFSETS, 6, "topics", _ask_partitions),
    (api.OFFSET_FOR_LEADER_EPOCH, 4, "topics", _ask_partitions),
    (api.DESCRIBE_PRODUCERS, 0, "topics", _ask_partitions),
    (api.DESCRIBE_GROUPS, 5, "groups", _ask("groups")),
    (api.CONSUMER_GROUP_DESCRIBE, 0, "groups", _ask("group_ids")),
    (api.SHARE_GROUP_DESCRIBE, 1, "groups", _ask("group_ids")),
    (api.FIND_COORDINATOR, 4, "coordinators", _ask("coordinator_keys")),
    (api.DESCRIBE_TRANSACTIONS, 0, "transaction_states", _ask("transactional_ids")),
    (api.DELETE_GROUPS, 2, "results", _ask("groups_names")),
    (
        api.OFFSET_FETCH,
        8,
        "groups",
        lambda names: {"groups": [{"group_id": each, "topics": None} for each in names]},
    ),
    (
        api.DESCRIBE_SHARE_GROUP_OFFSETS,
        0,
        "groups",
        lambda names: {"groups": [{"group_id": each, "topics": None} for each in names]},
    ),
    (api.CREATE_TOPICS, 5, "topics", lambda names: new_topics(names) | {"validate_only": True}),
    (
        api.CREATE_PARTITIONS,
        3,
        "results",
        lambda names: {
            "topics": [{"name": each, "count": 2, "assignments": None} for each in names],
            "timeout_ms": 1000,
            "validate_only": True,
        },
    ),
    (api.ALTER_CONFIGS, 2, "responses", lambda names: changed_settings(names, operation=False)),
    (api.INCREMENTAL_ALTER_CONFIGS, 1, "responses", changed_settings),
]


@pytest.mark.parametrize(("asked", "version", "answered", "body"), ASKED)
async def test_a_long_request_is_answered_as_many_short_ones(
    client: RawClient,
    asked: AnyApi,
    version: int,
    answered: str,
    body: Callable[[list[str]], dict[str, Any]],
) -> None:
    short = []
    for name in NAMES:
        answer = await client.call(asked, version, body([name]))
        short += answer.pop(answered)
    long = await client.call(asked, version, body(NAMES))
    assert long.pop(answered) == short
    assert long == answer, "the other fields"
    assert len(short) == len(NAMES)


@pytest.mark.parametrize("version", [0, 1, 9, 12])
async def test_all_topics_are_described_as_each_is(client: RawClient, version: int) -> None:
    everything = await client.call(api.METADATA, version, {"topics": None if version else []})
    each = []
    for topic in everything["topics"]:
        body = {"topics": [{"name": topic["name"]}]}
        answer = await client.call(api.METADATA, version, body)
        each += answer.pop("topics")
    assert everything.pop("topics") == each
    assert everything == answer, "the other fields"
    assert {topic["name"] for topic in each} >= {*THERE}


@pytest.mark.parametrize("version", [0, 1, 12])
async def test_a_topic_that_is_deleted_while_all_are_described_is_left_out(
    start: Start, connect: Connect, version: int
) -> None:
    environment = Environment(HastyClock(), SystemDisk())
    broker = await start(environment, auto_create_topics_enable="true")
    for name in NAMES:
        create_topic(broker, name, 1, {})
    client = await connect(broker)
    body: dict[str, Any] = {
        "topics": None if version else [],
        "allow_auto_topic_creation": True,
    }
    client.send(api.METADATA, version, body)
    long = asyncio.create_task(client.receive(api.METADATA, version))
    async with asyncio.timeout(60):
        while not (long.done() or broker.network.turns.are_taken):
            await asyncio.sleep(0)
    assert not long.done()
    last = broker.topics.get(NAMES[-1])
    assert last is not None
    delete_topic(broker, last)
    _, answer = await long
    assert [each["name"] for each in answer["topics"]] == NAMES[:-1]
    assert {each["error_code"] for each in answer["topics"]} == {errors.NONE}
    # Nor has it been created again, as if somebody had named it.
    assert broker.topics.get(NAMES[-1]) is None


async def test_a_resource_that_is_named_again_and_again_is_described_once(
    client: RawClient,
) -> None:
    resources = [{"resource_type": 2, "resource_name": each} for each in ("t0", "t3") * 1_000]
    answer = await client.call(api.DESCRIBE_CONFIGS, 4, {"resources": resources})
    assert [each["resource_name"] for each in answer["results"]] == ["t0", "t3"]


async def test_resources_that_differ_in_their_type_or_in_what_is_asked_are_described_each(
    client: RawClient,
) -> None:
    asked: list[tuple[int, str, list[str] | None]] = [
        (2, "t0", ["retention.ms"]),
        (2, "t0", ["cleanup.policy", "retention.ms"]),
        (4, "t0", None),
        (32, "t0", ["retention.ms"]),
    ]
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        for kind, name, keys in asked * 2
    ]
    answer = await client.call(api.DESCRIBE_CONFIGS, 4, {"resources": resources})
    told = [
        (each["resource_type"], sorted(entry["name"] for entry in each["configs"]))
        for each in answer["results"]
    ]
    assert told == [
        (2, ["retention.ms"]),
        (2, ["cleanup.policy", "retention.ms"]),
        (4, []),  # there is no such broker
        (32, []),  # groups have no such setting
    ]


@pytest.mark.parametrize("limit", [1, 7, 2_000])
async def test_pages_of_partitions_end_at_the_limit(client: RawClient, limit: int) -> None:
    found, unknown = [], set()
    cursor: dict[str, Any] | None = None
    while True:
        body = {
            "topics": [{"name": each} for each in NAMES],
            "response_partition_limit": limit,
            "cursor": cursor,
        }
        answer = await client.call(api.DESCRIBE_TOPIC_PARTITIONS, 0, body)
        page = []
        for each in answer["topics"]:
            if each["error_code"] == errors.UnknownTopicOrPartition.code:
                unknown.add(each["name"])
            page += [(each["name"], part["partition_index"]) for part in each["partitions"]]
        assert len(page) <= limit
        found += page
        cursor = answer["next_cursor"]
        if cursor is None:
            break
        assert len(page) == limit
    expected = [
        (name, number)
        for name, count in sorted((name, 1 + at % 3) for at, name in enumerate(THERE))
        for number in range(count)
    ]
    assert found == expected
    assert unknown == set(NAMES) - set(THERE)


async def test_a_cursor_behind_all_topics_leaves_none(client: RawClient) -> None:
    body = {
        "topics": [{"name": each} for each in NAMES],
        "response_partition_limit": 10,
        "cursor": {"topic_name": "u", "partition_index": 0},
    }
    answer = await client.call(api.DESCRIBE_TOPIC_PARTITIONS, 0, body)
    assert (answer["topics"], answer["next_cursor"]) == ([], None)


@pytest.mark.parametrize("count", [51, 250])
async def test_a_group_with_many_topics_is_described_once(client: RawClient, count: int) -> None:
    topics = [{"topic_name": f"t{number}", "partitions": [0]} for number in range(count)]
    groups = [{"group_id": each, "topics": topics} for each in ("a", "b")]
    for each in groups:
        member = {"member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": 0, "rack_id": None}
        joins = {**member, "group_id": each["group_id"], "subscribed_topic_names": ["t0"]}
        answer = await client.call(api.SHARE_GROUP_HEARTBEAT, 1, joins)
        assert answer["error_code"] == errors.NONE
    short = []
    for topic in topics:
        body = {"groups": [{"group_id": "a", "topics": [topic]}]}
        answer = await client.call(api.DESCRIBE_SHARE_GROUP_OFFSETS, 0, body)
        short += answer["groups"][0]["topics"]
    answer = await client.call(api.DESCRIBE_SHARE_GROUP_OFFSETS, 0, {"groups": groups})
    assert [each["group_id"] for each in answer["groups"]] == ["a", "b"]
    assert [each["topics"] for each in answer["groups"]] == [short, short]
    assert len(short) == count


async def test_others_are_answered_before_a_long_request(broker: Broker, connect: Connect) -> None:
    greedy, other = await connect(broker), await connect(broker)
    for each in (greedy, other):
        await each.call(api.API_VERSIONS, 0, {})
    names = [{"name": f"nowhere{number}"} for number in range(20_000)]
    greedy.send(api.METADATA, 12, {"topics": names})
    long = asyncio.create_task(greedy.receive(api.METADATA, 12))
    while not (long.done() or broker.network.turns.are_taken):
        await asyncio.sleep(0)
    for _ in range(5):
        await other.call(api.METADATA, 12, {"topics": names[:1]})
    assert not long.done()
    _, answer = await long
    assert len(answer["topics"]) == len(names)


@pytest.mark.parametrize("has_id", [False, True])
async def test_who_asks_for_too_many_topics_that_do_not_exist_is_disconnected(
    client: RawClient, broker: Broker, connect: Connect, has_id: bool
) -> None:
    def named(number: int) -> dict[str, Any]:
        if has_id:
            return {"topic_id": (number + 1).to_bytes(16, "big"), "name": None}
        return {"name": f"nowhere{number}"}

    missing = [named(number) for number in range(20_000)]
    there = [{"name": each} for each in THERE]
    answer = await client.call(api.METADATA, 12, {"topics": [*there, *missing]})
    codes = [each["error_code"] for each in answer["topics"]]
    assert codes[: len(there)] == [errors.NONE] * len(there)
    assert all(codes[len(there) :])
    greedy = await connect(broker)
    greedy.send(api.METADATA, 12, {"topics": [*missing, named(20_000)]})
    assert await greedy.is_closed_by_peer()


async def test_all_pieces_count_for_the_quota_of_who_asks(start: Start, connect: Connect) -> None:
    broker = await start(quota_window_num="1", quota_window_size_seconds="1")
    client = await connect(broker)
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "ANONYMOUS"}],
        "ops": [{"key": "request_percentage", "value": 0.001, "remove": False}],
    }
    limit = {"entries": [quota], "validate_only": False}
    answer = await client.call(api.ALTER_CLIENT_QUOTAS, 1, limit)
    assert answer["entries"][0]["error_code"] == errors.NONE
    topics = [{"name": each} for each in NAMES]
    assert (await client.call(api.METADATA, 12, {"topics": topics}))["throttle_time_ms"] > 0


async def test_what_a_client_has_asked_that_has_gone_is_not_answered(
    broker: Broker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    greedy = await connect(broker)
    greedy.send(api.METADATA, 12, {"topics": [{"name": f"nowhere{n}"} for n in range(20_000)]})
    turns = broker.network.turns
    async with asyncio.timeout(60):
        while not turns.are_taken:
            await asyncio.sleep(0)
        greedy.writer.transport.abort()
        while turns.are_taken or broker.connections:
            await asyncio.sleep(0)
    assert "Traceback" not in caplog.text


async def test_what_is_left_of_a_request_is_given_up_with_who_has_asked(
    start: Start, connect: Connect
) -> None:
    broker = await start(Environment(HastyClock(0.0006), SystemDisk()))
    create_topic(broker, "t", 1, {})
    client, other = await connect(broker), await connect(broker)
    client.send(api.FETCH, 11, fetch_body("t", 0, max_wait_ms=60_000))
    client.send(api.METADATA, 12, {"topics": [{"name": f"nowhere{n}"} for n in range(20_000)]})
    turns = broker.network.turns
    async with asyncio.timeout(60):
        while not turns.are_taken:
            await asyncio.sleep(0)
        reset(client.writer.transport)
        # The broker, which reads nothing from the client now, notices when it answers the first,
        # long before the second has had its hundreds of turns.
        records = bytes(build_batch([(1_000, b"k", b"v", ())]))
        await other.call(api.PRODUCE, 8, produce_body("t", records))
        while broker.connections > 1:
            await asyncio.sleep(0)
    # One that has been waited for may still come.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not turns.are_taken
