"""AppendWatch tells whether a log to which nobody appends could store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.cluster_processes import ClusterProcesses
from waylog.kafka.append_watch import AppendWatch, shortfall
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
