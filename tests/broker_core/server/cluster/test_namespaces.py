"""Three brokers in network namespaces: cables are pulled, routes are blocked, a disk is full.

Needs root, `ip` (iproute2) and a kernel with network namespaces. Records are numbered, so that the
fate of each one is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from broker_core import errors
from broker_core.protocol.definitions import METADATA
from load_tests.benches.numbered_load import TOPIC, NumberedLoad
from tests.broker_core.server.cluster.test_cluster import create
from tests.broker_core.server.cluster.test_failover import check
from tests.broker_core.server.raw_client import RawClient
from waylog.config import Endpoint, save_properties

pytestmark = [pytest.mark.long]

PARTITIONS = 6
NODES = (1, 2, 3)
TIMEOUT_S = 60.0
#: Seconds. A silent broker is noticed after its session (2 s), or a client's timeout (3 s).
SERVED_AGAIN_S_MAX = 20.0
CLIENT = {
    "socket.timeout.ms": 3000,
    "request.timeout.ms": 3000,
    "reconnect.backoff.max.ms": 500,
    "socket.connection.setup.timeout.ms": 1500,
}
DISK_BYTES = 160 * 1024 * 1024


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


_NUMBERS = count()


class Networks:
    """A bridge with a namespace for each broker."""

    def __init__(self) -> None:
        # A new name each time: a deleted namespace disappears later, with its end of the cable.
        self._name = f"wl{os.getpid() % 10_000}{next(_NUMBERS) % 10}"
        self._subnet = f"10.213.{os.getpid() % 250}"

    def address(self, node: int) -> str:
        return f"{self._subnet}.{node}"

    def space(self, node: int) -> str:
        return f"{self._name}-{node}"

    def open(self) -> None:
        ip("link", "add", self._name, "type", "bridge")
        ip("address", "add", f"{self.address(254)}/24", "dev", self._name)
        ip("link", "set", self._name, "up")
        for node in NODES:
            space, cable = self.space(node), self._cable(node)
            ip("netns", "add", space)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", cable, "master", self._name, "up")
            ip("-n", space, "address", "add", f"{self.address(node)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def close(self) -> None:
        for node in NODES:
            for words in (
                ("link", "delete", self._cable(node)),
                ("netns", "delete", self.space(node)),
            ):
                subprocess.run(["ip", *words], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self._name], check=False, capture_output=True)

    def _cable(self, node: int) -> str:
        return f"{self._name}v{node}"

    def pull(self, node: int) -> None:
        """Disconnect a broker from all others."""
        ip("link", "set", self._cable(node), "down")

    def plug_in(self, node: int) -> None:
        ip("link", "set", self._cable(node), "up")

    def block(self, node: int, other: int) -> None:
        """Drop what a broker sends to another; the opposite direction still works."""
        ip("-n", self.space(node), "route", "add", "blackhole", f"{self.address(other)}/32")

    def unblock(self, node: int, other: int) -> None:
        ip("-n", self.space(node), "route", "delete", "blackhole", f"{self.address(other)}/32")


class Cluster:
    def __init__(self, folder: Path, networks: Networks) -> None:
        self.networks = networks
        self.folder = folder
        self.running: dict[int, asyncio.subprocess.Process] = {}

    @property
    def servers(self) -> str:
        return ",".join(f"{self.networks.address(node)}:9092" for node in NODES)

    def data(self, node: int) -> Path:
        return self.folder / str(node)

    async def start(self, node: int) -> None:
        config = self.folder / f"{node}.properties"
        address = self.networks.address
        save_properties(
            config,
            {
                "node.id": str(node),
                "process.roles": "broker,controller",
                "listeners": f"PLAINTEXT://{address(node)}:9092,CONTROLLER://{address(node)}:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": ",".join(f"{n}@{address(n)}:9093" for n in NODES),
                "log.dirs": str(self.data(node)),
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "broker.session.timeout.ms": "2000",
            },
        )
        with (self.folder / f"{node}.log").open("ab") as log:
            self.running[node] = await asyncio.create_subprocess_exec(
                *("ip", "netns", "exec", self.networks.space(node)),
                *(sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)),
                stderr=log,
            )

    async def connect(self, node: int) -> RawClient:
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    return await RawClient.connect(Endpoint(self.networks.address(node), 9092))
                except OSError:
                    await asyncio.sleep(0.05)

    async def create_topic(self) -> None:
        client = await self.connect(1)
        async with asyncio.timeout(TIMEOUT_S):
            while (await create(client, TOPIC, PARTITIONS))["error_code"] != errors.NONE:
                await asyncio.sleep(0.05)
        await client.close()

    async def all_in_sync(self) -> None:
        client = await self.connect(1)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                answer = await client.call(METADATA, 12, {"topics": [{"name": TOPIC}]})
                partitions = answer["topics"][0]["partitions"]
                if all(len(each["isr_nodes"]) == len(NODES) for each in partitions):
                    break
                await asyncio.sleep(0.05)
        await client.close()

    async def stop(self) -> None:
        for process in self.running.values():
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in self.running.values()))


@pytest.fixture
def networks() -> Iterator[Networks]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and `ip`: apt-get install iproute2")
    made = Networks()
    try:
        made.open()
    except subprocess.CalledProcessError as error:
        made.close()
        pytest.skip(f"this kernel lets nobody make network namespaces: {error.stderr.strip()}")
    yield made
    made.close()


@pytest.fixture
async def cluster(tmp_path: Path, networks: Networks) -> AsyncIterator[Cluster]:
    running = Cluster(tmp_path, networks)
    await asyncio.gather(*(running.start(node) for node in NODES))
    await running.create_topic()
    await running.all_in_sync()
    yield running
    await running.stop()


async def served_again_s(load: NumberedLoad, began: float) -> float:
    return await asyncio.to_thread(load.resumed_s, began)


async def test_nothing_is_lost_when_a_cable_is_pulled(cluster: Cluster) -> None:
    networks, gaps = cluster.networks, []
    with NumberedLoad(cluster.servers, PARTITIONS, 1000, CLIENT) as load:
        for node in NODES:
            await cluster.all_in_sync()
            began = time.monotonic()
            networks.pull(node)
            gaps.append(await served_again_s(load, began))
            networks.plug_in(node)
        await cluster.all_in_sync()
    check(await asyncio.to_thread(load.account))
    print(f"served again after {', '.join(f'{gap:.1f}' for gap in gaps)} s")
    assert max(gaps) < SERVED_AGAIN_S_MAX


async def test_nothing_is_lost_when_a_way_is_blocked_in_one_direction(cluster: Cluster) -> None:
    networks, gaps = cluster.networks, []
    with NumberedLoad(cluster.servers, PARTITIONS, 1000, CLIENT) as load:
        for node, other in ((1, 2), (2, 3), (3, 1)):
            await cluster.all_in_sync()
            networks.block(node, other)
            # Clients reach both brokers; the affected partitions wait until the ISR has shrunk.
            await asyncio.sleep(3)
            networks.unblock(node, other)
            began = time.monotonic()
            gaps.append(await served_again_s(load, began))
        await cluster.all_in_sync()
    check(await asyncio.to_thread(load.account))
    print(f"served again after {', '.join(f'{gap:.1f}' for gap in gaps)} s")
    assert max(gaps) < SERVED_AGAIN_S_MAX


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "2"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=False)


def fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            continue


async def test_a_broker_whose_disk_is_full_gives_way_to_the_others(
    small_disk: Path, cluster: Cluster
) -> None:
    with NumberedLoad(cluster.servers, PARTITIONS, 1000, CLIENT) as load:
        await served_again_s(load, time.monotonic())
        filling = small_disk / "filling"
        await asyncio.to_thread(fill, filling)
        began = time.monotonic()
        async with asyncio.timeout(TIMEOUT_S):
            status = await cluster.running[2].wait()
        stopped_s = time.monotonic() - began
        gap = await served_again_s(load, time.monotonic())
        filling.unlink()
        await cluster.start(2)
        await cluster.all_in_sync()
    print(f"stopped after {stopped_s:.1f} s with {status}, served again {gap:.1f} s later")
    assert status == 1
    check(await asyncio.to_thread(load.account))
