"""Three broker processes under load: killed, stopped, frozen, restarted one after the other."""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_core import errors
from broker_core.protocol.definitions import METADATA
from load_tests.benches.numbered_load import TOPIC, Account, NumberedLoad
from tests.broker_core.server.cluster.conftest import TIMEOUT_S
from tests.broker_core.server.cluster.test_cluster import create
from tests.broker_core.server.cluster.test_kill import Processes

PARTITIONS = 6
#: So long that only closed connections reveal a death in time, on however busy a machine. On an
#: idle one a failover takes 0.2 s, 1 s at worst (`python -m load_tests.benches.failover`).
SESSION_TIMEOUT_MS = 60_000
INTERRUPTED_S_MAX = 30.0


class Cluster(Processes):
    """Three broker processes with a topic."""

    @property
    def servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.trio.ports.values())

    async def stop(self, node_id: int) -> None:
        process = self.running.pop(node_id)
        process.terminate()
        await process.wait()

    async def create_topic(self) -> None:
        client = await self.connect(1)
        async with asyncio.timeout(TIMEOUT_S):
            while (await create(client, TOPIC, PARTITIONS))["error_code"] != errors.NONE:
                await asyncio.sleep(0.05)
        await client.close()

    async def all_in_sync(self) -> None:
        """Wait until every partition of every topic has all replicas in sync."""
        client = await self.connect(next(iter(self.running)))
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                answer = await client.call(METADATA, 12, {"topics": None})
                if len(answer["brokers"]) == 3 and all(
                    len(partition["isr_nodes"]) == 3
                    for topic in answer["topics"]
                    for partition in topic["partitions"]
                ):
                    break
                await asyncio.sleep(0.05)
        await client.close()


@pytest.fixture
def session_timeout_ms() -> int:
    return SESSION_TIMEOUT_MS


@pytest.fixture
async def cluster(tmp_path: Path, session_timeout_ms: int) -> AsyncIterator[Cluster]:
    running = Cluster(
        tmp_path, min_insync_replicas="2", broker_session_timeout_ms=str(session_timeout_ms)
    )
    await asyncio.gather(*(running.start(node_id) for node_id in (1, 2, 3)))
    await running.create_topic()
    await running.all_in_sync()
    yield running
    for process in running.running.values():
        process.terminate()
        process.send_signal(signal.SIGCONT)  # one may be frozen
    await asyncio.gather(*(process.wait() for process in running.running.values()))


def check(account: Account) -> None:
    assert account.sent > 0
    assert not account.refused
    assert not account.lost
    assert not account.doubled
    assert not account.moved


async def kill_in_turn(cluster: Cluster, load: NumberedLoad, times: int) -> list[float]:
    """Kill brokers in turn, each time with all in sync; return the seconds of each outage."""
    gaps = []
    for number in range(times):
        await cluster.all_in_sync()
        victim = number % 3 + 1
        began = time.monotonic()
        await cluster.kill(victim)
        gaps.append(await asyncio.to_thread(load.resumed_s, began))
        await cluster.start(victim)
    await cluster.all_in_sync()
    return gaps


async def test_nothing_acknowledged_is_lost_or_doubled_when_brokers_are_killed(
    cluster: Cluster,
) -> None:
    with NumberedLoad(cluster.servers, PARTITIONS) as load:
        gaps = await kill_in_turn(cluster, load, 2)
        began = time.monotonic()
        await cluster.stop(3)
        stopped = await asyncio.to_thread(load.resumed_s, began)
    check(await asyncio.to_thread(load.account))
    print(f"killed: {gaps}, stopped: {stopped:.2f} s")
    assert max(gaps) < INTERRUPTED_S_MAX
    assert stopped < INTERRUPTED_S_MAX


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_brokers_may_be_killed_fifty_times(cluster: Cluster) -> None:
    with NumberedLoad(cluster.servers, PARTITIONS, rate=2000) as load:
        gaps = await kill_in_turn(cluster, load, 50)
    account = await asyncio.to_thread(load.account)
    check(account)
    print(
        f"{account.sent} records; served again after {statistics.median(gaps):.2f} s "
        f"(median), {max(gaps):.2f} s (worst)"
    )
    assert max(gaps) < INTERRUPTED_S_MAX


@pytest.mark.long
# Only its silence reveals a frozen broker.
@pytest.mark.parametrize("session_timeout_ms", [3000])
async def test_a_broker_that_freezes_and_wakes_harms_nothing(cluster: Cluster) -> None:
    # To its clients a frozen broker is one that does not answer.
    impatient = {"socket.timeout.ms": 3000, "request.timeout.ms": 3000}
    with NumberedLoad(cluster.servers, PARTITIONS, settings=impatient) as load:
        for frozen in (1, 2, 3):
            await cluster.all_in_sync()
            began = time.monotonic()
            cluster.running[frozen].send_signal(signal.SIGSTOP)
            gap = await asyncio.to_thread(load.resumed_s, began)
            print(f"broker {frozen} froze: {gap:.2f} s")
            await asyncio.sleep(2)
            cluster.running[frozen].send_signal(signal.SIGCONT)
        await cluster.all_in_sync()
    check(await asyncio.to_thread(load.account))


@pytest.mark.long
async def test_brokers_are_restarted_one_after_the_other_and_no_client_notices(
    cluster: Cluster,
) -> None:
    with NumberedLoad(cluster.servers, PARTITIONS, rate=5000) as load:
        await asyncio.sleep(2)
        began = time.monotonic()
        for node_id in (1, 2, 3):
            await cluster.stop(node_id)
            await cluster.start(node_id)
            await cluster.all_in_sync()
        latencies = load.latencies_s(began)
    check(await asyncio.to_thread(load.account))
    at = {share: latencies[int(len(latencies) * share)] for share in (0.5, 0.99)}
    print(f"acknowledged after {at[0.5] * 1000:.0f} ms, p99 {at[0.99] * 1000:.0f} ms")
