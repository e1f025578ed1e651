"""The topic registry: topics on disk, after restarts, and in Metadata."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from broker_core import errors
from broker_core.environment import Buffer, Environment, File, SystemClock, SystemDisk
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import CREATE_TOPICS, DESCRIBE_TOPIC_PARTITIONS, METADATA
from broker_core.server.partitions.replicated_partition import ReplicatedPartition
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import RawClient
from tests.broker_core.server.topics import administer, all_open, create_topic, delete_topic
from waylog.config import ConfigError

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]


async def test_topics_are_the_same_after_a_restart(start: Start, tmp_path: Path) -> None:
    broker = await start()
    topic = create_topic(broker, "t", 3, {"retention.ms": "5000"})
    administer(
        broker, lambda operations: operations.add_partitions("t", 4, None, validate_only=False)
    )
    administer(
        broker,
        lambda operations: operations.change_topic(
            "t", {"retention.ms": "6000"}, validate_only=False
        ),
    )
    await broker.close()
    again = (await start()).topics.get("t")
    assert again is not None
    assert again.topic_id == topic.topic_id
    assert again.config.retention_ms == 6000
    assert len(again.partitions) == 4


async def test_a_deleted_topic_leaves_no_files(start: Start, tmp_path: Path) -> None:
    broker = await start()
    topic = create_topic(broker, "t", 2, {})
    delete_topic(broker, topic)
    async with asyncio.timeout(60):
        while list((tmp_path / "logs").glob("t-*")):
            await asyncio.sleep(0.01)
    await broker.close()
    assert list((await start()).topics) == []


async def test_a_log_of_no_topic_is_set_aside_and_never_deleted(
    start: Start, tmp_path: Path
) -> None:
    broker = await start()
    create_topic(broker, "t", 1, {})
    await broker.close()
    logs = tmp_path / "logs"
    shutil.copytree(logs / "t-0", logs / "u-0")
    again = await start()
    assert [topic.name for topic in again.topics] == ["t"]
    assert len(list(logs.glob("u-0.*-stray"))) == 1
    create_topic(again, "u", 1, {})


async def test_logs_without_any_metadata_are_not_taken_for_those_of_no_topic(
    start: Start, tmp_path: Path
) -> None:
    broker = await start()
    create_topic(broker, "t", 2, {})
    await broker.close()
    logs = tmp_path / "logs"
    (logs / "metadata").rename(tmp_path / "kept")
    with pytest.raises(ConfigError, match=r"no metadata, but there are the logs of 2 partitions"):
        await start()
    assert not list(logs.glob("*-stray"))
    shutil.rmtree(logs / "metadata")
    (tmp_path / "kept").rename(logs / "metadata")
    again = await start()
    assert [topic.name for topic in again.topics] == ["t"]


async def test_a_deletion_cut_short_is_ended_at_the_next_start(
    start: Start, tmp_path: Path
) -> None:
    left = tmp_path / "logs" / "t-0.0123456789abcdef-delete"
    left.mkdir(parents=True)
    (left / f"{0:020d}.log").write_bytes(b"x")
    await start()
    assert not left.exists()


async def test_names_that_metrics_would_mix_up_are_refused(broker: Broker) -> None:
    create_topic(broker, "a.b", 1, {})
    with pytest.raises(errors.InvalidTopic, match="collides"):
        create_topic(broker, "a_b", 1, {})


async def test_topics_are_created_when_asked_for_if_that_is_wanted(
    start: Start, connect: Connect
) -> None:
    broker = await start(auto_create_topics_enable="true", num_partitions="5")
    client = await connect(broker)
    asked = {"topics": [{"name": "t"}], "allow_auto_topic_creation": False}
    assert (await client.call(METADATA, 4, asked))["topics"][0]["error_code"] == 3
    asked["allow_auto_topic_creation"] = True
    (described,) = (await client.call(METADATA, 4, asked))["topics"]
    assert described["error_code"] == 0
    assert len(described["partitions"]) == 5


@pytest.mark.parametrize("version", [0, 1, 8, 9, 12, 13])
async def test_metadata_of_all_topics(broker: Broker, connect: Connect, version: int) -> None:
    create_topic(broker, "a", 1, {})
    create_topic(broker, "b", 2, {})
    asked: dict[str, object] = {"topics": [] if version == 0 else None}
    answer = await (await connect(broker)).call(METADATA, version, asked)
    assert {each["name"]: len(each["partitions"]) for each in answer["topics"]} == {"a": 1, "b": 2}
    (node,) = answer["brokers"]
    assert (node["node_id"], node["port"]) == (0, broker.endpoint.port)


async def test_a_topic_is_found_by_its_id(broker: Broker, connect: Connect) -> None:
    topic = create_topic(broker, "a", 1, {})
    client = await connect(broker)
    by_id = [{"topic_id": topic.topic_id, "name": None}, {"topic_id": b"x" * 16, "name": None}]
    found, missing = (await client.call(METADATA, 12, {"topics": by_id}))["topics"]
    assert (found["name"], found["error_code"]) == ("a", 0)
    assert missing["error_code"] == 100


async def test_topics_are_described_in_pages(broker: Broker, connect: Connect) -> None:
    create_topic(broker, "a", 3, {})
    create_topic(broker, "b", 3, {})
    client = await connect(broker)
    seen: list[tuple[str, int]] = []
    cursor = None
    for _ in range(10):
        answer = await client.call(
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            {"topics": [], "response_partition_limit": 2, "cursor": cursor},
        )
        seen += [
            (topic["name"], each["partition_index"])
            for topic in answer["topics"]
            for each in topic["partitions"]
        ]
        for topic in answer["topics"]:
            # Java's admin client fails on null here.
            assert all(each["eligible_leader_replicas"] == [] for each in topic["partitions"])
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == [(name, index) for name in "ab" for index in range(3)]


async def test_a_large_topic_is_deleted_without_holding_anybody_up(start: Start) -> None:
    broker = await start(log_segment_bytes="1000")
    topic = create_topic(broker, "large", 2, {})
    batch = bytes(build_batch([(1, None, bytes(600), ())]))
    for partition in topic.partitions:
        for _ in range(400):
            partition.append(bytearray(batch), broker.clock.now_ms())
    directory = broker.topics.directory("large", 0)
    # The time of this thread, which is the broker's event loop: others may have the processor.
    before_s = time.thread_time()
    delete_topic(broker, topic)
    assert time.thread_time() - before_s < 0.2
    assert broker.topics.get("large") is None
    # A new topic of the same name is empty.
    create_topic(broker, "large", 2, {})
    again = await all_open(broker, "large")
    assert again.partitions[0].log.log_end_offset == 0
    delete_topic(broker, again)
    async with asyncio.timeout(60):
        while directory.exists():
            await asyncio.sleep(0.01)


class LateDeletions(SystemDisk):
    """Deletes a log in the moment in which a new one of the same name is looked for, or soon."""

    def __init__(self) -> None:
        self._is_looked_for = threading.Event()
        self._is_deleted = threading.Event()

    def rename(self, source: Path, target: Path) -> None:
        """Rename; a log that is to be deleted later than others."""
        if target.name.endswith("-delete"):
            self._is_looked_for.wait(0.5)
        super().rename(source, target)
        self._is_deleted.set()

    def size(self, path: Path) -> int | None:
        """Return the size from before the deletion."""
        size = super().size(path)
        if size is not None and path.name == "partition.metadata":
            self._is_looked_for.set()
            self._is_deleted.wait(10)
        return size


async def test_a_topic_is_created_while_one_of_its_name_is_being_deleted(start: Start) -> None:
    broker = await start(Environment(SystemClock(), LateDeletions()))
    first = create_topic(broker, "t", 1, {})
    delete_topic(broker, first)
    create_topic(broker, "t", 1, {})
    again = await all_open(broker, "t")
    assert again.topic_id != first.topic_id
    assert again.partitions[0].log.log_end_offset == 0
    assert not broker.failed.done()
    assert not list(again.partitions[0].log.directory.parent.glob("*-stray"))


class CountingFile:
    """A file that counts how often it is made durable; the disk below it can be full."""

    def __init__(self, file: File, disk: CountingDisk) -> None:
        self._file = file
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pwrite(self, data: Buffer, position: int) -> int:
        """Write a part, then fail, if the disk is full."""
        if self._disk.is_full:
            self._file.pwrite(memoryview(data)[: len(data) // 2], position)
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._file.pwrite(data, position)

    def fdatasync(self) -> None:
        """Count."""
        self._disk.syncs += 1
        self._file.fdatasync()


class CountingDisk(SystemDisk):
    """Counts how often the metadata log is made durable."""

    def __init__(self) -> None:
        self.syncs = 0
        self.is_full = False

    def open(self, path: Path, *, writable: bool = False, create: bool = False) -> File:
        """Open a file."""
        file = super().open(path, writable=writable, create=create)
        is_metadata = path.name.startswith("entries-")
        return cast("File", CountingFile(file, self)) if is_metadata else file


def _many(count: int, prefix: str) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": f"{prefix}-{number}", "num_partitions": 2, "replication_factor": 1,
                "assignments": [], "configs": [],
            }
            for number in range(count)
        ],
        "timeout_ms": 1000,
        "validate_only": False,
    }  # fmt: skip


async def test_topics_of_one_request_become_durable_in_one_go(
    start: Start, connect: Connect
) -> None:
    disk = CountingDisk()
    broker = await start(Environment(SystemClock(), disk))
    client = await connect(broker)
    before = disk.syncs
    answer = await client.call(CREATE_TOPICS, 5, _many(50, "t"))
    assert {each["error_code"] for each in answer["topics"]} == {0}
    assert disk.syncs - before == 1


async def test_a_broker_that_is_alone_goes_on_when_its_full_disk_has_room_again(
    start: Start, connect: Connect
) -> None:
    disk = CountingDisk()
    broker = await start(Environment(SystemClock(), disk))
    client = await connect(broker)
    disk.is_full = True
    answer = await client.call(CREATE_TOPICS, 5, _many(3, "u"))
    assert {each["error_code"] for each in answer["topics"]} == {errors.KafkaStorageError.code}
    assert list(broker.topics) == []
    disk.is_full = False
    answer = await client.call(CREATE_TOPICS, 5, _many(3, "u"))
    assert {each["error_code"] for each in answer["topics"]} == {0}
    await client.close()
    await broker.close()
    again = await start()
    assert {topic.name for topic in again.topics} == {"u-0", "u-1", "u-2"}


class DiskForDecisionsAlone(SystemDisk):
    """Has room for the metadata log, but while `is_full` for no log of a partition."""

    def __init__(self, *, without: str) -> None:
        """`without`: what there is no room for, folders or the files in them."""
        self.is_full = False
        self.looks = 0
        self._without = without

    def _check(self, path: Path, kind: str) -> None:
        if self.is_full and self._without == kind and path.name != "metadata":
            raise OSError(errno.ENOSPC, "No space left on device")

    def free_bytes(self, directory: Path) -> int | None:
        """Tell how much room there is, and count the question."""
        self.looks += 1
        return super().free_bytes(directory)

    def make_directory(self, directory: Path) -> None:
        """Create a directory."""
        self._check(directory, "folders")
        super().make_directory(directory)

    def replace(self, path: Path, data: Buffer) -> None:
        """Replace a small file."""
        self._check(path.parent, "files")
        super().replace(path, data)


@pytest.mark.parametrize("without", ["folders", "files"])
async def test_a_topic_that_a_full_disk_has_no_room_for_is_there_when_it_has(
    start: Start, connect: Connect, without: str
) -> None:
    disk = DiskForDecisionsAlone(without=without)
    broker = await start(Environment(SystemClock(), disk))
    client = await connect(broker)
    create_topic(broker, "before", 1, {})
    disk.is_full = True
    answer = await client.call(CREATE_TOPICS, 5, _many(2, "t"))
    assert {each["error_code"] for each in answer["topics"]} == {0}
    before = broker.topics.partition("before", 0)
    assert before is not None
    before.append(bytearray(build_batch([(1, None, b"still taken", ())])), broker.clock.now_ms())
    disk.is_full = False
    async with asyncio.timeout(60):
        while not all(
            isinstance(each := broker.topics.partition(f"t-{number}", index), ReplicatedPartition)
            and each.is_led
            for number in range(2)
            for index in range(2)
        ):
            await asyncio.sleep(0.02)
    assert not broker.failed.done()
    await client.close()
    await broker.close()
    again = await start()
    assert {topic.name: len(topic.partitions) for topic in again.topics} == {
        "before": 1, "t-0": 2, "t-1": 2
    }  # fmt: skip


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_nothing_is_applied_again_once_no_log_waits_for_room(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    monkeypatch.setattr("broker_core.server.partitions.housekeeping._LOOK_INTERVAL_S", 0.02)
    disk = DiskForDecisionsAlone(without="folders")
    broker = await start(Environment(SystemClock(), disk))
    client = await connect(broker)
    disk.is_full = True
    answer = await client.call(CREATE_TOPICS, 5, _many(1, "t"))
    assert {each["error_code"] for each in answer["topics"]} == {0}
    topic = broker.topics.get("t-0")
    assert topic is not None
    if is_deleted:
        delete_topic(broker, topic)
    disk.is_full = False
    applied: list[object] = []
    async with asyncio.timeout(60):
        while not is_deleted and None in (topic.get(0), topic.get(1)):
            await asyncio.sleep(0.01)
        broker.cluster.subscribers.append(lambda _, changes: applied.append(changes))
        before = disk.looks
        while disk.looks < before + 5:
            await asyncio.sleep(0.01)
    assert applied == []
