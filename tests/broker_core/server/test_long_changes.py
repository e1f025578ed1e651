"""Requests that create, change or delete many things."""

from __future__ import annotations

import pytest

from broker_core import errors
from broker_core.protocol import definitions as api
from broker_core.server.runtime import Broker
from tests.broker_core.server.many_things import (
    NAMES,
    Connect,
    changed_settings,
    client_of_topics,
    new_topics,
)
from tests.broker_core.server.raw_client import RawClient


@pytest.fixture
async def client(broker: Broker, connect: Connect) -> RawClient:
    return await client_of_topics(broker, connect)


async def test_topics_of_a_long_request_are_there_and_open_when_it_is_answered(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    names = [f"new{number}" for number in range(120)]
    # Whatever is named twice is refused, also where hundreds of others stand between.
    body = new_topics([*names, "new7"]) | {"validate_only": False}
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
    answer = await client.call(
        api.INCREMENTAL_ALTER_CONFIGS, 1, changed_settings([*NAMES, "t0", "t0"])
    )
    refused = [
        each["resource_name"]
        for each in answer["responses"]
        if each["error_code"] == errors.InvalidRequest.code
    ]
    assert refused == ["t0", "t0"]


async def test_members_that_leave_together_are_answered_in_their_order(client: RawClient) -> None:
    members = [{"member_id": f"m{number}", "group_instance_id": None} for number in range(450)]
    answer = await client.call(api.LEAVE_GROUP, 4, {"group_id": "t0", "members": members})
    assert [each["member_id"] for each in answer["members"]] == [
        each["member_id"] for each in members
    ]
    assert {each["error_code"] for each in answer["members"]} == {errors.UnknownMemberId.code}


async def test_of_very_many_new_topics_only_the_first_ones_are_described(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    body = new_topics([f"new{number}" for number in range(600)]) | {"validate_only": True}
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
    body = new_topics(names[:-1]) | {"validate_only": True}
    body["topics"][0]["num_partitions"] = 2
    answer = await client.call(api.CREATE_TOPICS, 5, body)
    assert {each["error_code"] for each in answer["topics"]} == {errors.PolicyViolation.code}
    client.send(api.CREATE_TOPICS, 5, new_topics(names) | {"validate_only": True})
    assert await client.is_closed_by_peer()
