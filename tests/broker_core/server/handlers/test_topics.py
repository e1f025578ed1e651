"""CreateTopics and CreatePartitions: how much one request may ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core import errors
from broker_core.environment import Environment, SystemClock
from broker_core.protocol.definitions import CREATE_PARTITIONS, CREATE_TOPICS
from broker_core.server.runtime import Broker
from tests.broker_core.server.partitions.test_replica_opener import SlowFolders, until
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import create_topic

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]

#: Milliseconds; a test that waits for so long fails.
_FOR_EVER = 1_000_000


def new_topic(name: str, partitions: int, *, assigned: bool = False) -> dict[str, Any]:
    """Return the part of a CreateTopics request for one topic."""
    return {
        "name": name,
        "num_partitions": -1 if assigned else partitions,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": index, "broker_ids": [0]} for index in range(partitions)
        ]
        if assigned
        else [],
        "configs": [],
    }


async def create(
    client: RawClient, topics: list[dict[str, Any]], *, validate_only: bool
) -> list[int]:
    """Send a CreateTopics request; return the error codes."""
    body = {"topics": topics, "timeout_ms": 60_000, "validate_only": validate_only}
    answer = await client.call(CREATE_TOPICS, 7, body)
    assert [each["name"] for each in answer["topics"]] == [each["name"] for each in topics]
    return [each["error_code"] for each in answer["topics"]]


async def grow(client: RawClient, counts: dict[str, int], *, validate_only: bool) -> list[int]:
    """Send a CreatePartitions request; return the error codes."""
    topics = [{"name": name, "count": count, "assignments": None} for name, count in counts.items()]
    body = {"topics": topics, "timeout_ms": 60_000, "validate_only": validate_only}
    answer = await client.call(CREATE_PARTITIONS, 3, body)
    return [each["error_code"] for each in answer["results"]]


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize("assigned", [True, False])
async def test_a_request_for_too_many_partitions_creates_no_topic_at_all(
    broker: Broker, connect: Connect, validate_only: bool, assigned: bool
) -> None:
    client = await connect(broker)
    topics = [new_topic(f"t{number}", 101, assigned=assigned) for number in range(100)]
    codes = await create(client, topics, validate_only=validate_only)
    assert codes == [errors.PolicyViolation.code] * 100
    assert broker.topics.get("t0") is None


async def test_a_request_may_ask_for_ten_thousand_partitions(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    topics = [new_topic(f"t{number}", 100) for number in range(100)]
    assert await create(client, topics, validate_only=True) == [errors.NONE] * 100
    # Those that cannot be are not counted, and those without a number count with the default.
    topics[0] = new_topic("t0", 0)
    topics += [new_topic(f"more{number}", -1) for number in range(100)]
    codes = await create(client, topics, validate_only=True)
    assert codes == [errors.InvalidPartitions.code] + [errors.NONE] * 199
    topics.append(new_topic("one-more", -1))
    codes = await create(client, topics, validate_only=True)
    assert codes == [errors.PolicyViolation.code] * 201


@pytest.mark.parametrize("validate_only", [True, False])
async def test_partitions_are_not_added_if_a_request_asks_for_too_many(
    broker: Broker, connect: Connect, validate_only: bool
) -> None:
    for name in ("a", "b"):
        create_topic(broker, name, 1, {})
    client = await connect(broker)
    codes = await grow(client, {"a": 2, "b": 10_001, "c": 5}, validate_only=validate_only)
    assert codes == [
        errors.PolicyViolation.code,
        errors.PolicyViolation.code,
        errors.UnknownTopicOrPartition.code,
    ]
    assert await grow(client, {"a": 2}, validate_only=validate_only) == [errors.NONE]


@pytest.mark.parametrize("validate_only", [True, False])
async def test_what_cannot_be_makes_no_room_for_more_partitions(
    broker: Broker, connect: Connect, validate_only: bool
) -> None:
    names = [f"t{number}" for number in range(101)]
    client = await connect(broker)
    topics = [new_topic(name, 100) for name in names]
    codes = await create(client, [new_topic("no", -9_000), *topics], validate_only=validate_only)
    assert codes[1:] == [errors.PolicyViolation.code] * 101
    for name in ("no", *names):
        create_topic(broker, name, 1, {})
    counts = {"no": -9_000} | dict.fromkeys(names, 101)
    codes = await grow(client, counts, validate_only=validate_only)
    assert codes[1:] == [errors.PolicyViolation.code] * 101


async def test_a_topic_grows_only(broker: Broker, connect: Connect) -> None:
    create_topic(broker, "a", 3, {})
    client = await connect(broker)
    for count in (-1, 0, 1, 2, 3):
        codes = await grow(client, {"a": count}, validate_only=False)
        assert codes == [errors.InvalidPartitions.code]
    topic = broker.topics.get("a")
    assert topic is not None
    assert len(topic.partitions) == 3


async def test_what_is_only_validated_needs_room_too(broker: Broker, connect: Connect) -> None:
    for name in ("a", "b"):
        create_topic(broker, name, 1, {})
    client = await connect(broker)
    topics = [new_topic("c", 5000), new_topic("d", 5000), new_topic("e", 4998)]
    no_room = errors.InvalidPartitions.code
    assert await create(client, topics[:2], validate_only=True) == [errors.NONE, no_room]
    assert await create(client, topics[::2], validate_only=True) == [errors.NONE, errors.NONE]
    assigned = [new_topic(each, 5000, assigned=True) for each in ("c", "d")]
    assert await create(client, assigned, validate_only=True) == [errors.NONE, no_room]
    assert await grow(client, {"a": 5001, "b": 5001}, validate_only=True) == [errors.NONE, no_room]
    assert await grow(client, {"a": 5001, "b": 4999}, validate_only=True) == [errors.NONE] * 2


async def test_each_new_topic_is_described_with_its_own_settings(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    topics = [
        new_topic(name, 1) | {"configs": [{"name": "retention.ms", "value": retention}]}
        for name, retention in (("a", "1000"), ("b", "2000"), ("c", "1000"))
    ]
    body = {"topics": topics, "timeout_ms": 60_000, "validate_only": False}
    answer = await client.call(CREATE_TOPICS, 7, body)
    told = [
        {each["name"]: each["value"] for each in topic["configs"]} for topic in answer["topics"]
    ]
    assert [each["retention.ms"] for each in told] == ["1000", "2000", "1000"]


async def test_a_topic_that_is_named_twice_is_refused_and_counts_once(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    topics = [new_topic("a", 6_000), new_topic("a", 6_000), new_topic("b", 1)]
    body = {"topics": topics, "timeout_ms": 60_000, "validate_only": False}
    answer = await client.call(CREATE_TOPICS, 7, body)
    assert [(each["name"], each["error_code"]) for each in answer["topics"]] == [
        ("a", errors.InvalidRequest.code),
        ("b", errors.NONE),
    ]


@pytest.mark.parametrize("names", [5, 200])
async def test_a_topic_that_a_request_names_twice_gets_no_partitions(
    broker: Broker, connect: Connect, names: int
) -> None:
    for number in range(names):
        create_topic(broker, f"t{number}", 1, {})
    client = await connect(broker)
    topics = [
        {"name": f"t{number}", "count": count, "assignments": None}
        for count in (2, 3)
        for number in (range(names) if count == 2 else range(0, names, 5))
    ]
    body = {"topics": topics, "timeout_ms": 60_000, "validate_only": False}
    answer = await client.call(CREATE_PARTITIONS, 3, body)
    codes = {each["name"]: each["error_code"] for each in answer["results"]}
    assert len(answer["results"]) == len(codes) == names
    for number in range(names):
        topic = broker.topics.get(f"t{number}")
        assert topic is not None
        refused = number % 5 == 0
        assert codes[topic.name] == (errors.InvalidRequest.code if refused else errors.NONE)
        assert topic.partition_count == (1 if refused else 2)


async def test_who_waits_for_new_topics_waits_when_all_are_decided_on_and_for_no_refused_one(
    start: Start, connect: Connect
) -> None:
    disk = SlowFolders()
    broker = await start(Environment(SystemClock(), disk))
    client, other = await connect(broker), await connect(broker)
    topics = [new_topic("slow", 50), *(new_topic(f"t{number}", 1) for number in range(120))]
    body = {"topics": topics, "timeout_ms": _FOR_EVER, "validate_only": False}
    try:
        client.send(CREATE_TOPICS, 7, body)
        answer = asyncio.create_task(client.receive(CREATE_TOPICS, 7))
        await until(disk.waits.is_set)
        await until(lambda: broker.topics.get("t119") is not None)
        again = {**body, "topics": topics[:1]}
        refused = await other.call(CREATE_TOPICS, 7, again)
        assert refused["topics"][0]["error_code"] == errors.TopicAlreadyExists.code
        assert not answer.done()
    finally:
        disk.may_go_on.set()
    _, created = await answer
    assert {each["error_code"] for each in created["topics"]} == {errors.NONE}
