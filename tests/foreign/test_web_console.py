"""Redpanda Console (a web console on franz-go) on our broker: the requests of its pages.

WAYLOG_CONSOLE names the program. To build it in its source tree (2.2.4 needs only Go's module
proxy):
`touch backend/pkg/embed/frontend/index.html && cd backend && go build -o console ./cmd/api`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.http_session import http_session
from tests.ports import reserved_ports

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    """Create a topic of three partitions with thirty records, ten of which a group has read."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(10)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": "zstd"})
    for number in range(30):
        producer.produce(name, b'{"number":%d}' % number, b"key", partition=number % 3)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": f"group-{name}"})
    consumer.commit(offsets=[TopicPartition(name, 0, 10)], asynchronous=False)
    consumer.close()
    return name


@pytest.fixture
def console(bootstrap_servers: str, tmp_path: Path) -> Iterator[str]:
    """Run the console; give its URL."""
    program = os.environ.get("WAYLOG_CONSOLE")
    if not program:
        pytest.skip("WAYLOG_CONSOLE names no program")
    (port,) = reserved_ports(1)
    settings = {
        "KAFKA_BROKERS": bootstrap_servers,
        "SERVER_LISTENADDRESS": "127.0.0.1",
        "SERVER_LISTENPORT": str(port),
        "ANALYTICS_ENABLED": "false",
    }
    with (tmp_path / "console.log").open("wb") as log:
        process = subprocess.Popen(
            [program], env=os.environ | settings, stdout=log, stderr=subprocess.STDOUT
        )
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait(20)


async def _get(session: aiohttp.ClientSession, path: str) -> Any:
    deadline = time.monotonic() + 30
    while True:
        try:
            async with session.get(path) as answer:
                assert answer.status == 200, (path, await answer.text())
                return await answer.json()
        except aiohttp.ClientConnectionError:
            assert time.monotonic() < deadline, "the console does not answer"
            await asyncio.sleep(0.1)


async def test_the_pages_of_a_web_console_have_what_they_show(console: str, topic: str) -> None:
    async with http_session(console) as session:
        cluster = (await _get(session, "/api/cluster"))["clusterInfo"]
        assert len(cluster["brokers"]) == 1
        assert cluster["brokers"][0]["logDirSize"] > 0
        overview = await _get(session, "/api/cluster/overview")
        assert overview["kafka"]["status"] == "HEALTHY", overview

        topics = {
            each["topicName"]: each for each in (await _get(session, "/api/topics"))["topics"]
        }
        assert topics[topic]["partitionCount"] == 3
        assert topics[topic]["cleanupPolicy"] == "delete"
        assert topics[topic]["logDirSummary"]["totalSizeBytes"] > 0
        described = await _get(session, f"/api/topics/{topic}/configuration")
        names = {entry["name"] for entry in described["topicDescription"]["configEntries"]}
        assert {"retention.ms", "cleanup.policy", "max.message.bytes"} <= names
        partitions = (await _get(session, f"/api/topics/{topic}/partitions"))["partitions"]
        assert [each["waterMarkHigh"] for each in partitions] == [10, 10, 10]
        (consumer,) = (await _get(session, f"/api/topics/{topic}/consumers"))["topicConsumers"]
        assert consumer["groupId"] == f"group-{topic}"

        groups = (await _get(session, "/api/consumer-groups"))["consumerGroups"]
        (group,) = [each for each in groups if each["groupId"] == f"group-{topic}"]
        assert group["state"] == "Empty"
        brokers = await _get(session, "/api/brokers")
        assert len(brokers) == 1
        await _get(session, f"/api/brokers/{brokers[0]['brokerId']}/config")
        await _get(session, "/api/quotas")
        await _get(session, "/api/operations/reassign-partitions")


async def test_a_web_console_shows_and_writes_records(console: str, topic: str) -> None:
    async with http_session(console) as session:
        await _get(session, "/api/topics")
        record = {
            "topicNames": [topic],
            "records": [{"value": "bmV3", "key": "a2V5", "partitionId": 1, "headers": []}],
            "compressionType": 0,
            "useTransactions": False,
        }
        async with session.post("/api/topics-records", json=record) as answer:
            assert answer.status == 200, await answer.text()
        shown = await _messages(session, topic)
        assert len(shown) == 31
        assert {each["partitionID"] for each in shown} == {0, 1, 2}


async def _messages(session: aiohttp.ClientSession, topic: str) -> list[dict[str, Any]]:
    found = []
    async with session.ws_connect(f"/api/topics/{topic}/messages") as socket:
        await socket.send_json(
            {"topicName": topic, "startOffset": -2, "partitionId": -1, "maxResults": 100}
        )
        async for frame in socket:
            event = frame.json()
            assert event["type"] != "error", event
            if event["type"] == "message":
                found.append(event["message"])
            if event["type"] == "done":
                break
    return found
