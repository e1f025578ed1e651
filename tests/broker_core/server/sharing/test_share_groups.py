"""Share groups: members acquire and acknowledge single records."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from broker_core import errors
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.compression import Compression
from broker_core.protocol.crc32c import crc32c
from broker_core.protocol.definitions import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_GROUPS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    INITIALIZE_SHARE_GROUP_STATE,
    PRODUCE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
)
from broker_core.protocol.record_reader import iterate_records
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient, produce_body
from tests.broker_core.server.topics import (
    administer,
    all_open,
    create_topic,
    delete_topic,
    start_coordinators,
)

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]


@pytest.fixture
async def start(start: Start) -> Start:
    """Start brokers that coordinate from the beginning."""

    async def run(*arguments: Any, **properties: str) -> Broker:
        broker = await start(*arguments, **properties)
        await start_coordinators(broker)
        return broker

    return run


_EARLIEST = {"share.auto.offset.reset": "earliest"}
ACCEPT, RELEASE = 1, 2


class Member:
    """A member of a group that reads the first partition of topic `t`."""

    def __init__(self, broker: Broker, client: RawClient, name: str, group_id: str = "g") -> None:
        topic = broker.topics.get("t")
        assert topic is not None
        self.topic_id = topic.topic_id
        self.client = client
        self.name = name
        self.group_id = group_id
        self.epoch = 0

    def _topics(self, acknowledged: list[tuple[int, int, int]]) -> list[dict[str, Any]]:
        partition = {
            "partition_index": 0,
            "acknowledgement_batches": [
                {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
                for first, last, kind in acknowledged
            ],
        }
        return [{"topic_id": self.topic_id, "partitions": [partition]}]

    def body(self, *acknowledged: tuple[int, int, int], **more: Any) -> dict[str, Any]:
        body = {
            "group_id": self.group_id,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": self._topics(list(acknowledged)),
            "forgotten_topics_data": [],
        } | more
        self.epoch += 1
        return body

    async def fetch(self, *acknowledged: tuple[int, int, int], **more: Any) -> list[int]:
        """Fetch; return the offsets of the acquired records."""
        answer = await self.client.call(SHARE_FETCH, 2, self.body(*acknowledged, **more))
        assert answer["error_code"] == 0
        return offsets(answer)

    async def acknowledge(self, *acknowledged: tuple[int, int, int]) -> int:
        """Acknowledge; return the error code."""
        answer = await self.client.call(SHARE_ACKNOWLEDGE, 2, self.body(*acknowledged))
        if answer["error_code"]:
            return int(answer["error_code"])
        return int(answer["responses"][0]["partitions"][0]["error_code"])


def offsets(answer: dict[str, Any]) -> list[int]:
    """Return the offsets that a ShareFetch acquires, whose records it must contain."""
    found = []
    for topic in answer["responses"]:
        for each in topic["partitions"]:
            assert each["error_code"] == 0
            assert each["acknowledge_error_code"] == 0
            given = [
                offset
                for run in each["acquired_records"]
                for offset in range(run["first_offset"], run["last_offset"] + 1)
            ]
            assert set(given) <= {record[0] for record in iterate_records(bytes(each["records"]))}
            found += given
    return found


async def _prepare(broker: Broker, client: RawClient, count: int = 5) -> None:
    if broker.topics.get("t") is None:
        create_topic(broker, "t", 1, {})
        administer(broker, lambda operations: operations.change_group("g", _EARLIEST))
    for _ in range(count):
        batch = bytes(build_batch([(1, b"k", b"v", ())]))
        await client.call(PRODUCE, 8, produce_body("t", batch))


async def test_records_are_shared_answered_and_delivered_again(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    await _prepare(broker, client)
    one = Member(broker, client, "one")
    two = Member(broker, await connect(broker), "two")
    assert await one.fetch(max_records=2) == [0, 1]
    assert await two.fetch() == [2, 3, 4]
    assert await two.fetch() == []
    assert await one.fetch((0, 0, ACCEPT), (1, 1, RELEASE), max_records=0) == []
    assert await two.fetch((2, 4, ACCEPT)) == [1]
    assert await two.acknowledge((1, 1, ACCEPT)) == 0
    assert await one.fetch() == []


async def test_who_waits_gets_what_is_written_or_released(broker: Broker, connect: Connect) -> None:
    client = await connect(broker)
    await _prepare(broker, client, 1)
    one = Member(broker, client, "one")
    two = Member(broker, await connect(broker), "two")
    assert await one.fetch() == [0]
    two.client.send(SHARE_FETCH, 2, two.body(max_wait_ms=60_000))
    assert await one.acknowledge((0, 0, RELEASE)) == 0
    assert offsets((await two.client.receive(SHARE_FETCH, 2))[1]) == [0]
    two.client.send(SHARE_FETCH, 2, two.body((0, 0, ACCEPT), max_wait_ms=60_000))
    assert offsets((await two.client.receive(SHARE_FETCH, 2))[1]) == []
    two.client.send(SHARE_FETCH, 2, two.body(max_wait_ms=60_000))
    await _prepare(broker, client, 1)
    assert offsets((await two.client.receive(SHARE_FETCH, 2))[1]) == [1]


async def test_who_has_waited_in_vain_is_not_told_of_later_records(
    broker: Broker, connect: Connect
) -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    client = await connect(broker)
    await _prepare(broker, client, 1)
    one = Member(broker, client, "one")
    two = Member(broker, await connect(broker), "two")
    assert await one.fetch() == [0]
    assert await two.fetch(max_wait_ms=1) == []
    assert await one.acknowledge((0, 0, RELEASE)) == 0
    assert await one.fetch() == [0]
    assert await two.fetch(max_wait_ms=1) == []
    await _prepare(broker, client, 1)
    assert await one.fetch() == [1]
    assert failures == []


@pytest.mark.parametrize("comes", ["released", "written"])
async def test_who_has_gone_while_waiting_takes_nothing_from_others(
    broker: Broker, connect: Connect, comes: str
) -> None:
    client = await connect(broker)
    await _prepare(broker, client, 1)
    one = Member(broker, client, "one")
    gone = Member(broker, await connect(broker), "gone")
    assert await one.fetch() == [0]
    assert await gone.fetch() == []
    gone.client.send(SHARE_FETCH, 2, gone.body(max_wait_ms=60_000))
    await gone.client.close()
    async with asyncio.timeout(60):
        while broker.share_partitions.sessions.find("g", "gone") is not None:
            await asyncio.sleep(0.01)
    if comes == "released":
        assert await one.acknowledge((0, 0, RELEASE)) == 0
        assert await one.fetch() == [0]
    else:
        await _prepare(broker, client, 1)
        assert await one.fetch() == [1]


async def test_what_could_not_be_stored_is_read_again(broker: Broker, connect: Connect) -> None:
    client = await connect(broker)
    await _prepare(broker, client)
    member = Member(broker, client, "one")
    assert await member.fetch() == [0, 1, 2, 3, 4]
    # Another broker has taken the group's place in the topic to a later offset.
    partition = {"partition": 0, "state_epoch": 7, "start_offset": 3}
    body = {
        "group_id": "g",
        "topics": [{"topic_id": member.topic_id, "partitions": [partition]}],
    }
    answer = await client.call(INITIALIZE_SHARE_GROUP_STATE, 0, body)
    assert answer["results"][0]["partitions"][0]["error_code"] == 0
    assert await member.acknowledge((0, 0, ACCEPT)) == 6
    assert await member.fetch(max_wait_ms=60_000) == [3, 4]
    assert await member.acknowledge((3, 4, ACCEPT)) == 0


async def test_what_a_lost_connection_had_goes_to_others(broker: Broker, connect: Connect) -> None:
    client = await connect(broker)
    await _prepare(broker, client)
    lost = Member(broker, await connect(broker), "lost")
    other = Member(broker, client, "other")
    assert await lost.fetch() == [0, 1, 2, 3, 4]
    other.client.send(SHARE_FETCH, 2, other.body(max_wait_ms=60_000))
    await lost.client.close()
    assert offsets((await other.client.receive(SHARE_FETCH, 2))[1]) == [0, 1, 2, 3, 4]


async def test_what_a_closed_session_had_goes_to_others(broker: Broker, connect: Connect) -> None:
    client = await connect(broker)
    await _prepare(broker, client)
    one = Member(broker, client, "one")
    two = Member(broker, await connect(broker), "two")
    assert await one.fetch() == [0, 1, 2, 3, 4]
    assert await two.fetch() == []
    one.epoch = -1
    assert await one.acknowledge((0, 1, ACCEPT)) == 0
    assert await two.fetch(max_wait_ms=60_000) == [2, 3, 4]
    two.epoch = -1
    assert await two.fetch((2, 2, ACCEPT)) == []
    three = Member(broker, client, "three")
    assert await three.fetch(max_wait_ms=60_000) == [3, 4]


async def test_a_new_session_of_a_member_gives_back_what_its_old_one_had(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    await _prepare(broker, client)
    member = Member(broker, client, "one")
    assert await member.fetch() == [0, 1, 2, 3, 4]
    # The client has lost the session's state, but not the connection.
    member.epoch = 0
    assert await member.fetch(max_wait_ms=60_000) == [0, 1, 2, 3, 4]


async def test_a_lock_ends_by_itself(start: Start, connect: Connect) -> None:
    broker = await start(
        group_share_record_lock_duration_ms="1000", group_share_min_record_lock_duration_ms="1000"
    )
    client = await connect(broker)
    await _prepare(broker, client, 1)
    one = Member(broker, client, "one")
    two = Member(broker, await connect(broker), "two")
    assert await one.fetch() == [0]
    assert await two.fetch(max_wait_ms=60_000) == [0]
    assert await one.acknowledge((0, 0, ACCEPT)) == 121  # its acquisition lock has ended


async def test_a_restart_keeps_what_has_been_answered(start: Start, connect: Connect) -> None:
    broker = await start()
    client = await connect(broker)
    await _prepare(broker, client)
    member = Member(broker, client, "one")
    assert await member.fetch() == [0, 1, 2, 3, 4]
    assert await member.acknowledge((0, 1, ACCEPT), (3, 3, ACCEPT)) == 0
    await broker.close()
    again = await start()
    member = Member(again, await connect(again), "one")
    assert await member.fetch(max_wait_ms=60_000) == [2, 4]


def lose_segment(root: Path, which: int) -> range:
    """Remove one of the segments of partition 0 that have records; return its offsets."""
    logs = sorted(each for each in root.rglob("t-0/*.log") if each.stat().st_size)
    ends = [*(int(each.stem) for each in logs[1:]), None]
    lost, end = logs[which], ends[which]
    for path in lost.parent.glob(f"{lost.stem}.*"):
        path.unlink()
    return range(int(lost.stem), sys.maxsize if end is None else end)


async def _lag(client: RawClient) -> tuple[int, int]:
    """Return the offset before which group `g` has answered everything, and what is left."""
    asked = {"groups": [{"group_id": "g", "topics": None}]}
    answer = await client.call(DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked)
    [topic] = answer["groups"][0]["topics"]
    return topic["partitions"][0]["start_offset"], topic["partitions"][0]["lag"]


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "newest"])
async def test_a_group_gets_over_offsets_that_the_log_has_lost(
    start: Start, connect: Connect, tmp_path: Path, which: int
) -> None:
    # A segment for a few records, and fewer records in flight than come after the lost ones.
    properties = {
        "log_segment_bytes": "400",
        "group_share_partition_max_record_locks": "100",
    }
    broker = await start(**properties)
    await _prepare(broker, await connect(broker), 20)
    await broker.close()
    lost = lose_segment(tmp_path, which)
    again = await start(**properties)
    client = await connect(again)
    await _prepare(again, client, 150)
    await _beat(client, 0, ["t"])
    member = Member(again, client, "one")
    got: list[int] = []
    acquired: list[int] = []
    while new := await member.fetch(*((each, each, ACCEPT) for each in acquired)):
        got += new
        acquired = new
    assert got == [each for each in range(170) if each not in lost or each >= 20]
    assert await _lag(client) == (170, 0)


async def test_a_group_gets_over_lost_offsets_before_records_that_nobody_answers(
    start: Start, connect: Connect, tmp_path: Path
) -> None:
    broker = await start(log_segment_bytes="400")
    await _prepare(broker, await connect(broker), 20)
    await broker.close()
    lost = lose_segment(tmp_path, -1)
    again = await start(log_segment_bytes="400")
    client = await connect(again)
    await _beat(client, 0, ["t"])
    one = Member(again, await connect(again), "one")
    kept: list[int] = []
    while new := await one.fetch():
        kept += new
    assert kept == list(range(lost.start))
    # There is nothing behind the lost offsets yet, and a record before them that is not answered.
    assert await one.fetch((0, lost.start - 2, ACCEPT)) == []
    await _prepare(again, client, 1)
    assert await one.fetch() == [20]
    assert await one.acknowledge((20, 20, ACCEPT)) == 0
    assert (await _lag(client))[0] == lost.start - 1
    await one.client.close()
    other = Member(again, client, "other")
    assert await other.fetch(max_wait_ms=60_000) == [lost.start - 1]
    assert await other.acknowledge((lost.start - 1, lost.start - 1, ACCEPT)) == 0
    assert await other.fetch() == []
    async with asyncio.timeout(60):
        while await _lag(client) != (21, 0):
            await asyncio.sleep(0.01)


async def test_sessions_are_told_apart(broker: Broker, connect: Connect) -> None:
    client = await connect(broker)
    await _prepare(broker, client)
    member = Member(broker, client, "one")
    for epoch, code in ((3, 122), (-1, 122), (0, 123)):
        member.epoch = epoch
        assert await member.acknowledge((0, 0, ACCEPT)) == code
    member.epoch = 0
    answer = await client.call(SHARE_FETCH, 2, member.body((0, 0, ACCEPT)))
    assert answer["error_code"] == 42
    member.epoch = 0
    await member.fetch()
    member.epoch = 5
    assert await member.acknowledge((0, 0, ACCEPT)) == 123
    member.epoch = -1
    assert await member.fetch((0, 0, ACCEPT)) == []
    member.epoch = 2
    assert await member.acknowledge((1, 1, ACCEPT)) == 122
    assert await Member(broker, client, "two").fetch(max_wait_ms=60_000) == [1, 2, 3, 4]


async def _beat(
    client: RawClient, epoch: int, topics: list[str] | None, name: str = "m"
) -> dict[str, Any]:
    body = {"group_id": "g", "member_id": name, "member_epoch": epoch}
    return await client.call(
        SHARE_GROUP_HEARTBEAT, 1, body | {"rack_id": None, "subscribed_topic_names": topics}
    )


async def test_a_group_is_described_moved_and_deleted(broker: Broker, connect: Connect) -> None:
    client = await connect(broker)
    await _prepare(broker, client)
    joined = await _beat(client, 0, ["t"])
    assert joined["assignment"]["topic_partitions"][0]["partitions"] == [0]
    described = await client.call(
        SHARE_GROUP_DESCRIBE, 1, {"group_ids": ["g", "x"], "include_authorized_operations": False}
    )
    assert [each["error_code"] for each in described["groups"]] == [0, 69]
    assert described["groups"][0]["group_state"] == "Stable"
    assert described["groups"][0]["members"][0]["member_id"] == "m"
    member = Member(broker, client, "m")
    await member.fetch()
    await member.acknowledge((0, 1, ACCEPT), (3, 3, ACCEPT))

    async def where() -> tuple[int, int]:
        asked = {"groups": [{"group_id": "g", "topics": None}]}
        answer = await client.call(DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked)
        [topic] = answer["groups"][0]["topics"]
        return topic["partitions"][0]["start_offset"], topic["partitions"][0]["lag"]

    assert await where() == (2, 2)
    moved = {
        "group_id": "g",
        "topics": [
            {"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 4}]},
            {"topic_name": "x", "partitions": [{"partition_index": 0, "start_offset": 4}]},
        ],
    }
    assert (await client.call(ALTER_SHARE_GROUP_OFFSETS, 0, moved))["error_code"] == 68
    assert (await _beat(client, -1, None))["member_epoch"] == -1
    answer = await client.call(ALTER_SHARE_GROUP_OFFSETS, 0, moved)
    codes = [topic["partitions"][0]["error_code"] for topic in answer["responses"]]
    assert codes == [0, 3]
    assert await where() == (4, 1)
    body = {"group_id": "g", "topics": [{"topic_name": "t"}]}
    answer = await client.call(DELETE_SHARE_GROUP_OFFSETS, 0, body)
    assert answer["responses"][0]["error_code"] == 0
    deleted = await client.call(DELETE_GROUPS, 2, {"groups_names": ["g"]})
    assert deleted["results"][0]["error_code"] == 0
    assert not broker.share_groups.groups


async def test_members_that_are_silent_are_missed(start: Start, connect: Connect) -> None:
    broker = await start(group_share_session_timeout_ms="200")
    client = await connect(broker)
    await _prepare(broker, client, 0)
    await _beat(client, 0, ["t"])
    async with asyncio.timeout(60):
        while broker.share_groups.groups["g"].members:
            await asyncio.sleep(0.02)
    assert (await _beat(client, 1, None))["error_code"] == 25


async def test_a_heartbeat_does_not_look_at_all_partitions(
    broker: Broker, connect: Connect
) -> None:
    create_topic(broker, "many", 500, {})
    await all_open(broker, "many")
    client = await connect(broker)
    body: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rack_id": None,
        "subscribed_topic_names": ["many"],
    }
    joined = await client.call(SHARE_GROUP_HEARTBEAT, 1, body)
    body |= {"member_epoch": joined["member_epoch"], "subscribed_topic_names": None}
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        answer = await client.call(SHARE_GROUP_HEARTBEAT, 1, body)
    finally:
        sys.setprofile(before)
    assert answer["error_code"] == errors.NONE
    assert calls < 1000


async def test_a_deleted_topic_takes_its_state_along(broker: Broker, connect: Connect) -> None:
    client = await connect(broker)
    await _prepare(broker, client)
    member = Member(broker, client, "one")
    await member.fetch()
    topic = broker.topics.get("t")
    assert topic is not None
    delete_topic(broker, topic)
    assert broker.share_groups.places_of("g") == []
    answer = await client.call(SHARE_FETCH, 2, member.body())
    assert answer["responses"][0]["partitions"][0]["error_code"] == 100


async def test_who_has_just_come_takes_from_one_partition(broker: Broker, connect: Connect) -> None:
    client = await connect(broker)
    create_topic(broker, "t", 2, {})
    administer(broker, lambda operations: operations.change_group("g", _EARLIEST))
    batch = bytes(build_batch([(1, b"k", b"v", ())]))
    for number in range(2):
        await client.call(PRODUCE, 8, produce_body("t", batch, partition=number))
    counts = []
    for name in ("one", "two"):
        member = Member(broker, await connect(broker), name)
        topics = [
            {
                "topic_id": member.topic_id,
                "partitions": [
                    {"partition_index": number, "acknowledgement_batches": []}
                    for number in range(2)
                ],
            }
        ]
        counts.append(len(await member.fetch(topics=topics)))
    assert counts == [1, 1]


@pytest.mark.parametrize(("lying", "first"), [(0, 2), (2, 4), (4, 0)])
async def test_a_group_begins_by_time_unless_many_headers_lie_about_it(
    broker: Broker, connect: Connect, lying: int, first: int
) -> None:
    client = await connect(broker)
    create_topic(broker, "t", 1, {})
    reset = {"share.auto.offset.reset": "by_duration:PT1H"}
    administer(broker, lambda operations: operations.change_group("g", reset))
    now = broker.clock.now_ms()
    old = build_batch([(1, b"k", b"v", ())], compression=Compression.LZ4)
    lies = bytearray(old)
    lies[35:43] = now.to_bytes(8, "big")
    lies[17:21] = crc32c(memoryview(lies)[21:]).to_bytes(4, "big")
    new = build_batch([(now, b"k", b"v", ())])
    for batch in (old, old, *[lies] * lying, new):
        await client.call(PRODUCE, 8, produce_body("t", bytes(batch)))
    found = await Member(broker, client, "one").fetch()
    assert found == [*range(first, 3 + lying)]
