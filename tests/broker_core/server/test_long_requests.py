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
from tests.broker_core.server.raw_client import RawClient, fetch_body, produce_body
from tests.broker_core.server.topics import all_open, create_topic, delete_topic
from waylog.network.connection_ends import reset

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]

_NAMES = [f"t{number}" for number in range(130)]
#: Every third topic exists.
_THERE = _NAMES[::3]


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> RawClient:
    for number, name in enumerate(_THERE):
        create_topic(broker, name, 1 + number % 3, {})
    client = await connect(broker)
    async with asyncio.timeout(60):
        for kind in (0, 1):
            body = {"key_type": kind, "coordinator_keys": ["t0"]}
            while any(
                each["error_code"]
                for each in (await client.call(api.FIND_COORDINATOR, 4, body))["coordinators"]
            ):
                await asyncio.sleep(0.01)
    return client


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


def _topics(names: list[str]) -> dict[str, Any]:
    more = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [{"name": each, **more} for each in names], "timeout_ms": 60_000}


def _settings(names: list[str], *, operation: bool = True) -> dict[str, Any]:
    setting = {"name": "retention.ms", "value": "1000"}
    configs = [setting | {"config_operation": 0} if operation else setting]
    resources = [{"resource_type": 2, "resource_name": each, "configs": configs} for each in names]
    return {"resources": resources, "validate_only": True}


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
    (api.CREATE_TOPICS, 5, "topics", lambda names: _topics(names) | {"validate_only": True}),
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
    (api.ALTER_CONFIGS, 2, "responses", lambda names: _settings(names, operation=False)),
    (api.INCREMENTAL_ALTER_CONFIGS, 1, "responses", _settings),
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
    for name in _NAMES:
        answer = await client.call(asked, version, body([name]))
        short += answer.pop(answered)
    long = await client.call(asked, version, body(_NAMES))
    assert long.pop(answered) == short
    assert long == answer, "the other fields"
    assert len(short) == len(_NAMES)


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
    assert {topic["name"] for topic in each} >= {*_THERE}


@pytest.mark.parametrize("version", [0, 1, 12])
async def test_a_topic_that_is_deleted_while_all_are_described_is_left_out(
    start: Start, connect: Connect, version: int
) -> None:
    environment = Environment(HastyClock(), SystemDisk())
    broker = await start(environment, auto_create_topics_enable="true")
    for name in _NAMES:
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
    last = broker.topics.get(_NAMES[-1])
    assert last is not None
    delete_topic(broker, last)
    _, answer = await long
    assert [each["name"] for each in answer["topics"]] == _NAMES[:-1]
    assert {each["error_code"] for each in answer["topics"]} == {errors.NONE}
    # Nor has it been created again, as if somebody had named it.
    assert broker.topics.get(_NAMES[-1]) is None


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
            "topics": [{"name": each} for each in _NAMES],
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
        for name, count in sorted((name, 1 + at % 3) for at, name in enumerate(_THERE))
        for number in range(count)
    ]
    assert found == expected
    assert unknown == set(_NAMES) - set(_THERE)


async def test_a_cursor_behind_all_topics_leaves_none(client: RawClient) -> None:
    body = {
        "topics": [{"name": each} for each in _NAMES],
        "response_partition_limit": 10,
        "cursor": {"topic_name": "u", "partition_index": 0},
    }
    answer = await client.call(api.DESCRIBE_TOPIC_PARTITIONS, 0, body)
    assert (answer["topics"], answer["next_cursor"]) == ([], None)


async def test_topics_of_a_long_request_are_there_and_open_when_it_is_answered(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    names = [f"new{number}" for number in range(120)]
    # Whatever is named twice is refused, also where hundreds of others stand between.
    body = _topics([*names, "new7"]) | {"validate_only": False}
    answer = await client.call(api.CREATE_TOPICS, 5, body)
    codes = {each["name"]: each["error_code"] for each in answer["topics"]}
    assert codes == dict.fromkeys(names, errors.NONE) | {"new7": errors.InvalidRequest.code}
    assert {each.name for each in broker.topics} == set(names) - {"new7"}
    assert all(len(each.partitions) == 1 for each in broker.topics)
    body = {"topic_names": names, "timeout_ms": 1000}
    answer = await client.call(api.DELETE_TOPICS, 4, body)
    assert [each["name"] for each in answer["responses"]] == names
    assert {each["error_code"] for each in answer["responses"]} == {
        errors.NONE, errors.UnknownTopicOrPartition.code,
    }  # fmt: skip
    assert not list(broker.topics)


async def test_a_setting_that_is_asked_for_twice_is_refused_in_a_long_request_too(
    client: RawClient,
) -> None:
    answer = await client.call(api.INCREMENTAL_ALTER_CONFIGS, 1, _settings([*_NAMES, "t0", "t0"]))
    refused = [
        each["resource_name"]
        for each in answer["responses"]
        if each["error_code"] == errors.InvalidRequest.code
    ]
    assert refused == ["t0", "t0"]


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
    there = [{"name": each} for each in _THERE]
    answer = await client.call(api.METADATA, 12, {"topics": [*there, *missing]})
    codes = [each["error_code"] for each in answer["topics"]]
    assert codes[: len(there)] == [errors.NONE] * len(there)
    assert all(codes[len(there) :])
    greedy = await connect(broker)
    greedy.send(api.METADATA, 12, {"topics": [*missing, named(20_000)]})
    assert await greedy.is_closed_by_peer()


def _of_partitions(indexes: list[int], **fields: Any) -> dict[str, Any]:
    """Return a request about these partitions of a topic that exists, and of one that does not."""
    partitions = [
        {
            "partition_index": index, "partition": index, "timestamp": -1, "leader_epoch": 0,
            "offset": 0, "committed_offset": index, "committed_metadata": "",
        }
        for index in indexes
    ]  # fmt: skip
    names = ("t0", "nowhere")
    return {
        "topics": [{"name": each, "topic": each, "partitions": partitions} for each in names]
    } | fields


_PARTITIONS_ASKED: list[tuple[AnyApi, int, dict[str, Any]]] = [
    (api.LIST_OFFSETS, 6, {}),
    (api.OFFSET_FOR_LEADER_EPOCH, 4, {}),
    (api.DELETE_RECORDS, 2, {"timeout_ms": 10_000}),
    (
        api.OFFSET_COMMIT,
        8,
        {"group_id": "t0", "generation_id_or_member_epoch": -1, "member_id": ""},
    ),
    (
        api.TXN_OFFSET_COMMIT,
        3,
        {
            "transactional_id": "t0", "group_id": "t0", "producer_id": 9, "producer_epoch": 0,
            "generation_id": -1, "member_id": "",
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "version", "fields"), _PARTITIONS_ASKED)
async def test_a_request_about_many_partitions_is_answered_as_many_about_one(
    client: RawClient, broker: Broker, asked: AnyApi, version: int, fields: dict[str, Any]
) -> None:
    create = {"topics": [{"name": "t0", "count": 450, "assignments": None}], "timeout_ms": 9000}
    answer = await client.call(api.CREATE_PARTITIONS, 3, create | {"validate_only": False})
    assert answer["results"][0]["error_code"] == errors.NONE
    await all_open(broker, "t0")
    indexes = list(range(460))
    short: dict[str, list[Any]] = {}
    for index in (0, 1, 199, 200, 449, 450, 459):
        answer = await client.call(asked, version, _of_partitions([index], **fields))
        for topic in answer["topics"]:
            short.setdefault(topic.get("name") or topic["topic"], []).extend(topic["partitions"])
    long = await client.call(asked, version, _of_partitions(indexes, **fields))
    assert [topic.get("name") or topic["topic"] for topic in long["topics"]] == list(short)
    for topic in long["topics"]:
        found = topic["partitions"]
        index_of = "partition" if asked is api.OFFSET_FOR_LEADER_EPOCH else "partition_index"
        assert [each[index_of] for each in found] == indexes
        some = [found[index] for index in (0, 1, 199, 200, 449, 450, 459)]
        assert some == short[topic.get("name") or topic["topic"]]
    assert {**long, "topics": ()} == {**answer, "topics": ()}


@pytest.mark.parametrize(
    ("asked", "version"),
    [(api.LIST_OFFSETS, 6), (api.OFFSET_FOR_LEADER_EPOCH, 4), (api.DELETE_RECORDS, 2)],
)
@pytest.mark.parametrize("named", [0, 1])
async def test_topics_without_partitions_are_answered_too(
    client: RawClient, asked: AnyApi, version: int, named: int
) -> None:
    part = {"partition_index": 0, "partition": 0, "timestamp": -1, "leader_epoch": 0, "offset": 0}
    topics: list[dict[str, Any]] = [
        {"name": name, "topic": name, "partitions": []}
        for name in (f"empty{number}" for number in range(300))
    ]
    topics[7:7] = [{"name": "t0", "topic": "t0", "partitions": [part]}] * named
    body = {"topics": topics, "timeout_ms": 1_000}
    answer = await client.call(asked, version, body)
    told = [
        (each.get("name") or each.get("topic"), each["partitions"]) for each in answer["topics"]
    ]
    assert [name for name, _ in told] == [each["name"] for each in topics]
    assert [len(partitions) for _, partitions in told] == [0] * 7 + [1] * named + [0] * 293


async def test_commits_of_many_partitions_are_all_kept(client: RawClient, broker: Broker) -> None:
    create = {"topics": [{"name": "t0", "count": 450, "assignments": None}], "timeout_ms": 9000}
    await client.call(api.CREATE_PARTITIONS, 3, create | {"validate_only": False})
    fields = {"group_id": "t0", "generation_id_or_member_epoch": -1, "member_id": ""}
    await client.call(api.OFFSET_COMMIT, 8, _of_partitions(list(range(450)), **fields))
    asked = {"groups": [{"group_id": "t0", "topics": None}], "require_stable": False}
    answer = await client.call(api.OFFSET_FETCH, 8, asked)
    found = {
        each["partition_index"]: each["committed_offset"]
        for topic in answer["groups"][0]["topics"]
        if topic["name"] == "t0"
        for each in topic["partitions"]
    }
    assert found == {index: index for index in range(450)}


@pytest.mark.parametrize(
    ("asked", "version", "fields"), [*_PARTITIONS_ASKED, (api.OFFSET_DELETE, 0, {"group_id": "g"})]
)
async def test_who_names_more_partitions_than_there_can_be_is_disconnected(
    client: RawClient,
    broker: Broker,
    connect: Connect,
    asked: AnyApi,
    version: int,
    fields: dict[str, Any],
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    body = _of_partitions(list(range(most // 2)), **fields)
    await client.call(asked, version, body)
    greedy = await connect(broker)
    greedy.send(asked, version, _of_partitions(list(range(most // 2 + 1)), **fields))
    assert await greedy.is_closed_by_peer()


async def test_partitions_of_each_group_are_counted_for_themselves(
    client: RawClient, broker: Broker, connect: Connect
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    indexes = list(range(most))
    topics = [{"name": "t0", "partition_indexes": indexes}]
    groups = [{"group_id": f"g{number}", "topics": topics} for number in range(3)]
    answer = await client.call(api.OFFSET_FETCH, 8, {"groups": groups, "require_stable": False})
    assert [len(each["topics"][0]["partitions"]) for each in answer["groups"]] == [most] * 3
    greedy = await connect(broker)
    topics = [{"name": "t0", "partition_indexes": [*indexes, most]}]
    greedy.send(
        api.OFFSET_FETCH,
        8,
        {"groups": [{"group_id": "g", "topics": topics}], "require_stable": False},
    )
    assert await greedy.is_closed_by_peer()


async def test_produce_and_fetch_name_no_more_partitions_than_there_can_be(
    client: RawClient, broker: Broker, connect: Connect
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    for more in (0, 1):
        fetch = {
            "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20,
            "topics": [
                {
                    "topic": "t0",
                    "partitions": [
                        {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1}
                        for index in range(most + more)
                    ],
                }
            ],
        }  # fmt: skip
        produce = {
            "acks": -1,
            "timeout_ms": 1000,
            "topic_data": [
                {"name": f"nowhere{number}", "partition_data": [{"index": 0, "records": b""}]}
                for number in range(most + more)
            ],
        }
        for asked, version, body in ((api.FETCH, 11, fetch), (api.PRODUCE, 8, produce)):
            one = await connect(broker)
            if more:
                one.send(asked, version, body)
                assert await one.is_closed_by_peer()
            else:
                await one.call(asked, version, body)


async def test_topics_without_partitions_count_too(
    client: RawClient, broker: Broker, connect: Connect
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    topics = [{"name": f"nowhere{number}", "partition_data": []} for number in range(most + 1)]
    body = {"acks": -1, "timeout_ms": 1000, "topic_data": topics[:-1]}
    assert len((await client.call(api.PRODUCE, 8, body))["responses"]) == most
    greedy = await connect(broker)
    greedy.send(api.PRODUCE, 8, {**body, "topic_data": topics})
    assert await greedy.is_closed_by_peer()


_NAMES_ASKED: list[tuple[AnyApi, int, str, Callable[[str], object], dict[str, Any]]] = [
    (
        api.CONSUMER_GROUP_HEARTBEAT,
        0,
        "subscribed_topic_names",
        lambda name: name,
        {
            "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": None,
            "rack_id": None, "rebalance_timeout_ms": 30_000, "server_assignor": None,
            "topic_partitions": [],
        },
    ),
    (
        api.SHARE_GROUP_HEARTBEAT,
        1,
        "subscribed_topic_names",
        lambda name: name,
        {
            "group_id": "s", "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "member_epoch": 0,
            "rack_id": None,
        },
    ),
    (api.DELETE_TOPICS, 4, "topic_names", lambda name: name, {"timeout_ms": 1000}),
    (
        api.DELETE_TOPICS,
        6,
        "topics",
        lambda name: {"name": name, "topic_id": bytes(16)},
        {"timeout_ms": 1000},
    ),
    (
        api.JOIN_GROUP,
        5,
        "protocols",
        lambda name: {"name": name, "metadata": b""},
        {
            "group_id": "j", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000,
            "member_id": "", "group_instance_id": None, "protocol_type": "consumer",
        },
    ),
    (
        api.LEAVE_GROUP,
        4,
        "members",
        lambda name: {"member_id": name, "group_instance_id": None},
        {"group_id": "g"},
    ),
    (
        api.CREATE_PARTITIONS,
        3,
        "topics",
        lambda name: {"name": name, "count": 2, "assignments": None},
        {"timeout_ms": 1000, "validate_only": True},
    ),
    (
        api.INCREMENTAL_ALTER_CONFIGS,
        1,
        "resources",
        lambda name: {"resource_type": 2, "resource_name": name, "configs": []},
        {"validate_only": True},
    ),
    (
        api.ALTER_CONFIGS,
        2,
        "resources",
        lambda name: {"resource_type": 2, "resource_name": name, "configs": []},
        {"validate_only": True},
    ),
    (api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, "users", lambda name: {"name": name}, {}),
    (
        api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        "deletions",
        lambda name: {"name": name, "mechanism": 1},
        {"upsertions": []},
    ),
    (
        api.CREATE_ACLS,
        2,
        "creations",
        lambda name: {
            "resource_type": 2, "resource_name": name, "resource_pattern_type": 3,
            "principal": "User:u", "host": "*", "operation": 3, "permission_type": 3,
        },
        {},
    ),
    (
        api.WRITE_TXN_MARKERS,
        1,
        "markers",
        lambda name: {
            "producer_id": 1, "producer_epoch": 0, "transaction_result": True, "topics": [],
            "coordinator_epoch": 0,
        },
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "version", "listed", "entry", "fields"), _NAMES_ASKED)
async def test_who_names_more_than_there_can_be_is_disconnected(
    client: RawClient,
    broker: Broker,
    connect: Connect,
    asked: AnyApi,
    version: int,
    listed: str,
    entry: Callable[[str], object],
    fields: dict[str, Any],
) -> None:
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    names = [entry(f"nowhere{number}") for number in range(most + 1)]
    await client.call(asked, version, {**fields, listed: names[:-1]})
    greedy = await connect(broker)
    greedy.send(asked, version, {**fields, listed: names})
    assert await greedy.is_closed_by_peer()


def _of_topic(
    topics: str = "topics", name: str = "name", partitions: str = "partitions"
) -> Callable[[list[int]], dict[str, Any]]:
    """Return a function that makes a request about partitions that are named by numbers alone."""
    return lambda indexes: {topics: [{name: "t0", partitions: indexes}]}


def _shared(indexes: list[int]) -> dict[str, Any]:
    partitions = [{"partition_index": each, "acknowledgement_batches": []} for each in indexes]
    return {
        "group_id": "s", "member_id": "AAAAAAAAAAAAAAAAAAAAAA", "share_session_epoch": 0,
        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1, "max_records": 1, "batch_size": 1,
        "topics": [{"topic_id": bytes(16), "partitions": partitions}],
        "forgotten_topics_data": [],
    }  # fmt: skip


def _owned(indexes: list[int]) -> dict[str, Any]:
    return {
        "group_id": "g", "member_id": "m", "member_epoch": 0, "instance_id": None,
        "rack_id": None, "rebalance_timeout_ms": 30_000, "server_assignor": None,
        "subscribed_topic_names": [],
        "topic_partitions": [
            {"topic_id": each.to_bytes(16, "big"), "partitions": []} for each in indexes
        ],
    }  # fmt: skip


def _in_batches(indexes: list[int]) -> dict[str, Any]:
    return {
        "transactions": [
            {
                "transactional_id": f"t{parity}", "producer_id": 9, "producer_epoch": 0,
                "verify_only": True, "topics": [{"name": "t0", "partitions": indexes[parity::2]}],
            }
            for parity in range(2)
        ],
    }  # fmt: skip


def _moved(indexes: list[int]) -> dict[str, Any]:
    partitions = [{"partition_index": each, "replicas": None} for each in indexes]
    return {"timeout_ms": 1000, "topics": [{"name": "t0", "partitions": partitions}]}


@pytest.mark.parametrize(
    ("asked", "version", "body", "fields"),
    [
        (
            api.ADD_PARTITIONS_TO_TXN,
            3,
            _of_topic("v3_and_below_topics"),
            {
                "v3_and_below_transactional_id": "t0",
                "v3_and_below_producer_id": 9,
                "v3_and_below_producer_epoch": 0,
            },
        ),
        (api.ADD_PARTITIONS_TO_TXN, 5, _in_batches, {}),
        (api.ALTER_PARTITION_REASSIGNMENTS, 0, _moved, {}),
        (api.CONSUMER_GROUP_HEARTBEAT, 0, _owned, {}),
        (api.DESCRIBE_LOG_DIRS, 1, _of_topic(name="topic"), {}),
        (api.DESCRIBE_PRODUCERS, 0, _of_topic(partitions="partition_indexes"), {}),
        (
            api.ELECT_LEADERS,
            2,
            _of_topic("topic_partitions", "topic"),
            {"election_type": 0, "timeout_ms": 1000},
        ),
        (
            api.LIST_PARTITION_REASSIGNMENTS,
            0,
            _of_topic(partitions="partition_indexes"),
            {"timeout_ms": 1000},
        ),
        (api.SHARE_ACKNOWLEDGE, 1, _shared, {}),
        (api.SHARE_FETCH, 1, _shared, {}),
    ],
)
async def test_other_requests_name_no_more_partitions_than_there_can_be(
    broker: Broker,
    connect: Connect,
    asked: AnyApi,
    version: int,
    body: Callable[[list[int]], dict[str, Any]],
    fields: dict[str, Any],
) -> None:
    create_topic(broker, "t0", 3, {})
    client = await connect(broker)
    most = 2_000 + 2 * sum(topic.partition_count for topic in broker.topics)
    await client.call(asked, version, body(list(range(most))) | fields)
    greedy = await connect(broker)
    greedy.send(asked, version, body(list(range(most + 1))) | fields)
    assert await greedy.is_closed_by_peer()


async def test_members_that_leave_together_are_answered_in_their_order(client: RawClient) -> None:
    members = [{"member_id": f"m{number}", "group_instance_id": None} for number in range(450)]
    answer = await client.call(api.LEAVE_GROUP, 4, {"group_id": "t0", "members": members})
    assert [each["member_id"] for each in answer["members"]] == [
        each["member_id"] for each in members
    ]
    assert {each["error_code"] for each in answer["members"]} == {errors.UnknownMemberId.code}


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
    topics = [{"name": each} for each in _NAMES]
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
        # The broker, which reads nothing from the client now, notices when it answers the first.
        records = bytes(build_batch([(1_000, b"k", b"v", ())]))
        await other.call(api.PRODUCE, 8, produce_body("t", records))
        assert turns.are_taken
        while broker.connections > 1:
            await asyncio.sleep(0)
    # One that has been waited for may still come.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not turns.are_taken


async def test_of_very_many_new_topics_only_the_first_ones_are_described(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    body = _topics([f"new{number}" for number in range(600)]) | {"validate_only": True}
    answer = await client.call(api.CREATE_TOPICS, 5, body)
    assert {each["error_code"] for each in answer["topics"]} == {errors.NONE}
    described = [bool(each["configs"]) for each in answer["topics"]]
    assert described == [True] * 500 + [False] * 100
    codes = [each["topic_config_error_code"] for each in answer["topics"]]
    assert codes == [errors.NONE] * 500 + [errors.PolicyViolation.code] * 100


async def test_who_names_more_new_topics_than_a_request_may_create_is_disconnected(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    names = [f"new{number}" for number in range(10_001)]
    body = _topics(names[:-1]) | {"validate_only": True}
    body["topics"][0]["num_partitions"] = 2
    answer = await client.call(api.CREATE_TOPICS, 5, body)
    assert {each["error_code"] for each in answer["topics"]} == {errors.PolicyViolation.code}
    client.send(api.CREATE_TOPICS, 5, _topics(names) | {"validate_only": True})
    assert await client.is_closed_by_peer()
