"""Topics of many partitions: the broker opens their replicas beside what it does for others."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import errors
from broker_core.environment import Buffer, Environment, SystemClock, SystemDisk
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    PRODUCE,
)
from broker_core.server import runtime
from broker_core.server.partitions.topics import Topic
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient, produce_body
from tests.broker_core.server.topics import administer, all_open, create_topic, delete_topic
from waylog.process.background import end_on_failure

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]


class SlowFolders(SystemDisk):
    """Makes the folders of some partitions only when it may."""

    def __init__(self, first: int = 40) -> None:
        """Those of the partitions from `first` on are made late."""
        self._first = first
        self.may_go_on = threading.Event()
        self.waits = threading.Event()
        self.error: BaseException | None = None

    def make_directory(self, directory: Path) -> None:
        """Create a directory, perhaps later, or fail."""
        _, _, index = directory.name.rpartition("-")
        if index.isdigit() and int(index) >= self._first and not directory.exists():
            self.waits.set()
            self.may_go_on.wait(60)
            if self.error is not None:
                raise self.error
        super().make_directory(directory)


@pytest.fixture
def disk() -> SlowFolders:
    return SlowFolders()


@pytest.fixture
async def busy(start: Start, disk: SlowFolders) -> AsyncIterator[Broker]:
    """A broker that is about to open partition 40 of topic `t`, which has 100."""
    broker = await start(Environment(SystemClock(), disk))
    create_topic(broker, "t", 100, {})
    await until(disk.waits.is_set)
    yield broker
    disk.may_go_on.set()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


async def produce(client: RawClient, topic: str, index: int) -> int:
    """Return the error code of an append."""
    body = produce_body(topic, bytes(build_batch([(1, None, b"x", ())])), partition=index)
    answer = await client.call(PRODUCE, 8, body)
    code: int = answer["responses"][0]["partition_responses"][0]["error_code"]
    return code


async def test_others_are_served_while_the_replicas_of_a_topic_are_opened(
    busy: Broker, disk: SlowFolders, connect: Connect
) -> None:
    client = await connect(busy)
    answer = await client.call(API_VERSIONS, 0, {})
    assert answer["error_code"] == errors.NONE
    # The first ones serve at once, the others when they are open: clients ask again until then.
    assert await produce(client, "t", 0) == errors.NONE
    assert await produce(client, "t", 40) == errors.NotLeaderOrFollower.code
    disk.may_go_on.set()
    await all_open(busy, "t")
    assert [await produce(client, "t", index) for index in (40, 99)] == [errors.NONE] * 2


async def test_a_small_topic_does_not_wait_for_a_large_one(
    busy: Broker, disk: SlowFolders, connect: Connect
) -> None:
    client = await connect(busy)
    create_topic(busy, "u", 4, {})
    assert [await produce(client, "u", index) for index in range(4)] == [errors.NONE] * 4
    disk.may_go_on.set()


async def test_a_broker_whose_opening_of_replicas_has_failed_does_not_wait_for_its_end(
    busy: Broker, disk: SlowFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_FAILED_CLOSE_S", 0.1)
    failed: list[Exception] = []
    end_on_failure(asyncio.get_running_loop(), failed.append)
    disk.error = SystemExit(0)
    disk.may_go_on.set()
    await until(lambda: failed)
    busy.cannot_go_on(failed[0])
    async with asyncio.timeout(30):
        await busy.close()


async def test_topics_that_wait_have_their_turns(busy: Broker, disk: SlowFolders) -> None:
    order: list[str] = []
    create_topic(busy, "u", 39, {})
    create_topic(busy, "v", 39, {})
    add = Topic.add

    def note(topic: Topic, partition: Any) -> None:
        order.append(topic.name)
        add(topic, partition)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Topic, "add", note)
        disk.may_go_on.set()
        for name in "tuv":
            await all_open(busy, name)
    first = {name: order.index(name) for name in "uv"}
    last = {name: len(order) - order[::-1].index(name) for name in "uv"}
    assert max(first.values()) < min(last.values())


async def test_many_topics_of_one_request_serve_when_they_are_open(
    start: Start, connect: Connect
) -> None:
    broker = await start()
    client = await connect(broker)
    names = [f"t{number}" for number in range(90)]
    asked = [
        {
            "name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [],
            "configs": [],
        }
        for name in names
    ]  # fmt: skip
    body = {"topics": asked, "timeout_ms": 1000, "validate_only": False}
    answer = await client.call(CREATE_TOPICS, 5, body)
    assert {each["error_code"] for each in answer["topics"]} == {errors.NONE}
    for name in names:
        await all_open(broker, name)
    assert {await produce(client, name, 1) for name in names} == {errors.NONE}
    body = {"topic_names": names, "timeout_ms": 1000}
    answer = await client.call(DELETE_TOPICS, 4, body)
    assert {each["error_code"] for each in answer["responses"]} == {errors.NONE}
    assert not list(broker.topics)
    await until(lambda: not list(broker.config.log_dir.glob("t*-*")))


# Those that wait fit into one batch, or do not.
@pytest.mark.parametrize("count", [60, 100])
async def test_who_creates_a_topic_is_answered_when_it_is_open(
    start: Start, disk: SlowFolders, connect: Connect, count: int
) -> None:
    broker = await start(Environment(SystemClock(), disk))
    client = await connect(broker)
    topic = {
        "name": "t", "num_partitions": count, "replication_factor": 1, "assignments": [],
        "configs": [],
    }  # fmt: skip
    body = {"topics": [topic], "timeout_ms": 60_000, "validate_only": False}
    client.send(CREATE_TOPICS, 5, body)
    answer = asyncio.create_task(client.receive(CREATE_TOPICS, 5))
    await until(disk.waits.is_set)
    assert not answer.done()
    # Nobody waits for others' topics.
    other = await connect(broker)
    small = {**topic, "name": "u", "num_partitions": 1}
    created = await other.call(CREATE_TOPICS, 5, {**body, "topics": [small]})
    assert created["topics"][0]["error_code"] == errors.NONE
    assert not answer.done()
    disk.may_go_on.set()
    _, created = await answer
    assert created["topics"][0]["error_code"] == errors.NONE
    assert [await produce(client, "t", index) for index in range(count)] == [errors.NONE] * count
    grow = {"topics": [{"name": "t", "count": 200, "assignments": None}], "timeout_ms": 60_000}
    created = await client.call(CREATE_PARTITIONS, 1, grow | {"validate_only": False})
    assert created["results"][0]["error_code"] == errors.NONE
    assert [await produce(client, "t", index) for index in (count, 199)] == [errors.NONE] * 2


@pytest.mark.parametrize("timeout_ms", [-1, 0, 50])
async def test_nobody_waits_longer_than_he_wants(
    busy: Broker, connect: Connect, timeout_ms: int
) -> None:
    client = await connect(busy)
    topic = {
        "name": "u", "num_partitions": 50, "replication_factor": 1, "assignments": [],
        "configs": [],
    }  # fmt: skip
    body = {"topics": [topic], "timeout_ms": timeout_ms, "validate_only": False}
    answer = await client.call(CREATE_TOPICS, 5, body)
    assert answer["topics"][0]["error_code"] == errors.NONE
    created = busy.topics.get("u")
    assert created is not None
    assert len(created.partitions) == 8


async def test_the_time_of_who_was_answered_ends_without_effect(
    start: Start, disk: SlowFolders, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(Environment(SystemClock(), disk))
    client = await connect(broker)
    # The second one has the same time, and is answered when it ends.
    for name, count in (("t", 30), ("u", 60)):
        topic = {
            "name": name, "num_partitions": count, "replication_factor": 1, "assignments": [],
            "configs": [],
        }  # fmt: skip
        body = {"topics": [topic], "timeout_ms": 1_000, "validate_only": False}
        answer = await client.call(CREATE_TOPICS, 5, body)
        assert answer["topics"][0]["error_code"] == errors.NONE
    disk.may_go_on.set()
    assert "Exception in callback" not in caplog.text


async def test_who_waits_is_answered_when_the_topic_is_deleted(
    busy: Broker, disk: SlowFolders, connect: Connect
) -> None:
    client = await connect(busy)
    topic = {
        "name": "u", "num_partitions": 50, "replication_factor": 1, "assignments": [],
        "configs": [],
    }  # fmt: skip
    body = {"topics": [topic], "timeout_ms": 600_000, "validate_only": False}
    client.send(CREATE_TOPICS, 5, body)
    await until(lambda: busy.topics.get("u") is not None)
    created = busy.topics.get("u")
    assert created is not None
    delete_topic(busy, created)
    former = busy.topics.get("t")
    assert former is not None
    delete_topic(busy, former)
    disk.may_go_on.set()
    _, answer = await client.receive(CREATE_TOPICS, 5)
    assert answer["topics"][0]["error_code"] == errors.NONE


async def test_who_waits_is_answered_when_the_broker_stops(
    busy: Broker, disk: SlowFolders, connect: Connect
) -> None:
    client = await connect(busy)
    grow = {"topics": [{"name": "t", "count": 200, "assignments": None}], "timeout_ms": 60_000}
    client.send(CREATE_PARTITIONS, 1, grow | {"validate_only": False})
    answer = asyncio.create_task(client.receive(CREATE_PARTITIONS, 1))
    done, _ = await asyncio.wait({answer}, timeout=0.2)
    assert not done
    disk.may_go_on.set()
    await busy.close()
    await asyncio.wait({answer})
    assert isinstance(answer.exception(), asyncio.IncompleteReadError | ConnectionError | None)


async def test_a_topic_that_is_deleted_meanwhile_leaves_nothing(
    busy: Broker, disk: SlowFolders, start: Start
) -> None:
    topic = busy.topics.get("t")
    assert topic is not None
    delete_topic(busy, topic)
    disk.may_go_on.set()
    logs = busy.config.log_dir
    await until(lambda: not list(logs.glob("t-*")))
    create_topic(busy, "last", 1, {})
    assert (logs / "known-partitions").read_text().split()[::2] == ["last-0"]
    await busy.close()
    again = await start()
    assert [each.name for each in again.topics] == ["last"]
    assert not again.problems()


async def test_a_topic_that_is_created_again_meanwhile_has_the_new_records_alone(
    busy: Broker, disk: SlowFolders, start: Start, connect: Connect
) -> None:
    former = busy.topics.get("t")
    assert former is not None
    delete_topic(busy, former)
    topic = create_topic(busy, "t", 45, {})
    assert topic.topic_id != former.topic_id
    disk.may_go_on.set()
    assert await all_open(busy, "t") is topic
    client = await connect(busy)
    assert await produce(client, "t", 0) == errors.NONE
    assert await produce(client, "t", 44) == errors.NONE
    # Those of the former topic are gone: 45 folders are left, all of them the new topic's.
    folders = sorted(each.name for each in busy.config.log_dir.glob("t-*"))
    assert folders == sorted(f"t-{index}" for index in range(45))
    await client.close()
    await busy.close()
    again = (await start()).topics.get("t")
    assert again is not None
    assert [each.log.log_end_offset for each in again.partitions] == [1, *[0] * 43, 1]
    assert not again.offline


async def test_settings_that_change_meanwhile_hold(busy: Broker, disk: SlowFolders) -> None:
    administer(
        busy,
        lambda operations: operations.change_topic(
            "t", {"retention.ms": "6000", "flush.messages": "7"}, validate_only=False
        ),
    )
    disk.may_go_on.set()
    topic = await all_open(busy, "t")
    assert {each.log.config.retention_ms for each in topic.partitions} == {6000}
    assert {each.acknowledges_after_flush for each in topic.partitions} == {False}


async def test_a_stop_waits_for_what_is_being_opened_and_the_next_start_opens_the_rest(
    busy: Broker, disk: SlowFolders, start: Start
) -> None:
    closing = asyncio.create_task(busy.close())
    done, _ = await asyncio.wait({closing}, timeout=0.2)
    assert not done
    disk.may_go_on.set()
    await closing
    topic = busy.topics.get("t")
    assert topic is not None
    assert 40 <= len(topic.partitions) < 100
    late = SlowFolders(first=90)
    again = await start(Environment(SystemClock(), late))
    # It serves before it has made those that there never were.
    found = again.topics.get("t")
    assert found is not None
    assert len(topic.partitions) <= len(found.partitions) < 100
    late.may_go_on.set()
    assert len((await all_open(again, "t")).partitions) == 100
    assert not again.problems()
    assert [each.log.bytes_cut for each in topic.partitions] == [0] * len(topic.partitions)


async def test_replicas_that_the_disk_has_no_room_for_are_there_when_it_has(
    busy: Broker, disk: SlowFolders, connect: Connect
) -> None:
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    disk.may_go_on.set()
    topic = busy.topics.get("t")
    assert topic is not None
    # None of those that wait is among them, but all the others of their batches.
    await until(lambda: len(topic.partitions) == 40)
    disk.error = None
    await all_open(busy, "t")
    assert await produce(await connect(busy), "t", 99) == errors.NONE
    assert not busy.failed.done()


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, "Input/output error"), RuntimeError("Input/output error")],
    ids=["expected", "unexpected"],
)
async def test_a_disk_that_fails_ends_the_broker(
    busy: Broker, disk: SlowFolders, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    disk.error = error
    disk.may_go_on.set()
    await until(busy.failed.done)
    assert isinstance(busy.failed.exception(), errors.KafkaStorageError)
    assert "this broker cannot go on: " in caplog.text
    assert "Input/output error" in caplog.text


class NoInventory(SystemDisk):
    """Cannot write `known-partitions` while `error` is set."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    def replace(self, path: Path, data: Buffer) -> None:
        """Replace a small file."""
        if path.name == "known-partitions" and self.error is not None and len(data) > 1000:
            raise self.error
        super().replace(path, data)


async def test_no_replica_serves_that_the_inventory_does_not_have(start: Start) -> None:
    disk = NoInventory()
    broker = await start(Environment(SystemClock(), disk))
    disk.error = OSError(errno.EIO, "Input/output error")
    topic = create_topic(broker, "t", 100, {})
    await until(broker.failed.done)
    # The first ones are in a list of less than a kilobyte.
    assert [each.index for each in topic.partitions] == list(range(8))


async def test_the_inventory_is_written_later_if_the_disk_is_full(start: Start) -> None:
    disk = NoInventory()
    broker = await start(Environment(SystemClock(), disk))
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    create_topic(broker, "t", 100, {})
    await all_open(broker, "t")
    disk.error = None
    create_topic(broker, "u", 1, {})
    known = (broker.config.log_dir / "known-partitions").read_text().splitlines()
    assert len(known) == 101
