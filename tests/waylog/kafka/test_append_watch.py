"""AppendWatch tells whether a log to which nobody appends could store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.contract.cluster_processes import ClusterProcesses
from tests.ports import reserved_ports
from waylog.kafka.append_watch import AppendWatch, shortfall
from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.clients import ensure_topics
from waylog.kafka.protocol.cluster_requests import PartitionState
from waylog.kafka.protocol.config_requests import read_topics
from waylog.kafka.topics import EVENT, LOCATION

ALL = [1, 2, 3]
HEALTHY = PartitionState(1, ALL, ALL)


@pytest.mark.parametrize(
    ("state", "running", "min_in_sync", "words"),
    [
        (HEALTHY, ALL, 2, None),
        (HEALTHY, [1, 2], 2, None),
        (HEALTHY, [1], 2, "1 of 3 replicas in sync, and min.insync.replicas is 2"),
        (PartitionState(1, ALL, [1, 3]), ALL, 2, None),
        (PartitionState(1, ALL, [1]), ALL, 2, "are the brokers 2, 3 running"),
        (PartitionState(1, ALL, [1]), [1], 1, None),
        (HEALTHY, [2, 3], 2, "no leader that answers"),
        (PartitionState(-1, ALL, [2]), [1, 3], 1, "no leader that answers"),
        (PartitionState(1, [1], [1]), [1], None, None),
        (PartitionState(1, ALL, [1]), [1], None, None),
    ],
)
def test_what_cannot_be_stored_is_told(
    state: PartitionState, running: list[int], min_in_sync: int | None, words: str | None
) -> None:
    known = {} if min_in_sync is None else {"location": min_in_sync}
    why = shortfall({("location", 0): state, ("location", 1): state}, running, known)
    if words is None:
        assert why is None
    else:
        assert why is not None
        assert words in why
        assert why.startswith("location-0 (and 1 more partition")


@pytest.mark.parametrize(
    ("state", "answering", "heard", "words"),
    [
        (HEALTHY, [1], [1, 2, 3], None),
        (HEALTHY, [1, 2], [1, 2], "2 of 3 replicas in sync, and min.insync.replicas is 3"),
        # The controllers may hear a broker whose replica is behind.
        (PartitionState(1, ALL, [1, 2]), [1, 2], ALL, "are the brokers 3 running"),
        # A producer needs the leader itself.
        (HEALTHY, [2, 3], ALL, "no leader that answers: are the brokers 1 running and in reach"),
    ],
)
def test_a_follower_need_not_answer_here_if_the_controllers_hear_it(
    state: PartitionState, answering: list[int], heard: list[int], words: str | None
) -> None:
    why = shortfall({("location", 0): state}, answering, {"location": 3}, heard)
    assert (why is None) if words is None else words in (why or "")


def test_settings_that_a_cluster_does_not_tell_are_not_known() -> None:
    forbidden = b"\0\0\0\0" + b"\0\0\0\1" + b"\0\x1d\xff\xff\x02\0\x08location" + b"\0\0\0\0"
    assert read_topics(forbidden) == {}


@asynccontextmanager
async def watching(servers: str, acknowledged_at: float) -> AsyncIterator[AppendWatch]:
    loop = asyncio.get_running_loop()
    watch = AppendWatch(servers, "test", loop, [LOCATION, EVENT], lambda: acknowledged_at)
    watch.start()
    try:
        yield watch
    finally:
        await watch.close()


async def until(watch: AppendWatch, *, trouble: bool) -> str | None:
    async with asyncio.timeout(90):
        while (watch.trouble is not None) != trouble:
            await asyncio.sleep(0.1)
    return watch.trouble


def make_topic_that_needs_all(servers: str) -> None:
    """Create a topic that the first broker leads, and to which nothing is appended without all."""
    topic = NewTopic(
        LOCATION, 1, replica_assignment=[ALL], config={"min.insync.replicas": str(len(ALL))}
    )
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([topic])[LOCATION].result(60)


async def test_a_log_is_not_short_of_a_follower_that_only_this_client_cannot_reach(
    tmp_path: Path,
) -> None:
    cluster = ClusterProcesses(tmp_path)
    ports = reserved_ports(len(ALL) + 1)
    kept_out = ports.pop()
    for node, port in zip(ALL, ports, strict=True):
        # Brokers reach each other at one listener, and clients none of the third at the other.
        broker = cluster.brokers[node].properties
        broker["listeners"] += f",CLIENTS://127.0.0.1:{port}"
        broker["advertised.listeners"] = (
            f"PLAINTEXT://127.0.0.1:{cluster.ports[node]},"
            f"CLIENTS://127.0.0.1:{kept_out if node == 3 else port}"
        )
        broker["listener.security.protocol.map"] = (
            "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT"
        )
        broker["inter.broker.listener.name"] = "PLAINTEXT"
    servers = await asyncio.to_thread(cluster.start)
    clients = f"127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}"
    loop = asyncio.get_running_loop()
    try:
        await asyncio.to_thread(make_topic_that_needs_all, servers)
        producer = BatchProducer(clients, "test", loop)
        watch = AppendWatch(clients, "test", loop, [LOCATION], lambda: -math.inf)
        async with asyncio.timeout(90):
            await producer.append(LOCATION, b"{}")
            assert await watch.look() is None
            await asyncio.to_thread(cluster.brokers[3].kill)
            while (why := await watch.look()) is None:
                await asyncio.sleep(0.1)
        assert "replicas in sync, and min.insync.replicas is 3: are the brokers 3 running" in why
        await watch.close()
        await producer.close()
    finally:
        cluster.stop()


async def test_a_log_that_misses_brokers_is_told_until_they_are_back(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    servers = await asyncio.to_thread(cluster.start)
    try:
        await asyncio.to_thread(ensure_topics, servers)
        async with (
            watching(servers, -math.inf) as watch,
            watching(servers, asyncio.get_running_loop().time() + 3600) as busy,
        ):
            await asyncio.to_thread(cluster.brokers[2].stop)
            await asyncio.to_thread(cluster.brokers[3].kill)
            why = await until(watch, trouble=True)
            assert why is not None
            assert "are the brokers 2, 3 running" in why
            # What is acknowledged can be stored.
            assert busy.trouble is None
            await asyncio.to_thread(cluster.start, 2)
            await until(watch, trouble=False)
    finally:
        cluster.stop()
