"""Produce: when it is acknowledged, and which errors refuse it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import errors
from broker_core.environment import Environment, File, SystemClock, SystemDisk, SystemFile
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import FETCH, LIST_OFFSETS, PRODUCE
from broker_core.protocol.record_reader import iterate_records
from broker_core.server.runtime import Broker
from tests.broker_core.server.hasty_clock import HastyClock
from tests.broker_core.server.raw_client import RawClient, client_at, fetch_body, produce_body
from tests.broker_core.server.topics import all_open, create_topic, delete_topic

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]


def batch(*values: bytes) -> bytes:
    """Build one batch."""
    return bytes(build_batch([(1000 + i, b"k", value, ()) for i, value in enumerate(values)]))


class GatedFile(SystemFile):
    """A file whose fdatasync can be blocked, and can fail."""

    __slots__ = ("_disk",)

    def __init__(self, descriptor: int, disk: GatedDisk) -> None:
        super().__init__(descriptor)
        self._disk = disk

    def fdatasync(self) -> None:
        self._disk.syncs += 1
        self._disk.open_gate.wait(60)
        if self._disk.failing:
            raise OSError(5, "Input/output error")
        super().fdatasync()


class GatedDisk(SystemDisk):
    """A disk that the test can block and break."""

    def __init__(self) -> None:
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.failing = False
        self.syncs = 0

    def open(self, path: Path, *, create: bool = False, writable: bool = False) -> File:
        file = super().open(path, create=create, writable=writable)
        if not isinstance(file, SystemFile) or not (create or writable):
            return file
        descriptor, file._descriptor = file._descriptor, -1
        return GatedFile(descriptor, self)


@pytest.fixture
def disk() -> GatedDisk:
    """A disk that works until the test changes it."""
    return GatedDisk()


@pytest.fixture
async def gated(start: Start, disk: GatedDisk) -> Broker:
    """A broker on the gated disk."""
    return await start(Environment(Environment.real().clock, disk))


async def test_acks_all_waits_for_the_disk_and_acks_1_does_not(
    gated: Broker, disk: GatedDisk, connect: Connect
) -> None:
    topic = create_topic(gated, "t", 1, {})
    careful, hasty, reader = [await connect(gated) for _ in range(3)]
    disk.open_gate.clear()
    careful.send(PRODUCE, 8, produce_body("t", batch(b"a")))
    answer = await hasty.call(PRODUCE, 8, produce_body("t", batch(b"b"), acks=1))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert topic.partitions[0].log.log_end_offset == 2
    # Consumers must not see what a power cut could still take back.
    seen = await reader.call(FETCH, 11, fetch_body("t", 0, max_wait_ms=50))
    assert seen["responses"][0]["partitions"][0]["records"] == b""
    reader.send(FETCH, 11, fetch_body("t", 0, max_wait_ms=60_000))
    disk.open_gate.set()
    _, acknowledged = await careful.receive(PRODUCE, 8)
    part = acknowledged["responses"][0]["partition_responses"][0]
    assert (part["error_code"], part["base_offset"]) == (0, 0)
    _, seen = await reader.receive(FETCH, 11)
    assert seen["responses"][0]["partitions"][0]["high_watermark"] >= 1


async def test_one_flush_covers_all_appends_that_wait(
    gated: Broker, disk: GatedDisk, connect: Connect
) -> None:
    create_topic(gated, "t", 1, {})
    client = await connect(gated)
    await client.call(PRODUCE, 8, produce_body("t", batch(b"first")))
    disk.open_gate.clear()
    before = disk.syncs
    for _ in range(100):
        client.send(PRODUCE, 8, produce_body("t", batch(b"x")))
    await client.writer.drain()
    async with asyncio.timeout(60):
        while gated.topics.partition("t", 0).log.log_end_offset < 101:  # type: ignore[union-attr]
            await asyncio.sleep(0.001)
    disk.open_gate.set()
    for number in range(100):
        _, answer = await client.receive(PRODUCE, 8)
        part = answer["responses"][0]["partition_responses"][0]
        assert (part["error_code"], part["base_offset"]) == (0, number + 1)
    assert disk.syncs - before <= 3


def to_each(topic: str, count: int, records: bytes, acks: int = 1) -> dict[str, Any]:
    """Return a Produce request for many partitions."""
    parts = [{"index": index, "records": records} for index in range(count)]
    topics = [{"name": topic, "partition_data": parts}]
    return {"acks": acks, "timeout_ms": 5000, "topic_data": topics}


async def test_others_are_served_while_records_for_many_partitions_are_appended(
    broker: Broker, connect: Connect
) -> None:
    create_topic(broker, "wide", 1_000, {})
    topic = await all_open(broker, "wide")
    wide, other = await connect(broker), await connect(broker)
    order: list[str] = []

    async def answer(client: RawClient, name: str) -> dict[str, Any]:
        _, answer = await client.receive(PRODUCE, 8)
        order.append(name)
        return answer

    await other.call(PRODUCE, 8, produce_body("wide", batch(b"first"), partition=1))
    wide.send(PRODUCE, 8, to_each("wide", 1_001, batch(b"one")))
    # What the client sends behind it stays behind it.
    wide.send(PRODUCE, 8, produce_body("wide", batch(b"two"), partition=999, acks=1))
    other.send(PRODUCE, 8, produce_body("wide", batch(b"x"), partition=998, acks=1))
    async with asyncio.TaskGroup() as tasks:
        many = tasks.create_task(answer(wide, "many"))
        tasks.create_task(answer(other, "other"))
    (answered,) = many.result()["responses"]
    codes = [each["error_code"] for each in answered["partition_responses"]]
    assert codes == [0] * 1_000 + [errors.UnknownTopicOrPartition.code]
    assert [each["index"] for each in answered["partition_responses"]] == [*range(1_001)]
    assert order == ["other", "many"]
    await wide.receive(PRODUCE, 8)
    stored = [each[3] for each in iterate_records(topic.partitions[999].log.read(0, 10_000))]
    assert stored == [b"one", b"two"]
    stored = [each[3] for each in iterate_records(topic.partitions[500].log.read(0, 10_000))]
    assert stored == [b"one"]


async def test_records_for_many_partitions_are_kept_until_it_is_their_turn(
    broker: Broker, connect: Connect
) -> None:
    create_topic(broker, "wide", 300, {})
    topic = await all_open(broker, "wide")
    wide, other = await connect(broker), await connect(broker)
    # What comes next from anybody is received into the same buffer.
    wide.send(PRODUCE, 8, to_each("wide", 300, batch(b"one")))
    other.send(PRODUCE, 8, produce_body("nowhere", batch(b"x" * 30_000)))
    for client in (other, wide):
        _, answer = await client.receive(PRODUCE, 8)
    (answered,) = answer["responses"]
    assert [each["error_code"] for each in answered["partition_responses"]] == [0] * 300
    stored = [each[3] for each in iterate_records(topic.partitions[299].log.read(0, 10_000))]
    assert stored == [b"one"]


@pytest.mark.parametrize(("topics", "partitions"), [(1_999, 1), (1, 1_999), (19, 100)])
async def test_others_are_served_while_records_for_many_partitions_are_refused(
    start: Start, connect: Connect, topics: int, partitions: int
) -> None:
    broker = await start(Environment(HastyClock(), SystemDisk()))
    create_topic(broker, "t", 1, {})
    wide, other = await connect(broker), await connect(broker)
    parts = [{"index": index, "records": b""} for index in range(partitions)]
    asked = [{"name": f"nowhere{number}", "partition_data": parts} for number in range(topics)]
    # That there are many must not depend on the first topic.
    asked.insert(0, {"name": "t", "partition_data": [{"index": 0, "records": batch(b"v")}]})
    wide.send(PRODUCE, 8, {"acks": 1, "timeout_ms": 5000, "topic_data": asked})
    many = asyncio.create_task(wide.receive(PRODUCE, 8))
    async with asyncio.timeout(60):
        while not (many.done() or broker.network.turns.are_taken):
            await asyncio.sleep(0)
    await other.call(PRODUCE, 8, produce_body("t", batch(b"v"), acks=1))
    assert not many.done()
    _, answer = await many
    codes = [
        each["error_code"] for topic in answer["responses"] for each in topic["partition_responses"]
    ]
    assert codes == [errors.NONE] + [errors.UnknownTopicOrPartition.code] * topics * partitions


async def test_records_for_many_partitions_of_one_address_keep_another_ones_waiting_half_the_time(
    start: Start,
) -> None:
    broker = await start(Environment(HastyClock(), SystemDisk()))
    greedy = [await client_at("127.0.0.2", broker.endpoint) for _ in range(10)]
    other = await client_at("127.0.0.1", broker.endpoint)
    for client in greedy:
        client.send(PRODUCE, 8, to_each("nowhere", 2_000, b""))
    tasks = [asyncio.create_task(client.receive(PRODUCE, 8)) for client in greedy]
    async with asyncio.timeout(60):
        while not (broker.network.turns.are_taken or any(each.done() for each in tasks)):
            await asyncio.sleep(0)
    await other.call(PRODUCE, 8, to_each("nowhere", 2_000, b""))
    assert not any(each.done() for each in tasks)
    await asyncio.gather(*tasks)
    for client in (*greedy, other):
        await client.close()


async def test_records_for_many_partitions_are_stored_although_the_client_has_gone(
    broker: Broker, connect: Connect
) -> None:
    create_topic(broker, "wide", 1_000, {})
    topic = await all_open(broker, "wide")
    client = await connect(broker)
    client.send(PRODUCE, 8, to_each("wide", 1_000, batch(b"one"), acks=0))
    await client.close()
    async with asyncio.timeout(60):
        while not topic.partitions[999].log.log_end_offset:
            await asyncio.sleep(0.001)


async def test_a_topic_that_is_deleted_while_records_are_appended(
    broker: Broker, connect: Connect
) -> None:
    create_topic(broker, "wide", 1_000, {})
    topic = await all_open(broker, "wide")
    client = await connect(broker)
    client.send(PRODUCE, 8, to_each("wide", 1_000, batch(b"one")))
    async with asyncio.timeout(60):
        while not topic.partitions[0].log.log_end_offset:
            await asyncio.sleep(0)
    assert not topic.partitions[999].log.log_end_offset
    delete_topic(broker, topic)
    _, answer = await client.receive(PRODUCE, 8)
    (answered,) = answer["responses"]
    codes = [each["error_code"] for each in answered["partition_responses"]]
    assert set(codes) == {0, errors.UnknownTopicOrPartition.code}
    assert codes == sorted(codes)


async def test_a_failed_flush_is_never_acknowledged_and_stops_the_broker(
    gated: Broker, disk: GatedDisk, connect: Connect
) -> None:
    create_topic(gated, "t", 1, {})
    client = await connect(gated)
    disk.failing = True
    answer = await client.call(PRODUCE, 8, produce_body("t", batch(b"x")))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 56
    async with asyncio.timeout(60):
        await asyncio.wait((gated.failed,))
    # A later append is not acknowledged either.
    answer = await client.call(PRODUCE, 8, produce_body("t", batch(b"y")))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 56
    disk.failing = False


async def test_without_flush_settings_an_append_is_acknowledged_at_once(
    start: Start, disk: GatedDisk, connect: Connect
) -> None:
    environment = Environment(Environment.real().clock, disk)
    broker = await start(environment, log_flush_interval_messages="10")
    topic = create_topic(broker, "t", 1, {})
    client = await connect(broker)
    disk.open_gate.clear()
    for _ in range(5):
        await client.call(PRODUCE, 8, produce_body("t", batch(b"x")))
    assert topic.partitions[0].high_watermark == 5
    disk.open_gate.set()
    for _ in range(5):
        await client.call(PRODUCE, 8, produce_body("t", batch(b"x")))
    async with asyncio.timeout(60):
        while topic.partitions[0].log.recovery_point < 10:
            await asyncio.sleep(0.001)


async def test_what_is_not_flushed_by_count_is_flushed_by_time(
    start: Start, connect: Connect
) -> None:
    broker = await start(
        log_flush_interval_messages="1000",
        log_flush_interval_ms="20",
        log_flush_scheduler_interval_ms="10",
    )
    topic = create_topic(broker, "t", 1, {})
    await (await connect(broker)).call(PRODUCE, 8, produce_body("t", batch(b"x")))
    async with asyncio.timeout(60):
        while topic.partitions[0].log.recovery_point < 1:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_the_broker_stores_batches_as_they_came(
    broker: Broker, connect: Connect, version: int
) -> None:
    create_topic(broker, "t", 1, {})
    client = await connect(broker)
    await client.call(PRODUCE, version, produce_body("t", batch(b"a", b"b")))
    answer = await client.call(PRODUCE, version, produce_body("t", batch(b"c")))
    assert answer["responses"][0]["partition_responses"][0]["base_offset"] == 2
    fetched = await client.call(FETCH, 4, fetch_body("t", 0))
    records = fetched["responses"][0]["partitions"][0]["records"]
    assert [(record[0], record[3]) for record in iterate_records(records)] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]
    # Only the base offset and the leader epoch differ from what was sent.
    assert bytes(records[16 : len(batch(b"a", b"b"))]) == batch(b"a", b"b")[16:]


async def test_topic_ids_work_where_names_are_gone(broker: Broker, connect: Connect) -> None:
    topic = create_topic(broker, "t", 1, {})
    client = await connect(broker)
    body = produce_body("t", batch(b"a"))
    body["topic_data"][0] |= {"name": "", "topic_id": topic.topic_id}
    answer = await client.call(PRODUCE, 13, body)
    assert answer["responses"][0]["topic_id"] == topic.topic_id
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    fetch = fetch_body("t", 0)
    fetch["topics"][0] |= {"topic": "", "topic_id": topic.topic_id}
    answer = await client.call(FETCH, 17, fetch)
    assert len(answer["responses"][0]["partitions"][0]["records"]) > 0
    fetch["topics"][0]["topic_id"] = bytes(15) + b"x"
    answer = await client.call(FETCH, 17, fetch)
    assert answer["responses"][0]["partitions"][0]["error_code"] == 100


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "missing"}, 3),
        ({"partition": 7}, 3),
        ({"partition": -1}, 3),
        ({"records": b""}, 87),
        ({"records": batch(b"cut")[:-3]}, 2),
        ({"acks": 2}, 21),
        ({"topic": "__consumer_offsets"}, 17),
    ],
)
async def test_a_wrong_produce_is_refused_with_kafkas_code(
    broker: Broker, connect: Connect, change: dict[str, object], code: int
) -> None:
    create_topic(broker, "t", 1, {})
    create_topic(broker, "__consumer_offsets", 1, {})
    asked: dict[str, object] = {"topic": "t", "records": batch(b"a"), "acks": -1, "partition": 0}
    answer = await (await connect(broker)).call(
        PRODUCE,
        8,
        produce_body(**(asked | change)),  # type: ignore[arg-type]
    )
    part = answer["responses"][0]["partition_responses"][0]
    assert part["error_code"] == code
    assert part["error_message"]


async def test_a_damaged_batch_is_refused_and_nothing_is_stored(
    broker: Broker, connect: Connect
) -> None:
    topic = create_topic(broker, "t", 1, {})
    damaged = bytearray(batch(b"a" * 50))
    damaged[-10] ^= 1
    answer = await (await connect(broker)).call(PRODUCE, 8, produce_body("t", bytes(damaged)))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 2
    assert topic.partitions[0].log.log_end_offset == 0


async def test_with_acks_0_there_is_no_answer_but_an_error_closes_the_connection(
    broker: Broker, connect: Connect
) -> None:
    topic = create_topic(broker, "t", 1, {})
    client = await connect(broker)
    client.send(PRODUCE, 8, produce_body("t", batch(b"a"), acks=0))
    # The next response on the connection belongs to the next request.
    asked = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
    answer = await client.call(LIST_OFFSETS, 4, asked)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0
    assert topic.partitions[0].log.log_end_offset == 1
    client.send(PRODUCE, 8, produce_body("missing", batch(b"a"), acks=0))
    assert await client.is_closed_by_peer()


async def test_no_more_replicas_are_asked_for_than_there_are(
    broker: Broker, connect: Connect
) -> None:
    create_topic(broker, "t", 1, {"min.insync.replicas": "2"})
    client = await connect(broker)
    # As in Apache Kafka 4 (KIP-966).
    answer = await client.call(PRODUCE, 8, produce_body("t", batch(b"a")))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
    answer = await client.call(PRODUCE, 8, produce_body("t", batch(b"a"), acks=1))
    assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0


class Clock(SystemClock):
    """A clock that the test moves."""

    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


async def test_refused_requests_are_counted_and_told_once_in_a_while(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    caplog.set_level(logging.INFO)
    broker = await start(Environment(clock, SystemDisk()))
    create_topic(broker, "t", 1, {})
    client = await connect(broker)

    async def refused(*bodies: dict[str, Any]) -> list[str]:
        before = len(caplog.records)
        for body in bodies:
            client.send(PRODUCE, 8, body)
        for _ in bodies:
            _, answer = await client.receive(PRODUCE, 8)
            assert answer["responses"][0]["partition_responses"][0]["error_code"]
        said = [each.getMessage() for each in caplog.records[before:]]
        return [each for each in said if "is refused" in each]

    unknown = produce_body("nosuch", batch(b"v"))
    (line,) = await refused(*[unknown] * 100)
    assert "produce to nosuch-0 by test is refused" in line
    # Other errors are told too.
    (line,) = await refused(produce_body("t", batch(b"v"), partition=1), produce_body("t", b""))
    assert "a produce request without records" in line
    clock.now_s += 11
    (line,) = await refused(unknown)
    assert "(100 more such requests were refused before)" in line
