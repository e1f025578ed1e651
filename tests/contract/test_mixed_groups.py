"""Members of the classic and of the consumer protocol in one group (KIP-848, online migration)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import AdminClient

from broker_core import errors
from broker_core.protocol.definitions import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    SYNC_GROUP,
)
from tests.broker_core.server.raw_client import RawClient
from tests.contract.test_groups import fill, poll_until
from tests.contract.test_protocol import coordinate
from waylog.config import parse_endpoint

Make = Callable[..., Any]


@pytest.fixture
def classic(consumer: Make) -> Make:
    """Give a function that creates classic consumers with short heartbeat intervals."""

    def make(**options: Any) -> Any:
        return consumer(heartbeat_interval_ms=100, **options)

    return make


def type_of(admin: AdminClient, group_id: str) -> ConsumerGroupType | None:
    """Return the type under which a group is listed."""
    listed = admin.list_consumer_groups().result(60).valid
    return next((each.type for each in listed if each.group_id == group_id), None)


def counts(members: list[Any]) -> list[int]:
    """Return the number of partitions of each member."""
    return [len(each.assignment()) for each in members]


def are_apart(members: list[Any]) -> bool:
    """Return whether no two members have the same partition."""
    places = [place for each in members for place in each.assignment()]
    return len(places) == len(set(places))


@pytest.mark.parametrize("strategy", ["range", pytest.param("roundrobin", marks=pytest.mark.long)])
def test_a_group_goes_over_to_the_new_protocol_and_back(
    admin: AdminClient,
    producer: Make,
    classic: Make,
    member: Make,
    make_topic: Make,
    group_id: str,
    strategy: str,
) -> None:
    topic = make_topic(4)
    fill(producer, topic, 300)
    old = classic(group_id=group_id, partition_assignment_strategy=strategy)
    old.subscribe([topic])
    messages = poll_until([old], lambda: counts([old]) == [4])
    assert type_of(admin, group_id) is ConsumerGroupType.CLASSIC
    new = member(group_id=group_id)
    new.subscribe([topic])
    members = [old, new]
    messages += poll_until(members, lambda: counts(members) == [2, 2] and are_apart(members))
    assert type_of(admin, group_id) is ConsumerGroupType.CONSUMER
    described = admin.describe_consumer_groups([group_id])[group_id].result(60)
    assert len(described.members) == 2
    new.close()
    messages += poll_until([old], lambda: counts([old]) == [4])
    assert type_of(admin, group_id) is ConsumerGroupType.CLASSIC
    described = admin.describe_consumer_groups([group_id])[group_id].result(60)
    assert described.state == ConsumerGroupState.STABLE
    assert described.partition_assignor == strategy
    fill(producer, topic, 300, start=300)
    values = {message.value() for message in messages}

    def complete() -> bool:
        message = old.poll(0.02)
        if message is not None and message.error() is None:
            values.add(message.value())
        return len(values) == 600

    poll_until([], complete)


def test_cooperative_members_come_to_a_group_of_the_new_protocol(
    admin: AdminClient, classic: Make, member: Make, make_topic: Make, group_id: str
) -> None:
    """The user data of librdkafka's sticky assignors keeps a group that they lead classic."""
    topic = make_topic(4)
    new = member(group_id=group_id)
    old = classic(group_id=group_id, partition_assignment_strategy="cooperative-sticky")
    members = [new, old]
    new.subscribe([topic])
    poll_until([new], lambda: counts([new]) == [4])
    old.subscribe([topic])
    poll_until(members, lambda: counts(members) == [2, 2] and are_apart(members))
    assert type_of(admin, group_id) is ConsumerGroupType.CONSUMER
    new.close()
    poll_until([old], lambda: counts([old]) == [4])
    assert type_of(admin, group_id) is ConsumerGroupType.CLASSIC


def test_offsets_of_both_are_the_same(
    producer: Make, classic: Make, member: Make, make_topic: Make, group_id: str
) -> None:
    topic = make_topic(2)
    fill(producer, topic, 20)
    old, new = classic(group_id=group_id), member(group_id=group_id)
    old.subscribe([topic])
    poll_until([old], lambda: counts([old]) == [2])
    new.subscribe([topic])
    poll_until([old, new], lambda: counts([old, new]) == [1, 1])
    (of_old,), (of_new,) = old.assignment(), new.assignment()

    def commit(each: Any, place: TopicPartition, offset: int) -> None:
        place.offset = offset
        each.commit(offsets=[place], asynchronous=False)

    commit(old, of_old, 3)
    commit(new, of_new, 4)
    for each in (old, new):
        asked = [TopicPartition(topic, of_old.partition), TopicPartition(topic, of_new.partition)]
        assert [place.offset for place in each.committed(asked, 60)] == [3, 4]
    new.close()
    poll_until([old], lambda: counts([old]) == [2])
    assert {place.offset for place in old.committed(old.assignment(), 60)} == {3, 4}


def test_an_instance_is_back_with_the_other_protocol(
    admin: AdminClient, classic: Make, member: Make, make_topic: Make, group_id: str
) -> None:
    topic = make_topic(4)

    def start(make: Make, name: str) -> Any:
        each = make(group_id=group_id, group_instance_id=name)
        each.subscribe([topic])
        return each

    first, second = start(classic, "a"), start(classic, "b")
    poll_until([first, second], lambda: counts([first, second]) == [2, 2])
    # As in a rolling upgrade: one after the other, and then all the way back.
    for make in (member, classic):
        first.close()
        first = start(make, "a")
        poll_until([first, second], lambda: counts([first, second]) == [2, 2])  # noqa: B023
        assert type_of(admin, group_id) is ConsumerGroupType.CONSUMER
        second.close()
        second = start(make, "b")
        poll_until([first, second], lambda: counts([first, second]) == [2, 2])  # noqa: B023
    assert type_of(admin, group_id) is ConsumerGroupType.CLASSIC
    assert are_apart([first, second])


async def test_a_classic_member_of_aiokafka_shares_with_a_new_one(
    bootstrap_servers: str, admin: AdminClient, member: Make, make_topic: Make, group_id: str
) -> None:
    topic = make_topic(4)
    new = member(group_id=group_id)
    new.subscribe([topic])
    poll_until([new], lambda: counts([new]) == [4])
    old = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group_id,
        heartbeat_interval_ms=300,
        session_timeout_ms=30_000,
    )
    await old.start()
    try:
        deadline = time.monotonic() + 60
        while len(old.assignment()) != 2 or counts([new]) != [2]:
            new.poll(0.02)
            await asyncio.sleep(0.02)
            assert time.monotonic() < deadline, (old.assignment(), new.assignment())
        assert type_of(admin, group_id) is ConsumerGroupType.CONSUMER
    finally:
        await old.stop()
    poll_until([new], lambda: counts([new]) == [4])


class RawMembers:
    """Members of one group whose requests a test controls in detail."""

    def __init__(self, client: RawClient, group_id: str, topic: str) -> None:
        self.client = client
        self.group_id = group_id
        self.topic = topic

    async def wait_for_topic(self) -> None:
        """Wait for the topic: Apache Kafka's coordinator learns of one a moment after clients."""
        deadline = time.monotonic() + 60
        while not (await self.member("probe", 0)).get("assignment", {}).get("topic_partitions"):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert (await self.member("probe", -1))["error_code"] == errors.NONE

    async def join(self, member_id: str = "", **more: Any) -> dict[str, Any]:
        """Send JoinGroup version 7 and return the response."""
        body = {
            "group_id": self.group_id,
            "session_timeout_ms": 60_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [
                {"name": "range", "metadata": self.subscription(**more.pop("metadata", {}))}
            ],
        }
        return await self.client.call(JOIN_GROUP, 7, body | more)

    def subscription(self, owned: tuple[int, ...] = ()) -> bytes:
        """Return a ConsumerProtocolSubscription of version 1."""
        name = len(self.topic).to_bytes(2, "big") + self.topic.encode()
        numbers = b"".join(each.to_bytes(4, "big") for each in owned)
        places = name + len(owned).to_bytes(4, "big") + numbers
        return (
            b"\0\1\0\0\0\1" + name + b"\xff\xff\xff\xff"
            + (b"\0\0\0\1" + places if owned else bytes(4))
        )  # fmt: skip

    def assignment(self, *partitions: int) -> bytes:
        """Return a ConsumerProtocolAssignment of version 1."""
        numbers = b"".join(each.to_bytes(4, "big") for each in partitions)
        name = len(self.topic).to_bytes(2, "big") + self.topic.encode()
        return (
            b"\0\1\0\0\0\1" + name + len(partitions).to_bytes(4, "big") + numbers
            + b"\xff\xff\xff\xff"
        )  # fmt: skip

    async def sync(self, member_id: str, generation: int, **more: Any) -> dict[str, Any]:
        """Send SyncGroup and return the response."""
        body = {
            "group_id": self.group_id,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        }
        return await self.client.call(SYNC_GROUP, 5, body | more)

    async def heartbeat(self, member_id: str, generation: int) -> int:
        """Send Heartbeat; return the error code."""
        body = {
            "group_id": self.group_id,
            "generation_id": generation,
            "member_id": member_id,
            "group_instance_id": None,
        }
        code: int = (await self.client.call(HEARTBEAT, 4, body))["error_code"]
        return code

    async def member(self, member_id: str, epoch: int, **more: Any) -> dict[str, Any]:
        """Send ConsumerGroupHeartbeat and return the response."""
        body = {
            "group_id": self.group_id,
            "member_id": member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": [self.topic],
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": [],
        }
        return await self.client.call(CONSUMER_GROUP_HEARTBEAT, 1, body | more)


@pytest.fixture
async def members(
    bootstrap_servers: str, make_topic: Make, group_id: str
) -> AsyncIterator[RawMembers]:
    """Give a group for a topic with two partitions."""
    connection = await RawClient.connect(
        parse_endpoint(bootstrap_servers.split(",", maxsplit=1)[0])
    )
    await coordinate(connection, 0, group_id)
    group = RawMembers(connection, group_id, make_topic(2))
    await group.wait_for_topic()
    yield group
    await connection.close()


async def test_groups_of_others_than_consumers_are_not_taken_over(members: RawMembers) -> None:
    """Only the leader of Kafka Connect understands the metadata of its members."""
    told = await members.join(protocol_type="connect")
    assert told["error_code"] == errors.MemberIdRequired.code
    joined = await members.join(told["member_id"], protocol_type="connect")
    assert joined["error_code"] == errors.NONE
    refused = await members.member("new", 0)
    assert refused["error_code"] == errors.GroupIdNotFound.code


async def test_what_an_assignor_tells_its_members_is_not_lost(members: RawMembers) -> None:
    old_id = (await members.join())["member_id"]
    await members.join(old_id)
    more = members.assignment(0, 1)[:-4] + b"\0\0\0\4more"
    await members.sync(old_id, 1, assignments=[{"member_id": old_id, "assignment": more}])
    refused = await members.member("new", 0)
    assert refused["error_code"] == errors.GroupIdNotFound.code
    assert await members.heartbeat(old_id, 1) == errors.NONE


async def test_each_step_of_a_classic_member_among_new_ones(members: RawMembers) -> None:
    old_id = (await members.join())["member_id"]
    joined = await members.join(old_id)
    assert joined["generation_id"] == 1
    first = {"member_id": old_id, "assignment": members.assignment(0, 1)}
    assert (await members.sync(old_id, 1, assignments=[first]))["error_code"] == errors.NONE
    answer = await members.member("new", 0)
    assert (answer["error_code"], answer["member_epoch"]) == (errors.NONE, 2)
    assert answer["assignment"]["topic_partitions"] == []
    # The classic member is asked to rejoin, and gives up one of its partitions first.
    assert await members.heartbeat(old_id, 1) == errors.RebalanceInProgress.code
    assert await members.heartbeat(old_id, 2) == errors.IllegalGeneration.code
    assert await members.heartbeat("new", 2) == errors.UnknownMemberId.code
    late = await members.sync(old_id, 1)
    assert late["error_code"] == errors.RebalanceInProgress.code
    again = await members.join(old_id, metadata={"owned": (0, 1)})
    assert again["error_code"] == errors.NONE
    assert (again["leader"], again["members"], again["protocol_name"]) == ("", [], "range")
    assert again["generation_id"] == 1
    wrong = await members.sync(old_id, 1, protocol_name="roundrobin")
    assert wrong["error_code"] == errors.InconsistentGroupProtocol.code
    given = await members.sync(old_id, 1)
    kept = given["assignment"]
    assert kept in {members.assignment(0), members.assignment(1)}
    assert await members.heartbeat(old_id, 1) == errors.RebalanceInProgress.code
    index = 0 if kept == members.assignment(0) else 1
    last = await members.join(old_id, metadata={"owned": (index,)})
    assert last["generation_id"] == 2
    assert (await members.sync(old_id, 2))["assignment"] == kept
    assert await members.heartbeat(old_id, 2) == errors.NONE
    # Now the other partition is free for the new member.
    answer = await members.member("new", 2)
    ((place,),) = [each["partitions"] for each in answer["assignment"]["topic_partitions"]]
    assert place == 1 - index
    # A member without a protocol in common with the classic members is refused; without classic
    # members any would be admitted.
    odd = await members.join("odd", protocols=[{"name": "odd", "metadata": members.subscription()}])
    assert odd["error_code"] == errors.InconsistentGroupProtocol.code
    # The last new member leaves: the group is classic again, and its only member leads it.
    assert (await members.member("new", -1))["error_code"] == errors.NONE
    assert await members.heartbeat(old_id, 2) == errors.RebalanceInProgress.code
    led = await members.join(old_id)
    assert (led["generation_id"], led["leader"]) == (3, old_id)
