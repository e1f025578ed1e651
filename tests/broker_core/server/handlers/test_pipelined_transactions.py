"""Produce requests of a transaction that a client sends without waiting for answers.

The coordinator of the transaction is another broker, so that its answers take a while.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from broker_core.protocol.batch_builder import build_batch
from broker_core.protocol.definitions import (
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
)
from tests.broker_core.server.raw_client import RawClient, produce_body
from tests.contract.cluster_processes import ClusterProcesses
from waylog.config import Endpoint

TOPIC: Final = "pipelined"
ID: Final = "writer"
REQUESTS: Final = 5
TRANSACTIONS: Final = 100
#: Errors of a cluster that has just started, and of a transaction that is being ended.
AGAIN: Final = (3, 5, 14, 15, 16, 51)


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[str]]:
    cluster = ClusterProcesses(
        tmp_path,
        auto_create_topics_enable="true",
        num_partitions="6",
        # Brokers that stand still for some seconds keep their partitions.
        broker_session_timeout_ms="30000",
        controller_quorum_fetch_timeout_ms="20000",
    )
    loop = asyncio.get_running_loop()
    try:
        started = await loop.run_in_executor(None, cluster.start)
        yield started.split(",")
    finally:
        await loop.run_in_executor(None, cluster.stop)


async def ask(client: RawClient, api: Any, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """Ask until the answer is no error that passes."""
    async with asyncio.timeout(60):
        while True:
            answer = await client.call(api, version, body)
            if not set(codes_in(answer)) & set(AGAIN):
                return answer
            await asyncio.sleep(0.05)


def codes_in(answer: Any) -> list[int]:
    if isinstance(answer, list):
        return [code for each in answer for code in codes_in(each)]
    if not isinstance(answer, dict):
        return []
    own = [answer["error_code"]] if "error_code" in answer else []
    return own + [code for each in answer.values() for code in codes_in(each)]


async def test_requests_of_a_transaction_do_not_overtake_each_other(servers: list[str]) -> None:
    async with AsyncExitStack() as connections:

        async def connect(host: str, port: int) -> RawClient:
            client = await RawClient.connect(Endpoint(host, port))
            connections.push_async_callback(client.close)
            return client

        host, port = servers[0].split(":")
        any_broker = await connect(host, int(port))
        wanted = {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": True}
        metadata = await ask(any_broker, METADATA, 9, wanted)
        key = {"key_type": 1, "coordinator_keys": [ID]}
        (found,) = (await ask(any_broker, FIND_COORDINATOR, 4, key))["coordinators"]
        clients = {
            each["node_id"]: await connect(each["host"], each["port"])
            for each in metadata["brokers"]
        }
        index, leader = next(
            (each["partition_index"], each["leader_id"])
            for each in metadata["topics"][0]["partitions"]
            if each["leader_id"] != found["node_id"]
        )
        seen = await write(clients[found["node_id"]], clients[leader], index)
    assert seen == {(0,) * REQUESTS: TRANSACTIONS}


async def write(coordinator: RawClient, leader: RawClient, index: int) -> Counter[tuple[int, ...]]:
    """Write transactions to a partition; return how often requests were answered by which codes."""
    no_producer = {"producer_id": -1, "producer_epoch": -1}
    first = {"transactional_id": ID, "transaction_timeout_ms": 60_000, **no_producer}
    producer = await ask(coordinator, INIT_PRODUCER_ID, 5, first)
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(TRANSACTIONS):
        owner = {each: producer[each] for each in no_producer}
        for number in range(REQUESTS):
            batch = build_batch(
                [(1000, b"k", b"v", ())], base_sequence=number, is_transactional=True, **owner
            )
            body = produce_body(TOPIC, bytes(batch), partition=index) | {"transactional_id": ID}
            leader.send(PRODUCE, 12, body)
            await leader.writer.drain()
            # Some arrive while the coordinator is asked, and some when it has answered.
            await asyncio.sleep(0.001)
        answers = [(await leader.receive(PRODUCE, 12))[1] for _ in range(REQUESTS)]
        codes = tuple(code for each in answers for code in codes_in(each))
        seen[codes] += 1
        end = {"transactional_id": ID, "committed": not any(codes), **owner}
        producer = await ask(coordinator, END_TXN, 5, end)
    return seen
