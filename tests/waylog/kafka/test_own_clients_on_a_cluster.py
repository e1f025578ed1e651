"""Our own producer and reader while the brokers of a cluster are killed and come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.contract.cluster_processes import NODES, ClusterProcesses
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import RecordPosition


@pytest.mark.long
async def test_nothing_acknowledged_is_lost_or_doubled_when_brokers_are_killed(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    cluster = ClusterProcesses(tmp_path)
    servers = await loop.run_in_executor(None, cluster.start)
    records: list[Any] = []
    producer = BatchProducer(servers, "writer", loop)
    reader = BatchReader(servers, "reader", "six", loop, on_records=records.extend)
    futures: list[asyncio.Future[RecordPosition]] = []
    try:
        admin = AdminClient({"bootstrap.servers": servers})
        creating = admin.create_topics([NewTopic("six", num_partitions=6)])["six"]
        await loop.run_in_executor(None, creating.result, 30)
        reader.start()

        async def produce() -> None:
            while True:
                for _ in range(20):
                    number = len(futures)
                    key = b"key-%d" % (number % 30)
                    futures.append(producer.append("six", b"%d" % number, key))
                await asyncio.sleep(0.01)

        producing = asyncio.create_task(produce())
        for node in NODES:
            await asyncio.sleep(1.0)
            before = len(futures)
            await loop.run_in_executor(None, cluster.brokers[node].kill)
            # Producing goes on while the broker is away.
            await asyncio.wait_for(asyncio.gather(*futures[: before + 1]), 60)
            await loop.run_in_executor(None, cluster.start, node)
        await asyncio.sleep(1.0)
        producing.cancel()
        positions = await asyncio.wait_for(asyncio.gather(*futures), 60)
        async with asyncio.timeout(60):
            while len(records) < len(futures):
                await asyncio.sleep(0.05)
    finally:
        await reader.close()
        await producer.close()
        await loop.run_in_executor(None, cluster.stop)
    assert Counter(int(record.value()) for record in records) == Counter(range(len(futures)))
    assert {(each.partition(), each.offset()): int(each.value()) for each in records} == {
        (position.partition, position.offset): number for number, position in enumerate(positions)
    }
    for key in {record.key() for record in records}:
        own = [int(record.value()) for record in records if record.key() == key]
        assert own == sorted(own)
