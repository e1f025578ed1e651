"""Spark's own Kafka connector (JVM), unmodified: the same bytes as the other clients, both ways."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests import maven
from tests.foreign.test_python_clients import CODECS, RECORDS, read_with_confluent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

_ARTIFACTS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    # The newest version on Maven Central; its classes have not changed since.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    folder = maven.jars("spark-kafka-4.2.0", *_ARTIFACTS, alone=True)
    from spark.runtime.session import open_session

    session = open_session("foreign", jars=[str(path) for path in folder.glob("*.jar")])
    yield session
    session.stop()


def new_topic(servers: str) -> str:
    name = f"spark-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result()
    return name


def rows_of(session: SparkSession, servers: str, topic: str) -> list[Any]:
    frame = (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
    )
    return frame.orderBy("offset").collect()


@pytest.mark.parametrize("codec", CODECS)
def test_spark_reads_what_was_written(
    session: SparkSession, bootstrap_servers: str, codec: str
) -> None:
    topic = new_topic(bootstrap_servers)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": codec})
    for key, value, headers in RECORDS:
        producer.produce(topic, value, key, headers=list(headers))
    assert producer.flush(20) == 0
    rows = rows_of(session, bootstrap_servers, topic)
    seen = [
        (
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            [(header.key, bytes(header.value)) for header in row.headers or ()],
        )
        for row in rows
    ]
    assert seen == RECORDS
    assert [row.offset for row in rows] == list(range(len(RECORDS)))


async def test_spark_writes_what_is_read(session: SparkSession, bootstrap_servers: str) -> None:
    topic = new_topic(bootstrap_servers)
    rows = [(f"k{n}".encode(), bytes([n, 0, 255 - n])) for n in range(200)]
    frame = session.createDataFrame(rows, "key binary, value binary").coalesce(1)
    (
        frame.write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("topic", topic)
        .save()
    )
    stored = await read_with_confluent(bootstrap_servers, topic, len(rows))
    assert [(record.key, record.value) for record in stored] == rows


def test_spark_streams_until_what_is_there_is_read(
    session: SparkSession, bootstrap_servers: str, tmp_path: Any
) -> None:
    topic = new_topic(bootstrap_servers)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for n in range(5_000):
        producer.produce(topic, str(n).encode(), str(n).encode())
    assert producer.flush(20) == 0
    query = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_500)
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    values = session.read.parquet(str(tmp_path / "out")).select("value").collect()
    assert sorted(int(bytes(row.value)) for row in values) == list(range(5_000))
