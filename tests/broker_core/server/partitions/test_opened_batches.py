"""Batches that are expanded or compressed anew by a thread, while others are served."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from broker_core import errors
from broker_core.environment import (
    Environment,
    SystemClock,
    SystemDisk,
    SystemThreads,
    ThreadWorker,
)
from broker_core.log.config import LogConfig
from broker_core.log.validation import open_batches
from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.batch_header import HEADER_BYTES
from broker_core.protocol.compression import Compression
from broker_core.protocol.definitions import API_VERSIONS, FETCH, LIST_OFFSETS, PRODUCE
from broker_core.protocol.record_reader import iterate_records
from broker_core.protocol.stored_batches import scan_batches
from broker_core.server.partitions.topics import Topic
from broker_core.server.runtime import Broker
from tests.broker_core.server.raw_client import (
    RawClient,
    client_at,
    fetch_body,
    produce_body,
)
from tests.broker_core.server.topics import all_open, create_topic
from tests.hostile_peers import gzip_bomb
from waylog.network.connection_ends import reset

Connect = Callable[[Broker], Awaitable[RawClient]]
Start = Callable[..., Awaitable[Broker]]


class HeldWorker(ThreadWorker):
    """A thread that works when it may."""

    def __init__(self, name: str, may_work: threading.Event) -> None:
        self._may_work = may_work
        super().__init__(name, asyncio.get_running_loop())

    def submit(self, work: Callable[[], None]) -> None:
        """Run a task when the worker may work."""

        def later() -> None:
            self._may_work.wait(60)
            work()

        super().submit(later)


class HeldThreads(SystemThreads):
    """Threads, of which that for batches works when it may."""

    def __init__(self) -> None:
        self.may_open = threading.Event()

    def worker(self, name: str) -> ThreadWorker:
        """Return a thread."""
        return HeldWorker(name, self.may_open) if name == "batches" else super().worker(name)


@pytest.fixture
def threads() -> Iterator[HeldThreads]:
    threads = HeldThreads()
    yield threads
    threads.may_open.set()


@pytest.fixture
async def broker(start: Start, threads: HeldThreads) -> AsyncIterator[Broker]:
    """A broker with a topic that has its own codec, one that is compacted, and a plain one."""
    broker = await start(Environment(SystemClock(), SystemDisk(), threads))
    create_topic(broker, "gzip", 2, {"compression.type": "gzip"})
    create_topic(broker, "compacted", 1, {"cleanup.policy": "compact"})
    create_topic(broker, "plain", 1, {})
    yield broker
    threads.may_open.set()


#: A header of a record that expands to more than is opened on the event loop.
PADDING = ("padding", bytes(100_000))


def batch(value: bytes, codec: int = Compression.LZ4, key: bytes | None = b"k") -> bytes:
    """Return a batch that is opened in a thread."""
    record = (SystemClock().now_ms(), key, value, (PADDING,) if codec else ())
    return bytes(build_batch([record], compression=codec))


def small_batch(value: bytes, key: bytes | None = b"k") -> bytes:
    return bytes(
        build_batch([(SystemClock().now_ms(), key, value, ())], compression=Compression.LZ4)
    )


def stored(topic: Topic | None, index: int = 0) -> list[tuple[int, bytes | None]]:
    """Return codec and value of each record."""
    assert topic is not None
    log = topic.partition(index).log
    data = log.read(0, 1_000_000)
    headers, _, _ = scan_batches(data)
    return [
        (header.compression, record[3])
        for header, record in zip(headers, iterate_records(data), strict=True)
    ]


def code_of(answer: dict[str, Any]) -> int:
    (topic,) = answer["responses"]
    (part,) = topic["partition_responses"]
    code: int = part["error_code"]
    return code


async def test_others_are_served_while_batches_are_opened_and_the_same_client_in_order(
    broker: Broker, threads: HeldThreads, connect: Connect
) -> None:
    client, other = await connect(broker), await connect(broker)
    client.send(PRODUCE, 8, produce_body("gzip", batch(b"1")))
    client.send(PRODUCE, 8, produce_body("gzip", batch(b"2", Compression.GZIP)))
    client.send(PRODUCE, 8, produce_body("plain", batch(b"3")))
    answer = asyncio.create_task(client.receive(PRODUCE, 8))
    assert (await other.call(API_VERSIONS, 0, {}))["error_code"] == errors.NONE
    assert code_of(await other.call(PRODUCE, 8, produce_body("plain", batch(b"4")))) == 0
    assert not answer.done()
    threads.may_open.set()
    assert code_of((await answer)[1]) == 0
    assert [code_of((await client.receive(PRODUCE, 8))[1]) for _ in range(2)] == [0, 0]
    gzip = Compression.GZIP
    assert stored(broker.topics.get("gzip")) == [(gzip, b"1"), (gzip, b"2")]
    assert [value for _, value in stored(broker.topics.get("plain"))] == [b"4", b"3"]


@pytest.mark.parametrize("timestamp", [1, -3])
async def test_others_are_served_while_a_record_is_looked_for_by_its_time(
    broker: Broker, threads: HeldThreads, connect: Connect, timestamp: int
) -> None:
    client, other = await connect(broker), await connect(broker)
    before = SystemClock().now_ms()
    await client.call(PRODUCE, 8, produce_body("plain", batch(b"1")))
    parts = [{"partition_index": index, "timestamp": timestamp} for index in (0, 7)]
    topics = [{"name": name, "partitions": parts} for name in ("plain", "absent")]
    client.send(LIST_OFFSETS, 6, {"topics": topics})
    answer = asyncio.create_task(client.receive(LIST_OFFSETS, 6))
    assert code_of(await other.call(PRODUCE, 8, produce_body("plain", batch(b"2")))) == 0
    end = {"name": "plain", "partitions": [{"partition_index": 0, "timestamp": -1}]}
    latest = await other.call(LIST_OFFSETS, 6, {"topics": [end]})
    assert latest["topics"][0]["partitions"][0]["offset"] == 2
    assert not answer.done()
    threads.may_open.set()
    plain, absent = (await answer)[1]["topics"]
    found, missing = plain["partitions"]
    assert (found["error_code"], found["offset"]) in {(0, 0), (0, 1)}
    assert found["timestamp"] >= before
    unknown = errors.UnknownTopicOrPartition.code
    assert [each["error_code"] for each in (missing, *absent["partitions"])] == [unknown] * 3


async def test_nothing_is_looked_for_when_the_client_has_gone(
    broker: Broker, threads: HeldThreads, connect: Connect
) -> None:
    client, other = await connect(broker), await connect(broker)
    await client.call(PRODUCE, 8, produce_body("plain", batch(b"1")))
    part = {"name": "plain", "partitions": [{"partition_index": 0, "timestamp": 1}]}
    client.send(LIST_OFFSETS, 6, {"topics": [part]})
    await client.close()
    other.send(LIST_OFFSETS, 6, {"topics": [part]})
    threads.may_open.set()
    _, answer = await other.receive(LIST_OFFSETS, 6)
    assert answer["topics"][0]["partitions"][0]["offset"] == 0


@pytest.mark.parametrize(
    ("topic", "codec", "size", "waits"),
    [
        ("gzip", Compression.LZ4, 1, True),
        ("gzip", Compression.NONE, 100_000, True),
        ("gzip", Compression.NONE, 1, False),
        ("gzip", Compression.GZIP, 100_000, False),
        ("compacted", Compression.LZ4, 1, True),
        ("compacted", Compression.NONE, 100_000, False),
        ("plain", Compression.LZ4, 100_000, False),
    ],
)
async def test_what_takes_long_waits_for_the_thread(
    broker: Broker,
    threads: HeldThreads,
    connect: Connect,
    topic: str,
    codec: int,
    size: int,
    waits: bool,
) -> None:
    client = await connect(broker)
    client.send(PRODUCE, 8, produce_body(topic, batch(b"x" * size, codec)))
    answer = asyncio.create_task(client.receive(PRODUCE, 8))
    done, _ = await asyncio.wait({answer}, timeout=0.1 if waits else 30)
    assert bool(done) is not waits
    threads.may_open.set()
    assert code_of((await answer)[1]) == 0
    (kept,) = stored(broker.topics.get(topic))
    assert kept == (Compression.GZIP if topic == "gzip" else codec, b"x" * size)


@pytest.mark.parametrize(
    ("topic", "codecs", "size"),
    [
        ("gzip", [Compression.NONE, Compression.LZ4], 1),
        ("gzip", [Compression.NONE] * 20, 1_000),
        ("compacted", [Compression.NONE, Compression.LZ4], 1),
    ],
    ids=["compressed", "large together", "compacted"],
)
async def test_what_takes_long_because_of_one_batch_or_of_all_together_waits_for_the_thread(
    broker: Broker,
    threads: HeldThreads,
    connect: Connect,
    topic: str,
    codecs: list[int],
    size: int,
) -> None:
    client, other = await connect(broker), await connect(broker)
    data = b"".join(batch(b"x" * size, codec) for codec in codecs)
    client.send(PRODUCE, 8, produce_body(topic, data))
    # What comes later, and does not take long, is stored before.
    await other.call(API_VERSIONS, 0, {})
    assert (
        code_of(
            await other.call(PRODUCE, 8, produce_body(topic, batch(b"first", Compression.NONE)))
        )
        == 0
    )
    threads.may_open.set()
    assert code_of((await client.receive(PRODUCE, 8))[1]) == 0
    values = [value for _, value in stored(broker.topics.get(topic))]
    assert values == [b"first", *[b"x" * size] * len(codecs)]


async def test_several_batches_of_which_the_first_is_as_it_should_be(
    broker: Broker, threads: HeldThreads, connect: Connect
) -> None:
    threads.may_open.set()
    client = await connect(broker)
    both = batch(b"1", Compression.GZIP) + batch(b"2", Compression.ZSTD)
    assert code_of(await client.call(PRODUCE, 8, produce_body("gzip", both))) == 0
    gzip = Compression.GZIP
    assert stored(broker.topics.get("gzip")) == [(gzip, b"1"), (gzip, b"2")]


async def test_a_batch_that_becomes_too_large_is_refused(
    broker: Broker, threads: HeldThreads, connect: Connect
) -> None:
    threads.may_open.set()
    small = {"compression.type": "uncompressed", "max.message.bytes": "1000"}
    create_topic(broker, "small", 1, small)
    client = await connect(broker)
    codes = [
        code_of(await client.call(PRODUCE, 8, produce_body("small", small_batch(b"x" * size))))
        for size in (500, 5_000, 50_000)
    ]
    assert codes == [errors.NONE, errors.MessageTooLarge.code, errors.MessageTooLarge.code]
    assert stored(broker.topics.get("small")) == [(Compression.NONE, b"x" * 500)]


@pytest.mark.parametrize("topic", ["gzip", "compacted"])
async def test_a_small_batch_is_opened_without_the_thread(
    broker: Broker, connect: Connect, topic: str
) -> None:
    client = await connect(broker)
    assert code_of(await client.call(PRODUCE, 8, produce_body(topic, small_batch(b"1")))) == 0
    codec = Compression.GZIP if topic == "gzip" else Compression.LZ4
    assert stored(broker.topics.get(topic)) == [(codec, b"1")]


async def test_a_small_batch_that_is_refused_is_answered_without_the_thread(
    broker: Broker, connect: Connect
) -> None:
    client = await connect(broker)
    without_key = produce_body("compacted", small_batch(b"1", key=None))
    assert code_of(await client.call(PRODUCE, 8, without_key)) == errors.InvalidRecord.code
    damaged = bytearray(small_batch(b"1"))
    damaged[-1] ^= 1
    answer = await client.call(PRODUCE, 8, produce_body("compacted", bytes(damaged)))
    assert code_of(answer) == errors.CorruptMessage.code
    assert stored(broker.topics.get("compacted")) == []


@pytest.mark.parametrize(
    "large",
    [
        pytest.param(batch(b"1"), id="expands to more"),
        pytest.param(small_batch(b"1") + small_batch(b"2"), id="two batches"),
        pytest.param(small_batch(os.urandom(40_000)), id="large itself"),
    ],
)
async def test_a_batch_that_is_not_small_waits_for_the_thread(
    broker: Broker, threads: HeldThreads, connect: Connect, large: bytes
) -> None:
    client, other = await connect(broker), await connect(broker)
    client.send(PRODUCE, 8, produce_body("compacted", large))
    answer = asyncio.create_task(client.receive(PRODUCE, 8))
    assert code_of(await other.call(PRODUCE, 8, produce_body("plain", small_batch(b"3")))) == 0
    assert not answer.done()
    assert stored(broker.topics.get("compacted")) == []
    threads.may_open.set()
    assert code_of((await answer)[1]) == 0


@pytest.mark.parametrize(("count", "waits"), [(8, False), (9, True)])
async def test_a_request_of_many_small_batches_waits_for_the_thread(
    broker: Broker, threads: HeldThreads, connect: Connect, count: int, waits: bool
) -> None:
    create_topic(broker, "wide", count, {"cleanup.policy": "compact"})
    wide = await all_open(broker, "wide")
    values = [b"%d" % index for index in range(count)]
    parts = [{"index": index, "records": small_batch(each)} for index, each in enumerate(values)]
    topics = [{"name": "wide", "partition_data": parts}]
    client, other = await connect(broker), await connect(broker)
    client.send(PRODUCE, 8, {"acks": -1, "timeout_ms": 5000, "topic_data": topics})
    answer = asyncio.create_task(client.receive(PRODUCE, 8))
    if waits:
        # The buffer of the first request is used again by what others send.
        large = batch(b"y" * 5000, Compression.NONE)
        assert code_of(await other.call(PRODUCE, 8, produce_body("plain", large))) == 0
        assert not answer.done()
        threads.may_open.set()
    (topic,) = (await answer)[1]["responses"]
    assert [part["error_code"] for part in topic["partition_responses"]] == [0] * count
    assert [stored(wide, index) for index in range(count)] == [
        [(Compression.LZ4, value)] for value in values
    ]


async def test_partitions_of_one_request_are_answered_each(
    broker: Broker, threads: HeldThreads, connect: Connect
) -> None:
    client = await connect(broker)
    parts = [
        {"index": 0, "records": batch(b"dear")},
        {"index": 1, "records": batch(b"cheap", Compression.NONE)},
        {"index": 2, "records": batch(b"nowhere")},
    ]
    topics = [
        {"name": "gzip", "partition_data": parts},
        {"name": "plain", "partition_data": parts[:1]},
        {"name": "compacted", "partition_data": [{"index": 0, "records": gzip_bomb(200)}]},
    ]
    client.send(PRODUCE, 8, {"acks": -1, "timeout_ms": 5000, "topic_data": topics})
    # The buffer of the first request is used again by what others send.
    other = await connect(broker)
    assert code_of(await other.call(PRODUCE, 8, produce_body("plain", batch(b"y" * 5000)))) == 0
    threads.may_open.set()
    _, answer = await client.receive(PRODUCE, 8)
    codes = [
        [part["error_code"] for part in topic["partition_responses"]]
        for topic in answer["responses"]
    ]
    unknown, large = errors.UnknownTopicOrPartition.code, errors.MessageTooLarge.code
    assert codes == [[0, 0, unknown], [0], [large]]
    gzip = broker.topics.get("gzip")
    assert stored(gzip, 0) == [(Compression.GZIP, b"dear")]
    assert stored(gzip, 1) == [(Compression.GZIP, b"cheap")]
    assert [value for _, value in stored(broker.topics.get("plain"))] == [b"y" * 5000, b"dear"]


async def test_records_without_keys_are_named_but_not_all_of_many(
    broker: Broker, threads: HeldThreads, connect: Connect
) -> None:
    threads.may_open.set()
    client = await connect(broker)
    rows = [(SystemClock().now_ms(), None if n % 3 else b"k", b"", ()) for n in range(5_000)]
    for codec in (Compression.LZ4, Compression.NONE):
        data = bytes(build_batch(rows, compression=codec))
        answer = await client.call(PRODUCE, 8, produce_body("compacted", data))
        assert code_of(answer) == errors.InvalidRecord.code
        named = answer["responses"][0]["partition_responses"][0]["record_errors"]
        assert [each["batch_index"] for each in named] == [n for n in range(1_500) if n % 3]


async def test_a_request_without_acknowledgement_is_stored(
    broker: Broker, threads: HeldThreads, connect: Connect
) -> None:
    client = await connect(broker)
    client.send(PRODUCE, 8, produce_body("gzip", batch(b"1"), acks=0))
    threads.may_open.set()
    await client.call(API_VERSIONS, 0, {})
    assert stored(broker.topics.get("gzip")) == [(Compression.GZIP, b"1")]


async def test_records_that_take_no_time_are_kept_while_others_of_their_request_are_opened(
    broker: Broker, threads: HeldThreads, connect: Connect
) -> None:
    client, other = await connect(broker), await connect(broker)
    topics = [
        {"name": name, "partition_data": [{"index": 0, "records": batch(b"v")}]}
        for name in ("gzip", "plain")
    ]
    client.send(PRODUCE, 8, {"acks": -1, "timeout_ms": 5000, "topic_data": topics})
    # So short a request has been received into the buffer that this one overwrites.
    assert (
        code_of(await other.call(PRODUCE, 8, produce_body("plain", batch(os.urandom(5000))))) == 0
    )
    threads.may_open.set()
    _, answer = await client.receive(PRODUCE, 8)
    codes = [topic["partition_responses"][0]["error_code"] for topic in answer["responses"]]
    assert codes == [errors.NONE, errors.NONE]
    assert stored(broker.topics.get("gzip")) == [(Compression.GZIP, b"v")]
    assert stored(broker.topics.get("plain"))[-1] == (Compression.LZ4, b"v")


@pytest.mark.parametrize("acks", [-1, 0, 1])
async def test_what_waits_to_be_opened_is_given_up_with_its_client_if_that_expects_an_answer(
    broker: Broker, threads: HeldThreads, connect: Connect, acks: int
) -> None:
    client, other = await connect(broker), await connect(broker)
    client.send(FETCH, 11, fetch_body("plain", 0, max_wait_ms=60_000))
    client.send(PRODUCE, 8, produce_body("gzip", batch(b"gone"), acks=acks))
    await other.call(API_VERSIONS, 0, {})
    reset(client.writer.transport)
    # The broker, which reads nothing from the client now, notices when it answers the first one.
    assert code_of(await other.call(PRODUCE, 8, produce_body("plain", batch(b"v")))) == 0
    async with asyncio.timeout(60):
        while broker.connections > 1:
            await asyncio.sleep(0)
    threads.may_open.set()
    assert code_of(await other.call(PRODUCE, 8, produce_body("gzip", batch(b"other")))) == 0
    values = [value for _, value in stored(broker.topics.get("gzip"))]
    assert values == ([b"other"] if acks else [b"gone", b"other"])


async def test_what_a_client_sends_behind_batches_for_many_partitions_stays_behind_them(
    broker: Broker, threads: HeldThreads, connect: Connect
) -> None:
    threads.may_open.set()
    create_topic(broker, "wide", 300, {"compression.type": "gzip"})
    topic = await all_open(broker, "wide")
    client = await connect(broker)
    parts = [{"index": index, "records": batch(b"one")} for index in range(300)]
    topics = [{"name": "wide", "partition_data": parts}]
    client.send(PRODUCE, 8, {"acks": 1, "timeout_ms": 5000, "topic_data": topics})
    # It needs not be opened.
    two = batch(b"two", Compression.GZIP)
    client.send(PRODUCE, 8, produce_body("wide", two, partition=299, acks=1))
    for _ in range(2):
        await client.receive(PRODUCE, 8)
    assert [value for _, value in stored(topic, 299)] == [b"one", b"two"]


async def test_who_has_many_requests_with_batches_to_open_keeps_another_address_waiting_for_few(
    broker: Broker, threads: HeldThreads
) -> None:
    greedy = [await client_at("127.0.0.2", broker.endpoint) for _ in range(10)]
    other = await client_at("127.0.0.1", broker.endpoint)
    for client in greedy:
        client.send(PRODUCE, 8, produce_body("gzip", batch(b"greedy")))
        # Each is read before the next one comes.
        await other.call(API_VERSIONS, 0, {})
    other.send(PRODUCE, 8, produce_body("gzip", batch(b"other")))
    bystander = await client_at("127.0.0.1", broker.endpoint)
    await bystander.call(API_VERSIONS, 0, {})
    threads.may_open.set()
    for client in (*greedy, other):
        assert code_of((await client.receive(PRODUCE, 8))[1]) == errors.NONE
    values = [value for _, value in stored(broker.topics.get("gzip"))]
    assert values.index(b"other") < 4
    for client in (*greedy, other, bystander):
        await client.close()


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
async def test_each_batch_for_a_compacted_topic_needs_keys(
    broker: Broker, threads: HeldThreads, connect: Connect, codec: int
) -> None:
    threads.may_open.set()
    client = await connect(broker)
    both = batch(b"1", codec) + batch(b"2", codec, key=None)
    answer = await client.call(PRODUCE, 8, produce_body("compacted", both))
    assert code_of(answer) == errors.InvalidRecord.code
    assert not stored(broker.topics.get("compacted"))


def test_a_batch_that_is_compressed_anew_is_the_same_batch() -> None:
    config = LogConfig.from_properties({"compression.type": "gzip"})
    rows = [(1_700_000_000_000 + number, b"k", b"v", ()) for number in range(3)]
    for codec in (Compression.NONE, Compression.ZSTD):
        sent = build_batch(
            rows,
            compression=codec,
            producer_id=9,
            producer_epoch=2,
            base_sequence=5,
            is_transactional=True,
        )
        changed, (header,) = open_batches(sent, config, "t-0")
        ((former,), _, _) = scan_batches(sent)
        assert header.compression == Compression.GZIP
        assert header.attributes ^ former.attributes == codec ^ Compression.GZIP
        assert header.is_transactional
        # Behind the attributes come times, producer and sequence.
        assert changed[23:HEADER_BYTES] == sent[23:HEADER_BYTES]
        assert list(iterate_records(changed)) == list(iterate_records(sent))
