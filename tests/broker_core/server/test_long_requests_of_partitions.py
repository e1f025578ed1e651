"""Requests about many partitions: the same answers as to many requests about one each."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core import errors
from broker_core.protocol import definitions as api
from broker_core.protocol.schema import AnyApi
from broker_core.server.runtime import Broker
from tests.broker_core.server.many_things import (
    PARTITIONS_ASKED,
    Connect,
    client_of_topics,
    of_partitions,
)
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import all_open


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> RawClient:
    return await client_of_topics(broker, connect)


@pytest.mark.parametrize(("asked", "version", "fields"), PARTITIONS_ASKED)
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
        answer = await client.call(asked, version, of_partitions([index], **fields))
        for topic in answer["topics"]:
            short.setdefault(topic.get("name") or topic["topic"], []).extend(topic["partitions"])
    long = await client.call(asked, version, of_partitions(indexes, **fields))
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
    await client.call(api.OFFSET_COMMIT, 8, of_partitions(list(range(450)), **fields))
    asked = {"groups": [{"group_id": "t0", "topics": None}], "require_stable": False}
    answer = await client.call(api.OFFSET_FETCH, 8, asked)
    found = {
        each["partition_index"]: each["committed_offset"]
        for topic in answer["groups"][0]["topics"]
        if topic["name"] == "t0"
        for each in topic["partitions"]
    }
    assert found == {index: index for index in range(450)}
