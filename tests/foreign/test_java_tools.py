"""Apache Kafka's own Java clients and tools (Maven Central) against our broker."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests import maven
from tests.apache_kafka import VERSION, jars, tool

pytestmark = [pytest.mark.kafka]

COUNT = 2000


@pytest.fixture
def topic() -> str:
    """Give a name that was not used before."""
    return f"test-{uuid.uuid4().hex[:12]}"


def run(name: str, bootstrap_servers: str, *arguments: str) -> str:
    """Run a tool, which must succeed; return its output."""
    done = tool(name, "--bootstrap-server", bootstrap_servers, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def topics(bootstrap_servers: str, *arguments: str) -> str:
    """Run kafka-topics.sh; return its output."""
    return run("org.apache.kafka.tools.TopicCommand", bootstrap_servers, *arguments)


@contextmanager
def running(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a tool until the block ends."""
    process = subprocess.Popen(
        ["java", "-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
         "-cp", f"{jars()}/*", name, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def test_topics_are_administered(bootstrap_servers: str, topic: str) -> None:
    topics(bootstrap_servers, "--create", "--topic", topic, "--partitions", "3")
    assert topic in topics(bootstrap_servers, "--list").split()
    described = topics(bootstrap_servers, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert re.search(r"Isr: \d", described)
    topics(bootstrap_servers, "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in topics(bootstrap_servers, "--describe", "--topic", topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    config = "kafka.admin.ConfigCommand"
    run(config, bootstrap_servers, "--alter", *entity, "--add-config", "retention.ms=4321")
    assert "retention.ms=4321" in run(config, bootstrap_servers, "--describe", *entity)
    topics(bootstrap_servers, "--delete", "--topic", topic)
    assert topic not in topics(bootstrap_servers, "--list").split()


def test_the_versions_that_we_offer_are_understood(bootstrap_servers: str) -> None:
    printed = run("org.apache.kafka.tools.BrokerApiVersionsCommand", bootstrap_servers)
    assert "Produce(0): 0 to 13 [usable: 13]" in printed
    assert "Fetch(1): 4 to 18 [usable: 18]" in printed


def test_every_record_of_the_verifiable_producer_reaches_the_verifiable_consumer(
    bootstrap_servers: str, topic: str
) -> None:
    topics(bootstrap_servers, "--create", "--topic", topic, "--partitions", "3")
    printed = run(
        "org.apache.kafka.tools.VerifiableProducer", bootstrap_servers,
        "--topic", topic, "--max-messages", str(COUNT), "--acks", "-1",
    )  # fmt: skip
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    sent = {event["value"] for event in events if event["name"] == "producer_send_success"}
    assert len(sent) == COUNT
    assert events[-1]["acked"] == COUNT

    consumed = 0
    committed: list[bool] = []
    with running(
        "org.apache.kafka.tools.VerifiableConsumer",
        *("--bootstrap-server", bootstrap_servers, "--topic", topic, "--group-id", topic),
        *("--max-messages", str(COUNT), "--reset-policy", "earliest"),
    ) as process:
        threading.Timer(60, process.kill).start()
        assert process.stdout is not None
        for line in process.stdout:
            event: dict[str, Any] = json.loads(line) if line.startswith("{") else {"name": line}
            if event["name"] == "records_consumed":
                consumed += event["count"]
            if event["name"] == "offsets_committed":
                committed.append(event["success"])
            if consumed >= COUNT and committed and event["name"] == "shutdown_complete":
                break
    assert consumed == COUNT
    assert all(committed)


def test_the_console_consumer_prints_what_librdkafka_wrote(
    bootstrap_servers: str, topic: str
) -> None:
    topics(bootstrap_servers, "--create", "--topic", topic)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": codec})
        producer.produce(topic, f"with {codec} ".encode() * 30, b"key")
        assert producer.flush(20) == 0
    printed = run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", bootstrap_servers,
        "--topic", topic, "--from-beginning", "--max-messages", "4", "--timeout-ms", "30000",
    )  # fmt: skip
    lines = printed.splitlines()
    assert [line.split()[1] for line in lines[:4]] == ["gzip", "snappy", "lz4", "zstd"]


def test_groups_are_described_and_reset(bootstrap_servers: str, topic: str) -> None:
    topics(bootstrap_servers, "--create", "--topic", topic)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for i in range(10):
        producer.produce(topic, b"%d" % i)
    assert producer.flush(20) == 0
    run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", bootstrap_servers,
        "--topic", topic, "--group", topic, "--from-beginning",
        "--max-messages", "10", "--timeout-ms", "30000",
    )  # fmt: skip
    groups = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    assert topic in run(groups, bootstrap_servers, "--list").split()
    row = _row(run(groups, bootstrap_servers, "--describe", "--group", topic), topic)
    assert row[3:6] == ["10", "10", "0"]
    run(
        groups, bootstrap_servers,
        "--reset-offsets", "--group", topic, "--topic", topic, "--to-offset", "4", "--execute",
    )  # fmt: skip
    row = _row(run(groups, bootstrap_servers, "--describe", "--group", topic), topic)
    assert row[3:6] == ["4", "10", "6"]
    offsets = run("org.apache.kafka.tools.GetOffsetShell", bootstrap_servers, "--topic", topic)
    assert f"{topic}:0:10" in offsets
    run(groups, bootstrap_servers, "--delete", "--group", topic)


def _row(table: str, topic: str) -> list[str]:
    """Return the line of a topic in the output of kafka-consumer-groups.sh."""
    rows = [line.split() for line in table.splitlines() if topic in line and "GROUP" not in line]
    (row,) = [row for row in rows if len(row) > 5]
    return row


def test_the_log_directories_are_described(bootstrap_servers: str, topic: str) -> None:
    topics(bootstrap_servers, "--create", "--topic", topic)
    printed = run(
        "org.apache.kafka.tools.LogDirsCommand", bootstrap_servers,
        "--describe", "--topic-list", topic,
    )  # fmt: skip
    assert f"{topic}-0" in printed


def test_the_performance_tools_run(bootstrap_servers: str, topic: str) -> None:
    topics(bootstrap_servers, "--create", "--topic", topic, "--partitions", "3")
    started = time.monotonic()
    done = tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "100000", "--record-size", "120"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap_servers}"),
    )
    assert done.returncode == 0, done.stderr
    assert "100000 records sent" in done.stdout
    assert time.monotonic() - started < 100


@pytest.mark.parametrize("use_group_metadata", [False, True])
def test_the_transactional_message_copier_copies_each_record_once(
    bootstrap_servers: str, topic: str, use_group_metadata: bool
) -> None:
    source, target = f"{topic}-source", f"{topic}-target"
    for name in (source, target):
        topics(bootstrap_servers, "--create", "--topic", name, "--partitions", "1")
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for i in range(COUNT):
        producer.produce(source, b"%d" % i, b"%d" % i)
    assert producer.flush(20) == 0
    copier = [
        "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", bootstrap_servers,
        "--input-topic", source, "--input-partition", "0", "--output-topic", target,
        "--consumer-group", topic, "--transactional-id", topic, "--max-messages", str(COUNT),
        "--transaction-size", "100", "--enable-random-aborts",
    ]  # fmt: skip
    done = tool(*copier, *(["--group-mode"] if use_group_metadata else []))
    assert done.returncode == 0, done.stdout + done.stderr
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"{topic}-reader",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(target, 0, 0)])
    copied: list[int] = []
    deadline = time.monotonic() + 30
    while len(copied) < COUNT:
        assert time.monotonic() < deadline, len(copied)
        copied += [int(message.value() or b"") for message in consumer.consume(1000, 0.2)]
    assert copied == list(range(COUNT))
    assert consumer.consume(1, 0.5) == []
    consumer.close()
    listed = run("org.apache.kafka.tools.TransactionsCommand", bootstrap_servers, "list")
    assert [line.split()[3] for line in listed.splitlines() if line.startswith(topic)] == [
        "CompleteCommit"
    ]


def test_a_streams_application_counts_words_exactly_once(
    bootstrap_servers: str, tmp_path: Path
) -> None:
    names = ("streams-plaintext-input", "streams-wordcount-output")
    for name in names:
        topics(bootstrap_servers, "--create", "--if-not-exists", "--topic", name)
    config = tmp_path / "streams.properties"
    config.write_text(
        f"bootstrap.servers={bootstrap_servers}\n"
        f"application.id=words-{uuid.uuid4().hex[:8]}\n"
        f"state.dir={tmp_path / 'state'}\n"
        "processing.guarantee=exactly_once_v2\ncommit.interval.ms=200\n"
    )
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    text = ["all streams lead to kafka", "hello kafka streams", "join kafka summit"]
    for line in text:
        producer.produce(names[0], line)
    assert producer.flush(20) == 0
    classpath = f"{streams_jars()}/*"
    process = subprocess.Popen(
        ["java", "-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath,
         "org.apache.kafka.streams.examples.wordcount.WordCountDemo", str(config)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"words-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(names[1], 0, 0)])
        expected = Counter(word for line in text for word in line.split())
        counts: dict[str, int] = {}
        deadline = time.monotonic() + 60
        while counts != expected:
            assert time.monotonic() < deadline and process.poll() is None, counts
            for message in consumer.consume(100, 0.2):
                key, value = message.key(), message.value()
                assert key is not None and value is not None
                counts[key.decode()] = int.from_bytes(value, "big")
        consumer.close()
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def test_a_share_group_is_moved_read_described_and_deleted(
    bootstrap_servers: str, topic: str
) -> None:
    topics(bootstrap_servers, "--create", "--topic", topic)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(30):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(10) == 0
    group = ("--group", f"share-{uuid.uuid4().hex[:8]}")

    def share(*arguments: str) -> str:
        name = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
        return run(name, bootstrap_servers, *arguments)

    share("--reset-offsets", *group, "--topic", topic, "--to-earliest", "--execute")
    read = run(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer", bootstrap_servers,
        "--topic", topic, *group, "--max-messages", "20", "--timeout-ms", "30000",
    )  # fmt: skip
    assert set(read.split()) <= {str(number) for number in range(30)}
    assert len(read.split()) == 20
    assert group[1] in share("--list").split()
    described = share("--describe", *group)
    assert re.search(rf"{topic}\s+0\s+20\s+10", described), described
    share("--delete", *group)
    assert group[1] not in share("--list").split()


def streams_jars() -> Path:
    """Return the jars of Kafka Streams with its examples; skips the test without them."""
    return maven.jars(
        f"kafka-streams-{VERSION}",
        f"org.apache.kafka:kafka-streams-examples:{VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    )
