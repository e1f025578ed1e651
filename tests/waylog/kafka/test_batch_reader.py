"""Our own reader of whole topics against a broker of this package, on the test's event loop."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import google_crc32c
import lz4.frame
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from broker_core.server.runtime import Broker
from tests.waylog.kafka.test_batch_producer import PARTITIONS, create_topic, read_all, started
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.fetched_records import AbortedTransactions, FetchedRecord, read_batches
from waylog.kafka.protocol.compression import EXPANDED_BYTES_MAX
from waylog.kafka.protocol.requests import MalformedAnswer
from waylog.kafka.record_batch import RecordAccumulator

READER = "waylog.kafka.batch_reader"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = await started(tmp_path)
    await create_topic(str(broker.endpoint), "four")
    yield broker
    await broker.close()


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)


def produce(
    servers: str, values: range, key: bytes | None = None, compression: str = "none"
) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 5, "compression.type": compression}
    )
    for value in values:
        own_key = b"key-%d" % (value % 50) if key is None else key
        producer.produce("four", b"%d" % value, own_key)
    assert producer.flush(30) == 0


class Taken:
    def __init__(self) -> None:
        self.records: list[FetchedRecord] = []
        self.caught_up = asyncio.Event()
        self._more = asyncio.Event()

    def on_records(self, records: list[FetchedRecord]) -> None:
        self.records += records
        self._more.set()

    async def wait_for(self, count: int) -> list[FetchedRecord]:
        async with asyncio.timeout(60):
            while len(self.records) < count:
                self._more.clear()
                await self._more.wait()
        return self.records

    def numbers(self) -> list[int]:
        return [int(record.value() or b"-1") for record in self.records]


@asynccontextmanager
async def reading(broker: Broker, **more: Any) -> AsyncIterator[Taken]:
    taken = Taken()
    reader = BatchReader(
        str(broker.endpoint),
        "test",
        "four",
        asyncio.get_running_loop(),
        on_records=taken.on_records,
        on_caught_up=taken.caught_up.set,
        **more,
    )
    reader.start()
    try:
        yield taken
    finally:
        await reader.close()


@pytest.mark.parametrize("codec", ["none", "lz4", "gzip", "snappy", "zstd"])
async def test_everything_is_read_once_whatever_it_is_compressed_with(
    broker: Broker, codec: str
) -> None:
    await in_thread(lambda: produce(str(broker.endpoint), range(5000), compression=codec))
    async with reading(broker) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 30)
        assert sorted(taken.numbers()) == list(range(5000))
        await in_thread(lambda: produce(str(broker.endpoint), range(5000, 5100), compression=codec))
        await taken.wait_for(5100)
    assert sorted(taken.numbers()) == list(range(5100))
    for partition in range(PARTITIONS):
        offsets = [each.offset() for each in taken.records if each.partition() == partition]
        assert offsets == list(range(len(offsets)))
    record = taken.records[0]
    value = int(record.value() or b"")
    assert record.key() == b"key-%d" % (value % 50)
    assert record.timestamp()[0] == 1


async def test_an_empty_topic_is_caught_up_at_once(broker: Broker) -> None:
    async with reading(broker) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 60)
    assert taken.records == []


async def test_the_newest_of_each_partition_are_read_with_a_tail(broker: Broker) -> None:
    await in_thread(lambda: produce(str(broker.endpoint), range(2000), b"one-key"))
    async with reading(broker, tail=100) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 30)
        assert taken.numbers() == list(range(1900, 2000))
    async with reading(broker, tail=0) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 30)
        await in_thread(lambda: produce(str(broker.endpoint), range(2000, 2010), b"one-key"))
        await taken.wait_for(10)
        assert taken.numbers() == list(range(2000, 2010))


async def test_each_partition_is_read_from_its_start_or_from_its_beginning(broker: Broker) -> None:
    await in_thread(lambda: produce(str(broker.endpoint), range(2000)))
    async with reading(broker) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 30)
    ends = {each.partition(): each.offset() + 1 for each in taken.records}
    assert ends.keys() == set(range(PARTITIONS))
    # The third one is beyond the end: what was there has been lost.
    starts = {0: ends[0] - 10, 1: ends[1], 2: ends[2] + 1000}
    async with reading(broker, starts=starts) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 30)
        await in_thread(lambda: produce(str(broker.endpoint), range(2000, 2100)))
        await taken.wait_for(10 + ends[3] + 100)
    expected = {0: ends[0] - 10, 1: ends[1], 2: ends[2], 3: 0}
    read: dict[int, list[int]] = {}
    for each in taken.records:
        read.setdefault(each.partition(), []).append(each.offset())
    assert {partition: offsets[0] for partition, offsets in read.items()} == expected
    assert sum(map(len, read.values())) == 10 + ends[3] + 100


@pytest.mark.parametrize("always", [False, True])
async def test_a_record_that_a_view_cannot_take_is_left_out_alone(
    broker: Broker, caplog: pytest.LogCaptureFixture, always: bool
) -> None:
    await in_thread(produce, str(broker.endpoint), range(100), b"key")
    view: dict[int, None] = {}
    failed_times = 0
    taken = Taken()

    def on_records(records: list[FetchedRecord]) -> None:
        nonlocal failed_times
        for each in records:
            if each.value() == b"40" and (always or not failed_times):
                failed_times += 1
                raise RuntimeError("a mistake in a view")
            view[int(each.value() or b"")] = None
        taken.on_records(records)

    reader = BatchReader(
        str(broker.endpoint), "test", "four", asyncio.get_running_loop(), on_records=on_records
    )
    reader.start()
    await taken.wait_for(99 if always else 100)
    await in_thread(produce, str(broker.endpoint), range(100, 200), b"key")
    await taken.wait_for(199 if always else 200)
    await reader.close()
    assert sorted(view) == [each for each in range(200) if each != 40 or not always]
    assert failed_times == (2 if always else 1)
    said = [each.getMessage() for each in caplog.records if each.name == READER]
    assert said[0] == "records of four could not be taken"
    left_out = "four-1: the record at offset 40 cannot be taken and is left out"
    assert said[1:] == [left_out] * always


async def test_what_was_never_committed_is_not_read(broker: Broker) -> None:
    def transactions() -> None:
        producer = Producer({"bootstrap.servers": str(broker.endpoint), "transactional.id": "t"})
        producer.init_transactions(30)
        for number in range(6):
            producer.begin_transaction()
            for each in range(10):
                producer.produce("four", b"%d" % (number * 10 + each), b"key")
            producer.flush()
            if number % 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    await in_thread(transactions)
    async with reading(broker) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 30)
        kept = [*range(10), *range(20, 30), *range(40, 50)]
        assert taken.numbers() == kept
        await in_thread(lambda: produce(str(broker.endpoint), range(100, 101)))
        await taken.wait_for(len(kept) + 1)
    assert taken.numbers() == [*kept, 100]


async def test_it_goes_on_where_it_was_when_the_broker_comes_back(tmp_path: Path) -> None:
    broker = await started(tmp_path)
    port = broker.endpoint.port
    await create_topic(str(broker.endpoint), "four")
    async with reading(broker) as taken:
        await in_thread(lambda: produce(str(broker.endpoint), range(500), b"key"))
        await taken.wait_for(500)
        await broker.close()
        broker = await started(tmp_path, port)
        await in_thread(lambda: produce(str(broker.endpoint), range(500, 1000), b"key"))
        await taken.wait_for(1000)
        assert taken.numbers() == list(range(1000))
    await broker.close()


async def test_what_retention_has_taken_is_passed_over(broker: Broker) -> None:
    servers = str(broker.endpoint)
    await in_thread(lambda: produce(servers, range(1000), b"key"))

    def delete_records() -> None:
        from confluent_kafka import TopicPartition

        admin = AdminClient({"bootstrap.servers": servers})
        wanted = [TopicPartition("four", each, -1) for each in range(PARTITIONS)]
        for future in admin.delete_records(wanted).values():
            future.result(30)

    async with reading(broker) as taken:
        await taken.wait_for(1000)
        await in_thread(delete_records)
        await in_thread(lambda: produce(servers, range(1000, 1010), b"key"))
        await taken.wait_for(1010)
    async with reading(broker) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 30)
        assert taken.numbers() == list(range(1000, 1010))


def lose_newest_segment(root: Path) -> int:
    """Remove the newest segment; return its first offset."""
    *_, newest = sorted(each for each in root.rglob("four-*/*.log") if each.stat().st_size)
    for path in newest.parent.glob(f"{newest.stem}.*"):
        path.unlink()
    return int(newest.stem)


async def test_what_is_lost_at_the_end_of_a_log_is_passed_over(tmp_path: Path) -> None:
    broker = await started(tmp_path, segment_bytes=1000)
    port = broker.endpoint.port
    await create_topic(str(broker.endpoint), "four")
    for value in range(50):
        await in_thread(produce, str(broker.endpoint), range(value, value + 1), b"one-key")
    await broker.close()
    left = lose_newest_segment(tmp_path)
    broker = await started(tmp_path, port)
    async with reading(broker) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 30)
        assert taken.numbers() == list(range(left))
        await in_thread(produce, str(broker.endpoint), range(50, 51), b"one-key")
        await taken.wait_for(left + 1)
        assert taken.records[-1].offset() == 50
    # And librdkafka's reader.
    assert len(await in_thread(read_all, str(broker.endpoint), "four", left + 1)) == left + 1
    await broker.close()


async def test_damage_in_the_log_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = await started(tmp_path)
    port = broker.endpoint.port
    await create_topic(str(broker.endpoint), "four")
    for value in range(3):
        await in_thread(produce, str(broker.endpoint), range(value, value + 1), b"one-key")
    await broker.close()
    partition = damage_second_batch(tmp_path)
    broker = await started(tmp_path, port)
    async with reading(broker) as taken:
        await taken.wait_for(1)
        async with asyncio.timeout(60):
            while not (said := [each for each in caplog.records if each.name == READER]):
                await asyncio.sleep(0.01)
    await broker.close()
    assert taken.numbers() == [0]
    assert said[0].levelno == logging.ERROR
    assert f"four cannot be read on: partition {partition} is damaged" in said[0].getMessage()


def damage_second_batch(root: Path) -> int:
    """Overwrite the head of the second batch of a partition; return the partition's number."""
    (path,) = (each for each in root.rglob("four-*/*.log") if each.stat().st_size)
    data = bytearray(path.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    data[second : second + 20] = bytes(20)
    path.write_bytes(data)
    return int(path.parent.name.rpartition("-")[2])


async def test_partitions_that_are_added_are_read_from_their_beginning(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]

    monkeypatch.setattr("waylog.kafka.batch_reader._REFRESH_S", 0.2)
    admin = AdminClient({"bootstrap.servers": str(broker.endpoint)})
    async with reading(broker, tail=0) as taken:
        await asyncio.wait_for(taken.caught_up.wait(), 30)
        growing = admin.create_partitions([NewPartitions("four", PARTITIONS + 2)])["four"]
        await in_thread(growing.result, 30)
        await in_thread(lambda: produce(str(broker.endpoint), range(300)))
        await taken.wait_for(300)
    assert {record.partition() for record in taken.records} > set(range(PARTITIONS))


def no_aborts() -> AbortedTransactions:
    return AbortedTransactions([])


@given(st.binary(max_size=300))
def test_bytes_that_are_no_batches_are_refused_and_never_read_beyond(data: bytes) -> None:
    try:
        records, position, _ = read_batches(data, "t", 0, 0, no_aborts())
    except MalformedAnswer:
        return
    assert position >= 0
    assert len(records) <= len(data)


def batch_of(values: Iterable[bytes]) -> bytes:
    accumulator = RecordAccumulator(10**7, lambda: None, lambda _: None)
    accumulator.placed("t", 1)
    for value in values:
        accumulator.send("t", value, b"key", None, lambda *_: None)
    return accumulator.taken(accumulator.partitions("t")[0]).encoded(1, 0, 0)


@cache
def one_batch() -> bytes:
    return batch_of(b"value-%d" % number for number in range(20))


@pytest.mark.parametrize("size", [0, 1, 4095, 65_536, 250_000, 990_000])
@pytest.mark.parametrize("kind", ["alike", "random"])
def test_values_come_as_they_were_however_well_they_compress(size: int, kind: str) -> None:
    value = bytes(size) if kind == "alike" else random.Random(1).randbytes(size)
    records, _, _ = read_batches(batch_of([value]), "t", 0, 0, no_aborts())
    assert [record.value() for record in records] == [value]


@pytest.mark.parametrize("records", [bytes(EXPANDED_BYTES_MAX + 1), bytes(10**6)])
@pytest.mark.parametrize("cut", [0, 5])
def test_a_batch_that_expands_too_far_or_ends_early_is_refused(records: bytes, cut: int) -> None:
    head = bytearray(one_batch()[:61])
    compressed = lz4.frame.compress(records)
    body = compressed[: len(compressed) - cut]
    struct.pack_into(">i", head, 8, len(head) + len(body) - 12)
    head[22] = 3  # lz4
    struct.pack_into(">I", head, 17, google_crc32c.value(bytes(head[21:]) + body))
    with pytest.raises(MalformedAnswer):
        read_batches(bytes(head) + body, "t", 0, 0, no_aborts())


@given(st.data())
def test_a_batch_that_was_changed_anywhere_is_refused_or_reads_as_it_was(data: Any) -> None:
    good = one_batch()
    at = data.draw(st.integers(0, len(good) - 1))
    changed = bytearray(good)
    changed[at] ^= data.draw(st.integers(1, 255))
    values = [b"value-%d" % number for number in range(20)]
    try:
        records, _, _ = read_batches(bytes(changed), "t", 0, 0, no_aborts())
    except MalformedAnswer:
        return
    # The checksum does not cover what comes before it: offset, length and leader epoch.
    assert at < 17
    assert [record.value() for record in records] in ([], values) or at < 8


@given(st.integers(0, 500))
def test_a_batch_that_has_not_come_whole_waits(cut: int) -> None:
    good = one_batch()
    records, position, _ = read_batches(
        good + good[: min(cut, len(good) - 1)], "t", 0, 5, no_aborts()
    )
    assert [record.offset() for record in records] == list(range(5, 20))
    assert position == 20
