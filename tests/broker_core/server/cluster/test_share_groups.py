"""Share groups in a cluster: members at the partitions' leaders, state at the share coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from broker_core import errors
from broker_core.coordinator.sharing.share_records import SharePartitionKey
from broker_core.protocol.definitions import (
    ALTER_SHARE_GROUP_OFFSETS,
    CREATE_PARTITIONS,
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_GROUPS,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
    WRITE_SHARE_GROUP_STATE,
)
from broker_core.server.runtime import Broker
from tests.broker_core.server.cluster.conftest import TIMEOUT_S, Trio
from tests.broker_core.server.cluster.test_cluster import image
from tests.broker_core.server.cluster.test_replication import (
    batch,
    leader_of,
    make_topic,
    produce,
    replica,
)
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.sharing.test_share_groups import ACCEPT, RELEASE, Member

Connect = Callable[[Broker], Awaitable[RawClient]]

_GROUP_RESOURCE = 32


async def call_until(
    client: RawClient, api: Any, version: int, body: dict[str, Any], *retried: type
) -> dict[str, Any]:
    """Repeat a request while its error code is one of `retried`."""
    codes = {each.code for each in retried}  # type: ignore[attr-defined]
    async with asyncio.timeout(TIMEOUT_S):
        while (answer := await client.call(api, version, body)).get("error_code") in codes:
            await asyncio.sleep(0.02)
    return answer


async def coordinator_of(trio: Trio, connect: Connect, group_id: str = "g") -> Broker:
    client = await connect(next(iter(trio.brokers.values())))
    body = {"key_type": 0, "coordinator_keys": [group_id]}
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            [found] = (await client.call(FIND_COORDINATOR, 4, body))["coordinators"]
            if not found["error_code"] and found["node_id"] in trio.brokers:
                return trio.brokers[found["node_id"]]
            await asyncio.sleep(0.02)


async def beat(
    client: RawClient, epoch: int, topics: list[str] | None, name: str = "m"
) -> dict[str, Any]:
    body = {
        "group_id": "g",
        "member_id": name,
        "member_epoch": epoch,
        "rack_id": None,
        "subscribed_topic_names": topics,
    }
    return await call_until(
        client,
        SHARE_GROUP_HEARTBEAT,
        1,
        body,
        errors.CoordinatorLoadInProgress,
        errors.NotCoordinator,
    )


async def read_from_the_beginning(trio: Trio, connect: Connect, group_id: str) -> None:
    client = await connect(trio.brokers[1])
    answer = await client.call(
        INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {
                    "resource_type": _GROUP_RESOURCE,
                    "resource_name": group_id,
                    "configs": [
                        {
                            "name": "share.auto.offset.reset",
                            "config_operation": 0,
                            "value": "earliest",
                        }
                    ],
                }
            ],
            "validate_only": False,
        },
    )
    assert answer["responses"][0]["error_code"] == errors.NONE
    await trio.until(lambda broker: broker.group_settings.offset_reset(group_id) == "earliest")


async def prepare(trio: Trio, connect: Connect, count: int = 5) -> None:
    """Create a topic with records, and a group that reads it from the beginning."""
    await make_topic(trio, connect)
    await read_from_the_beginning(trio, connect, "g")
    writer = await connect(leader_of(trio))
    for number in range(count):
        await produce(writer, batch(f"{number}"))


async def fetch_some(member: Member, *acknowledged: tuple[int, int, int]) -> list[int]:
    """Return the first records that a member acquires."""
    found: list[int] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not found:
            found = await member.fetch(*acknowledged, max_wait_ms=500)
            acknowledged = ()
    return found


def place_of(broker: Broker, group_id: str = "g") -> SharePartitionKey:
    topic = broker.topics.get("t")
    assert topic is not None
    return SharePartitionKey(group_id, topic.topic_id, 0)


def keeper_of(trio: Trio, place: SharePartitionKey) -> Broker:
    """Return the broker whose share coordinator stores a state."""
    topic, index = next(iter(trio.brokers.values())).share_coordinator.place_of(place)
    return leader_of(trio, index, topic)


async def test_a_group_goes_on_where_another_leader_was(trio: Trio, connect: Connect) -> None:
    await prepare(trio, connect)
    leader = leader_of(trio)
    member = Member(leader, await connect(leader), "one")
    assert await fetch_some(member) == [0, 1, 2, 3, 4]
    assert await member.acknowledge((0, 1, ACCEPT), (3, 3, ACCEPT)) == errors.NONE

    await trio.stop(leader.node_id)
    await trio.until(lambda broker: replica(broker).image.leader not in {-1, leader.node_id})
    next_leader = leader_of(trio)
    other = Member(next_leader, await connect(next_leader), "two")
    assert await fetch_some(other) == [2, 4]
    assert await other.acknowledge((2, 2, ACCEPT), (4, 4, ACCEPT)) == errors.NONE


async def test_who_does_not_lead_says_who_does(trio: Trio, connect: Connect) -> None:
    await prepare(trio, connect)
    leader = leader_of(trio)
    other = next(each for each in trio.brokers.values() if each is not leader)
    member = Member(other, await connect(other), "one")
    answer = await member.client.call(SHARE_FETCH, 2, member.body())
    [partition] = answer["responses"][0]["partitions"]
    assert partition["error_code"] == errors.NotLeaderOrFollower.code
    assert partition["current_leader"]["leader_id"] == leader.node_id
    assert [each["node_id"] for each in answer["node_endpoints"]] == [leader.node_id]


async def test_answers_are_kept_while_the_share_coordinator_moves(
    trio: Trio, connect: Connect
) -> None:
    await prepare(trio, connect)
    leader = leader_of(trio)
    await fetch_some(Member(leader, await connect(leader), "one"))
    # A group whose state another broker stores: that broker is stopped.
    place = next(
        place
        for number in range(100)
        if keeper_of(trio, place := place_of(leader, f"g{number}")) is not leader
    )
    await read_from_the_beginning(trio, connect, place.group_id)
    member = Member(leader, await connect(leader), "one", place.group_id)
    assert await fetch_some(member) == [0, 1, 2, 3, 4]
    keeper = keeper_of(trio, place)
    await trio.stop(keeper.node_id)
    assert await member.acknowledge((0, 2, ACCEPT), (3, 4, RELEASE)) == errors.NONE
    code, state = keeper_of(trio, place).share_coordinator.find(place)
    assert (code, None if state is None else state.start_offset) == (errors.NONE, 3)


async def test_a_group_is_known_wherever_it_is_coordinated(trio: Trio, connect: Connect) -> None:
    await prepare(trio, connect)
    coordinator = await coordinator_of(trio, connect)
    client = await connect(coordinator)
    joined = await beat(client, 0, ["t"])
    assert joined["assignment"]["topic_partitions"][0]["partitions"] == [0]
    # Another broker refuses the request.
    other = next(each for each in trio.brokers.values() if each is not coordinator)
    body = {"group_id": "g", "member_id": "m", "member_epoch": joined["member_epoch"]}
    body |= {"rack_id": None, "subscribed_topic_names": None}
    refused = await (await connect(other)).call(SHARE_GROUP_HEARTBEAT, 1, body)
    assert refused["error_code"] == errors.NotCoordinator.code

    await trio.stop(coordinator.node_id)
    client = await connect(await coordinator_of(trio, connect))
    # The member has to join again, and gets a newer epoch.
    lost = await beat(client, joined["member_epoch"], None)
    assert lost["error_code"] == errors.UnknownMemberId.code
    again = await beat(client, 0, ["t"])
    assert again["member_epoch"] > joined["member_epoch"]
    listed = await client.call(LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["share"]})
    assert [each["group_id"] for each in listed["groups"]] == ["g"]


async def test_members_are_told_of_partitions_that_are_added(trio: Trio, connect: Connect) -> None:
    await prepare(trio, connect)
    coordinator = await coordinator_of(trio, connect)
    client = await connect(coordinator)
    joined = await beat(client, 0, ["t"])
    topics = [{"name": "t", "count": 3, "assignments": None}]
    grown = await client.call(
        CREATE_PARTITIONS, 3, {"topics": topics, "timeout_ms": 10_000, "validate_only": False}
    )
    assert grown["results"][0]["error_code"] == errors.NONE
    await trio.until(lambda broker: len(image(broker).topics["t"].partitions) == 3)
    told = await beat(client, joined["member_epoch"], None)
    assert told["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2]


async def test_offsets_are_shown_set_and_forgotten(trio: Trio, connect: Connect) -> None:
    await prepare(trio, connect)
    client = await connect(await coordinator_of(trio, connect))
    joined = await beat(client, 0, ["t"])
    assert joined["error_code"] == errors.NONE
    leader = leader_of(trio)
    connection = await connect(leader)
    member = Member(leader, connection, "m")
    assert await fetch_some(member) == [0, 1, 2, 3, 4]
    assert await member.acknowledge((0, 1, ACCEPT), (3, 3, ACCEPT)) == errors.NONE

    async def where() -> tuple[int, int]:
        asked = {"groups": [{"group_id": "g", "topics": None}]}
        answer = await client.call(DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked)
        [topic] = answer["groups"][0]["topics"]
        return topic["partitions"][0]["start_offset"], topic["partitions"][0]["lag"]

    assert await where() == (2, 2)
    moved = {
        "group_id": "g",
        "topics": [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 1}]}],
    }
    refused = await client.call(ALTER_SHARE_GROUP_OFFSETS, 0, moved)
    assert refused["error_code"] == errors.NonEmptyGroup.code
    await beat(client, -1, None)
    answer = await client.call(ALTER_SHARE_GROUP_OFFSETS, 0, moved)
    assert answer["responses"][0]["partitions"][0]["error_code"] == errors.NONE
    assert (await where())[0] == 1

    # Records acquired before the reset cannot be acknowledged; the group starts again.
    assert await member.acknowledge((2, 2, ACCEPT)) in {
        errors.NotLeaderOrFollower.code,
        errors.InvalidRecordState.code,
    }
    await connection.close()
    other = Member(leader, await connect(leader), "two")
    assert await fetch_some(other) == [1, 2, 3, 4]

    deleted = await client.call(DELETE_GROUPS, 2, {"groups_names": ["g"]})
    assert deleted["results"][0]["error_code"] == errors.NONE
    await trio.until(lambda broker: not broker.share_groups.groups)
    await trio.until(lambda broker: not broker.share_coordinator.places())


async def test_who_led_before_stores_nothing_more(trio: Trio, connect: Connect) -> None:
    await prepare(trio, connect)
    leader = leader_of(trio)
    member = Member(leader, await connect(leader), "one")
    await fetch_some(member)
    await member.acknowledge((0, 0, ACCEPT))
    keeper = keeper_of(trio, place_of(leader))
    before = keeper.share_coordinator.find(place_of(leader))
    stale = {
        "partition": 0,
        "state_epoch": 0,
        "leader_epoch": replica(leader).leader_epoch - 1,
        "start_offset": 5,
        "state_batches": [],
    }
    topic = {"topic_id": place_of(leader).topic_id, "partitions": [stale]}
    client = await connect(keeper)
    answer = await client.call(WRITE_SHARE_GROUP_STATE, 1, {"group_id": "g", "topics": [topic]})
    code = answer["results"][0]["partitions"][0]["error_code"]
    assert code == errors.FencedLeaderEpoch.code
    assert keeper.share_coordinator.find(place_of(leader)) == before


@pytest.mark.parametrize(
    ("first", "last", "state"),
    [(0, 2**62, 0), (5, 4, 0), (3, 5, 0), (2_000_000, 2_000_001, 0), (7, 8, 9)],
)
async def test_a_state_that_no_leader_has_is_refused(
    trio: Trio, connect: Connect, first: int, last: int, state: int
) -> None:
    await prepare(trio, connect, 1)
    leader = leader_of(trio)
    await fetch_some(Member(leader, await connect(leader), "one"))
    keeper = keeper_of(trio, place_of(leader))
    batch_fields = {
        "first_offset": first,
        "last_offset": last,
        "delivery_state": state,
        "delivery_count": 1,
    }
    written = {
        "partition": 0,
        "state_epoch": 0,
        "leader_epoch": replica(leader).leader_epoch,
        "start_offset": 4,
        "state_batches": [batch_fields],
    }
    topic = {"topic_id": place_of(leader).topic_id, "partitions": [written]}
    client = await connect(keeper)
    answer = await client.call(WRITE_SHARE_GROUP_STATE, 1, {"group_id": "g", "topics": [topic]})
    code = answer["results"][0]["partitions"][0]["error_code"]
    assert code == errors.InvalidRequest.code


async def test_a_deleted_topic_takes_its_state_along(trio: Trio, connect: Connect) -> None:
    await prepare(trio, connect)
    leader = leader_of(trio)
    member = Member(leader, await connect(leader), "one")
    await fetch_some(member)
    await member.acknowledge((0, 0, ACCEPT))
    assert any(broker.share_coordinator.places() for broker in trio.brokers.values())
    client = await connect(trio.brokers[1])
    topics = [{"name": "t", "topic_id": bytes(16)}]
    await client.call(DELETE_TOPICS, 6, {"topics": topics, "timeout_ms": 10_000})
    await trio.until(lambda broker: not broker.share_coordinator.places())
