"""Our own producer against a broker of this package, on the test's event loop."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from broker_core.configuration.config import BrokerConfig
from broker_core.server.runtime import Broker, start_broker
from gateway.fixes.receipts import Receipt
from tests.ports import reserved_ports
from tests.tcp_server import tcp_server
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.clients import AppendError, AppendQueueFull
from waylog.kafka.protocol.error_codes import ErrorCode
from waylog.kafka.record_batch import partition_of

PARTITIONS = 4


async def started(
    folder: Path, port: int | None = None, *, segment_bytes: int = 100_000_000
) -> Broker:
    port = port or reserved_ports(1)[0]
    return await start_broker(
        BrokerConfig.from_properties(
            {
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": str(folder / "logs"),
                "log.flush.interval.messages": "1",
                "log.segment.bytes": str(segment_bytes),
            }
        )
    )


async def create_topic(servers: str, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    named = {each.replace("_", "."): value for each, value in config.items()}
    creating = admin.create_topics([NewTopic(name, num_partitions=PARTITIONS, config=named)])[name]
    await asyncio.get_running_loop().run_in_executor(None, creating.result, 30)


@asynccontextmanager
async def producing(servers: str, **more: Any) -> AsyncIterator[BatchProducer]:
    producer = BatchProducer(servers, "test", asyncio.get_running_loop(), **more)
    try:
        yield producer
    finally:
        await producer.close()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    broker = await started(tmp_path)
    await create_topic(str(broker.endpoint), "four")
    yield broker
    await broker.close()


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[BatchProducer]:
    async with producing(str(broker.endpoint)) as producer:
        yield producer


def read_all(servers: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "test",
            "enable.auto.commit": False,
            # Check every batch's checksum, as strict clients do.
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    messages: list[Message] = []
    while len(messages) < count:
        batch = consumer.consume(min(1000, count - len(messages)), timeout=60)
        if not batch:
            break
        messages += batch
    consumer.close()
    return messages


async def all_records(broker: Broker, count: int) -> list[Message]:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, read_all, str(broker.endpoint), "four", count)


async def record_count(broker: Broker) -> int:
    def count() -> int:
        consumer = Consumer({"bootstrap.servers": str(broker.endpoint), "group.id": "count"})
        partitions = [TopicPartition("four", number) for number in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(each, timeout=60)[1] for each in partitions]
        consumer.close()
        return sum(ends)

    return await asyncio.get_running_loop().run_in_executor(None, count)


async def test_records_of_a_key_are_acknowledged_in_the_order_they_were_given(
    producer: BatchProducer,
) -> None:
    futures = [producer.append("four", b"%d" % number, b"key") for number in range(25_000)]
    positions = await asyncio.wait_for(asyncio.gather(*futures), 30)
    assert [position.offset for position in positions] == list(range(25_000))
    assert len({position.partition for position in positions}) == 1
    assert len(producer) == 0


async def test_other_clients_read_what_was_written(broker: Broker, producer: BatchProducer) -> None:
    written = [
        (b"key-%d" % number if number % 3 else None, b"v" * (number % 700), [("h", b"%d" % number)])
        for number in range(1000)
    ]
    positions = await asyncio.wait_for(
        asyncio.gather(
            *(producer.append("four", value, key, more) for key, value, more in written)
        ),
        30,
    )
    read = {
        (message.partition(), message.offset()): (
            message.key(),
            message.value(),
            message.headers(),
        )
        for message in await all_records(broker, len(written))
    }
    assert read == {
        (position.partition, position.offset): record
        for position, record in zip(positions, written, strict=True)
    }
    for position, (key, _, _) in zip(positions, written, strict=True):
        if key is not None:
            assert position.partition == partition_of(key, PARTITIONS)


async def test_brokers_may_be_named_with_a_protocol_as_for_librdkafka(broker: Broker) -> None:
    async with producing(f"PLAINTEXT://{broker.endpoint}") as producer:
        await asyncio.wait_for(producer.append("four", b"value"), 30)


@pytest.mark.parametrize(
    ("key", "number"),
    # UtilsTest.testMurmur2 of Apache Kafka, without the sign and modulo a thousand.
    [
        (b"21", (-973932308 & 0x7FFFFFFF) % 1000),
        (b"foobar", (-790332482 & 0x7FFFFFFF) % 1000),
        (b"a-little-bit-long-string", (-985981536 & 0x7FFFFFFF) % 1000),
        (b"a-little-bit-longer-string", (-1486304829 & 0x7FFFFFFF) % 1000),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", (-58897971 & 0x7FFFFFFF) % 1000),
        (b"abc", (479470107 & 0x7FFFFFFF) % 1000),
    ],
)
def test_a_key_goes_to_the_partition_that_kafkas_java_client_chooses(
    key: bytes, number: int
) -> None:
    assert partition_of(key, 1000) == number


async def test_a_record_that_is_too_large_fails_alone(producer: BatchProducer) -> None:
    before = producer.append("four", b"small")
    with pytest.raises(AppendError, match="too large"):
        producer.append("four", bytes(2_000_000))
    after = producer.append("four", bytes(990_000))
    await asyncio.wait_for(asyncio.gather(before, after), 30)


async def test_what_the_log_refuses_for_good_is_told_with_what_to_do(
    broker: Broker, producer: BatchProducer, caplog: pytest.LogCaptureFixture
) -> None:
    await create_topic(str(broker.endpoint), "narrow", max_message_bytes="300")
    for _ in range(2):
        with pytest.raises(AppendError, match="message too large"):
            await asyncio.wait_for(producer.append("narrow", os.urandom(1000), b"key"), 30)
    assert await asyncio.wait_for(producer.append("narrow", b"small", b"key"), 30)
    said = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert said == [
        "narrow-1: the log refuses 1 records, and would again: message too large; raise "
        "max.message.bytes of topic narrow"
    ]


async def test_a_topic_that_cannot_be_does_not_stop_the_others(producer: BatchProducer) -> None:
    wrong = producer.append("\0", b"value")
    after = producer.append("four", b"good")
    await asyncio.wait_for(after, 30)
    with pytest.raises(AppendError):
        await asyncio.wait_for(wrong, 60)


async def test_records_wait_for_a_topic_that_is_made_later(
    broker: Broker, producer: BatchProducer
) -> None:
    early = producer.append("later", b"value")
    await asyncio.sleep(0.2)
    assert not early.done()
    await create_topic(str(broker.endpoint), "later")
    assert (await asyncio.wait_for(early, 30)).topic == "later"


async def test_closing_sends_what_was_gathered(producer: BatchProducer) -> None:
    future = producer.append("four", b"last")
    assert len(producer) == 1
    assert await producer.close() == 0
    assert future.done()
    assert future.exception() is None


async def test_more_than_may_wait_is_refused_at_once() -> None:
    producer = BatchProducer("127.0.0.1:1", "test", asyncio.get_running_loop())
    futures = []
    with pytest.raises(AppendQueueFull):
        for _ in range(200):
            futures.append(producer.append("four", bytes(900_000)))
    assert len(futures) > 140
    assert await producer.close(0) == len(futures)


async def test_what_waits_while_the_broker_is_away_is_appended_once_and_in_order(
    tmp_path: Path,
) -> None:
    broker = await started(tmp_path)
    port = broker.endpoint.port
    await create_topic(str(broker.endpoint), "four")
    async with producing(str(broker.endpoint), linger_ms=2) as producer:
        futures = []
        for turn in range(6):
            futures += [
                producer.append("four", b"%d" % number, b"key")
                for number in range(turn * 500, turn * 500 + 500)
            ]
            await asyncio.sleep(0.01)
            if turn in (1, 3):
                await broker.close()
                futures.append(producer.append("four", b"meanwhile", b"other"))
                broker = await started(tmp_path, port)
        positions = await asyncio.wait_for(asyncio.gather(*futures), 60)
        messages = await all_records(broker, len(futures))
        await broker.close()
    assert len(messages) == len(futures) == len(set(positions))
    kept = [message.value() for message in messages if message.key() == b"key"]
    assert kept == [b"%d" % number for number in range(3000)]


class CuttingProxy:
    """A proxy between a producer and a broker that can drop or change answers to Produce."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.lose = 0
        self.lost = 0
        #: While it is cleared, no request to append goes on to the broker.
        self.passes = asyncio.Event()
        self.passes.set()
        self.held = asyncio.Event()
        #: The error code for the first partition of each answer that is not lost, though it stored.
        self.refuse = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(*self._target)
        try:
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size, "big"))
                (api,) = struct.unpack_from(">h", frame)
                if api == 0 and not self.passes.is_set():
                    self.held.set()
                    await self.passes.wait()
                upstream_writer.write(size + frame)
                answer_size = await upstream_reader.readexactly(4)
                answer = await upstream_reader.readexactly(int.from_bytes(answer_size, "big"))
                if api == 0 and self.lose:
                    self.lose -= 1
                    self.lost += 1
                    return
                if api == 0 and self.refuse:
                    answer = _refused(answer, self.refuse)
                if api == 3:
                    answer = self._advertised(answer)
                writer.write(answer_size + answer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            upstream_writer.close()

    def _advertised(self, answer: bytes) -> bytes:
        return answer.replace(struct.pack(">i", self._target[1]), struct.pack(">i", self.port), 1)


def _refused(answer: bytes, code: int) -> bytes:
    # Correlation id, number of topics, the topic's name, number of partitions, index.
    at = 4 + 4 + 2 + len("four") + 4 + 4
    return answer[:at] + struct.pack(">h", code) + answer[at + 2 :]


async def test_a_batch_whose_acknowledgement_was_lost_is_stored_once(broker: Broker) -> None:
    proxy = CuttingProxy((broker.endpoint.host, broker.endpoint.port))
    async with (
        tcp_server(proxy.serve) as proxy.port,
        producing(f"127.0.0.1:{proxy.port}", linger_ms=1) as producer,
    ):
        await asyncio.wait_for(producer.append("four", b"0", b"key"), 30)
        futures = []
        for turn in range(5):
            proxy.lose = 1
            futures += [
                producer.append("four", b"%d" % (1 + turn * 50 + number), b"key")
                for number in range(50)
            ]
            await asyncio.wait_for(asyncio.gather(*futures), 30)
    assert proxy.lost == 5
    messages = await all_records(broker, 251)
    assert [message.value() for message in messages] == [b"%d" % number for number in range(251)]


async def test_nothing_is_sent_by_a_producer_that_is_closed(broker: Broker) -> None:
    proxy = CuttingProxy((broker.endpoint.host, broker.endpoint.port))
    async with tcp_server(proxy.serve) as proxy.port:
        servers = f"127.0.0.1:{proxy.port}"
        producer = BatchProducer(servers, "test", asyncio.get_running_loop(), linger_ms=1)
        await asyncio.wait_for(producer.append("four", b"before", b"key"), 30)
        proxy.passes.clear()
        late = [producer.append("four", b"late", b"key")]
        await asyncio.wait_for(proxy.held.wait(), 30)
        place = partition_of(b"key", PARTITIONS)
        others = (b"%d" % each for each in range(99))
        other = next(each for each in others if partition_of(each, PARTITIONS) != place)
        late.append(producer.append("four", b"later", other))
        before = asyncio.all_tasks()
        assert await producer.close(0) == 2
        assert not asyncio.all_tasks() - before
        assert not any(each.done() for each in late)


async def test_what_timed_out_at_one_partition_is_not_stored_twice_at_another(
    broker: Broker,
) -> None:
    proxy = CuttingProxy((broker.endpoint.host, broker.endpoint.port))
    async with (
        tcp_server(proxy.serve) as proxy.port,
        producing(f"127.0.0.1:{proxy.port}", linger_ms=1, delivery_timeout_ms=1000) as producer,
    ):
        keys = [b"key %d" % number for number in range(20)]
        await asyncio.wait_for(
            asyncio.gather(*(producer.append("four", b"before", key) for key in keys)), 30
        )
        # The broker stores all that comes from now on, and no answer reaches the producer.
        proxy.lose = 1_000_000
        late = [producer.append("four", b"one", key) for key in keys[:5]]
        await asyncio.wait(late)
        assert {str(each.exception()) for each in late} == {
            str(AppendError.of(ErrorCode.MESSAGE_TIMED_OUT))
        }
        receipts = [Receipt() for _ in keys]
        for key, receipt in zip(keys, receipts, strict=True):
            producer.send("four", b"two", key, None, receipt)
        late = [producer.append("four", b"three", key) for key in keys]
        await asyncio.wait(late)
        unknown = [each for each in receipts if not each.done()]
        assert unknown
        proxy.lose = 0
        await asyncio.wait_for(producer.append("four", b"after", b"key 0"), 30)
        async with asyncio.timeout(60):
            while not all(each.done() for each in receipts):
                await asyncio.sleep(0.01)
        assert all(each.exception() is None for each in unknown)
    messages = await all_records(broker, await record_count(broker))
    stored = [(message.key(), message.value()) for message in messages]
    assert len(stored) == len(set(stored))
    assert sum(value == b"two" for _, value in stored) == sum(
        each.exception() is None for each in receipts
    )


@pytest.mark.parametrize(
    ("lose", "refuse"),
    [
        (1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (0, ErrorCode.UNKNOWN_SERVER_ERROR),
        # A leader whose disk fails after a replica has the batch.
        (0, ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_a_record_is_not_taken_for_one_that_failed_and_was_stored(
    broker: Broker, lose: int, refuse: ErrorCode
) -> None:
    proxy = CuttingProxy((broker.endpoint.host, broker.endpoint.port))
    async with (
        tcp_server(proxy.serve) as proxy.port,
        producing(f"127.0.0.1:{proxy.port}", linger_ms=1, delivery_timeout_ms=5000) as producer,
    ):
        await asyncio.wait_for(producer.append("four", b"before", b"key"), 30)
        proxy.lose, proxy.refuse = lose, refuse
        with pytest.raises(AppendError):
            await asyncio.wait_for(producer.append("four", b"failed", b"key"), 30)
        proxy.refuse = 0
        for value in (b"first", b"second"):
            await asyncio.wait_for(producer.append("four", value, b"key"), 30)
    messages = await all_records(broker, await record_count(broker))
    assert [each.value() for each in messages] == [b"before", b"failed", b"first", b"second"]


async def test_a_broker_that_has_lost_its_memory_gets_records_under_a_new_identity(
    tmp_path: Path,
) -> None:
    broker = await started(tmp_path / "first")
    port = broker.endpoint.port
    await create_topic(str(broker.endpoint), "four")
    async with producing(str(broker.endpoint)) as producer:
        await asyncio.wait_for(producer.append("four", b"1", b"key"), 30)
        await broker.close()
        broker = await started(tmp_path / "second", port)
        await create_topic(str(broker.endpoint), "four")
        await asyncio.wait_for(producer.append("four", b"2", b"key"), 30)
        messages = await all_records(broker, 1)
        await broker.close()
    assert [message.value() for message in messages] == [b"2"]


async def test_records_that_wait_for_a_log_that_hangs_are_trouble(tmp_path: Path) -> None:
    async def answer_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with tcp_server(answer_nothing) as port:
        producer = BatchProducer(
            f"127.0.0.1:{port}", "test", asyncio.get_running_loop(), stalled_s=0.2
        )
        async with asyncio.timeout(60):
            appending = producer.append("t", b"v")
            while "acknowledged nothing for" not in (producer.trouble or ""):
                await asyncio.sleep(0.01)
        await producer.close(0)
        appending.cancel()
