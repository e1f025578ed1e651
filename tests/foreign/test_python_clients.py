"""Three independent clients write; each reads the same bytes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

if importlib.util.find_spec("kafka") is None:
    pytest.skip("kafka-python is not installed (extra `test`)", allow_module_level=True)

KAFKA_PYTHON = Path(__file__).with_name("kafka_python_client.py")

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class Stored(NamedTuple):
    """A record as a client sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
    (b"demo/phone", b'{"lat":47.1,"lon":9.5}' * 20, [("traceparent", b"00-1-2-01")]),
    (b"\xc3\xa4\x00\xff", b"\x00\x01\x02", []),
    (None, b"no key", []),
    (b"tombstone", None, []),
    (b"", b"", [("a", b""), ("a", b"twice")]),
    (b"large", bytes(range(256)) * 400, []),
]
START_MS = 1_700_000_000_000


async def write_with_confluent(servers: str, topic: str, codec: str) -> None:
    """Write RECORDS with confluent-kafka, idempotently."""

    def run() -> int:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "compression.type": codec,
                "enable.idempotence": True,
            }
        )
        for i, (key, value, headers) in enumerate(RECORDS):
            producer.produce(
                topic, value, key, partition=0, timestamp=START_MS + i, headers=list(headers)
            )
        return int(producer.flush(20))

    assert await asyncio.to_thread(run) == 0


async def write_with_aiokafka(servers: str, topic: str, codec: str) -> None:
    """Write RECORDS with aiokafka."""
    async with AIOKafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
    ) as producer:
        for i, (key, value, headers) in enumerate(RECORDS):
            await producer.send_and_wait(
                topic, value, key, partition=0, timestamp_ms=START_MS + i, headers=headers
            )


async def kafka_python(*arguments: str, given: object = None) -> Any:
    """Run kafka_python_client.py; return its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", str(KAFKA_PYTHON), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate(json.dumps(given).encode())
    assert process.returncode == 0, errors.decode()
    return json.loads(output or "null")


async def write_with_kafka_python(servers: str, topic: str, codec: str) -> None:
    """Write RECORDS with kafka-python."""
    records = [
        [START_MS + i, _text(key), _text(value), [[name, _text(each)] for name, each in headers]]
        for i, (key, value, headers) in enumerate(RECORDS)
    ]
    await kafka_python("write", servers, topic, codec, given=records)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


async def read_with_confluent(servers: str, topic: str, count: int = len(RECORDS)) -> list[Stored]:
    """Read records with confluent-kafka."""

    def run() -> list[Stored]:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        records: list[Stored] = []
        deadline = time.monotonic() + 20
        while len(records) < count:
            assert time.monotonic() < deadline
            for message in consumer.consume(100, 0.2):
                assert message.error() is None
                headers: Any = message.headers() or []
                records.append(
                    Stored(
                        message.offset() or 0,
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        tuple(headers),
                    )
                )
        consumer.close()
        return records

    return await asyncio.to_thread(run)


async def read_with_aiokafka(servers: str, topic: str) -> list[Stored]:
    """Read records with aiokafka."""
    place = AioTopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        records: list[Stored] = []
        while len(records) < len(RECORDS):
            batches = await consumer.getmany(timeout_ms=10_000)
            assert batches
            records += [
                Stored(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
                for batch in batches.values()
                for each in batch
            ]
        return records


async def read_with_kafka_python(servers: str, topic: str) -> list[Stored]:
    """Read records with kafka-python."""
    return [
        Stored(
            offset,
            timestamp,
            _bytes(key),
            _bytes(value),
            tuple((name, _bytes(each)) for name, each in headers),
        )
        for offset, timestamp, key, value, headers in await kafka_python(
            "read", servers, topic, str(len(RECORDS))
        )
    ]


Write = Callable[[str, str, str], Awaitable[None]]
READERS = [read_with_confluent, read_with_aiokafka, read_with_kafka_python]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "write", [write_with_confluent, write_with_aiokafka, write_with_kafka_python]
)
async def test_what_one_client_writes_all_read_byte_for_byte(
    bootstrap_servers: str, write: Write, codec: str
) -> None:
    topic = f"test-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    kept = NewTopic(topic, 1, 1, config={"retention.ms": "-1"})
    admin.create_topics([kept])[topic].result(10)
    await write(bootstrap_servers, topic, codec)
    expected = [
        Stored(i, START_MS + i, key, value, tuple(headers))
        for i, (key, value, headers) in enumerate(RECORDS)
    ]
    for read in READERS:
        assert await read(bootstrap_servers, topic) == expected, read.__doc__


async def test_kafka_pythons_consumer_group_shares_a_topic(bootstrap_servers: str) -> None:
    topic = f"test-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(10)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for i in range(20):
        producer.produce(topic, b"%d" % i, partition=i % 2)
    assert producer.flush(20) == 0
    answer = await kafka_python("group", bootstrap_servers, topic, "20")
    assert answer == {"values": list(range(20)), "committed": 20}
