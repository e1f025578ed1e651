"""Three broker processes, one of which is killed."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_core import errors
from broker_core.protocol.definitions import DESCRIBE_QUORUM, METADATA
from tests.broker_core.server.cluster.conftest import TIMEOUT_S, Trio
from tests.broker_core.server.cluster.test_cluster import create
from tests.broker_core.server.raw_client import RawClient
from waylog.config import Endpoint, save_properties

PARTITIONS = 12
#: Others lead because the address of a killed broker refuses connections (0.1 to 0.3 s on an idle
#: machine), and not because a time has passed without it: these are longer than the test waits.
NEVER_MS = str(20 * 60_000)


class Processes:
    """The brokers of a Trio, each in its own process."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder = folder
        self.trio = Trio(folder, **properties)
        self.running: dict[int, asyncio.subprocess.Process] = {}

    async def start(self, node_id: int) -> None:
        config = self.folder / f"{node_id}.properties"
        save_properties(config, self.trio.properties(node_id))
        with (self.folder / f"{node_id}.log").open("ab") as log:
            self.running[node_id] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "waylog.cli", "broker", "--config", str(config), stderr=log
            )

    async def kill(self, node_id: int) -> None:
        process = self.running.pop(node_id)
        process.send_signal(signal.SIGKILL)
        await process.wait()

    async def connect(self, node_id: int) -> RawClient:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    return await RawClient.connect(Endpoint("127.0.0.1", self.trio.ports[node_id]))
                except OSError:
                    await asyncio.sleep(0.02)

    async def until_in_sync(self, client: RawClient) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not all(len(each["isr_nodes"]) == 3 for each in await partitions(client)):
                await asyncio.sleep(0.02)


async def partitions(client: RawClient) -> list[dict[str, Any]]:
    answer = await client.call(METADATA, 12, {"topics": [{"name": "t"}]})
    described: list[dict[str, Any]] = answer["topics"][0]["partitions"]
    return described


async def controller_of(client: RawClient) -> int:
    answer = await client.call(
        DESCRIBE_QUORUM,
        2,
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    )
    return int(answer["topics"][0]["partitions"][0]["leader_id"])


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    running = Processes(
        tmp_path, broker_session_timeout_ms=NEVER_MS, controller_quorum_fetch_timeout_ms=NEVER_MS
    )
    await asyncio.gather(*(running.start(node_id) for node_id in (1, 2, 3)))
    yield running
    for process in running.running.values():
        process.terminate()
    await asyncio.gather(*(process.wait() for process in running.running.values()))


async def test_others_lead_before_any_time_is_up_when_a_broker_is_killed(
    processes: Processes,
) -> None:
    client = await processes.connect(1)
    async with asyncio.timeout(TIMEOUT_S):
        while (await create(client, "t", PARTITIONS))["error_code"] != errors.NONE:
            await asyncio.sleep(0.05)
    await processes.until_in_sync(client)
    active = await controller_of(client)
    await client.close()
    # First a broker whose controller is not active, then the one with the active controller.
    for killed in (next(node for node in (1, 2, 3) if node != active), active):
        survivor = next(node for node in (3, 2, 1) if node != killed)
        client = await processes.connect(survivor)
        before = time.monotonic()
        await processes.kill(killed)
        async with asyncio.timeout(TIMEOUT_S):
            while not all(
                each["leader_id"] not in {killed, -1} and killed not in each["isr_nodes"]
                for each in await partitions(client)
            ):
                await asyncio.sleep(0.005)
        passed = time.monotonic() - before
        print(f"{'active controller' if killed == active else 'broker'}: {passed:.3f} s")
        await processes.start(killed)
        await processes.until_in_sync(client)
        await client.close()


async def test_a_broker_that_waits_for_controllers_can_be_stopped(tmp_path: Path) -> None:
    alone = Processes(tmp_path)
    await alone.start(1)
    log = tmp_path / "1.log"
    async with asyncio.timeout(TIMEOUT_S):
        while b"looking for the controller" not in log.read_bytes():
            await asyncio.sleep(0.02)
    process = alone.running[1]
    process.terminate()
    async with asyncio.timeout(TIMEOUT_S):
        assert await process.wait() == 0
