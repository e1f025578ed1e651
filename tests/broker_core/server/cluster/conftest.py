"""Fixtures that run three brokers with a quorum in the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from broker_core.configuration.config import BrokerConfig
from broker_core.environment import Environment
from broker_core.server.runtime import Broker, start_broker
from tests.ports import reserved_ports

TIMEOUT_S = 60.0


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Use the event loop of `waylog broker`."""
    return {"uvloop": uvloop.new_event_loop}


class Trio:
    """Three brokers by node id."""

    def __init__(
        self, folder: Path, environment: Environment | None = None, /, **properties: str
    ) -> None:
        self._folder = folder
        self._environment = environment
        ports = reserved_ports(6)
        self.ports = dict(zip((1, 2, 3), ports[:3], strict=True))
        self._controllers = dict(zip((1, 2, 3), ports[3:], strict=True))
        self._properties = {name.replace("_", "."): value for name, value in properties.items()}
        self.brokers: dict[int, Broker] = {}

    def properties(self, node_id: int) -> dict[str, str]:
        """Return the properties of a node."""
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in self._controllers.items())
        return {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "listeners": (
                f"PLAINTEXT://127.0.0.1:{self.ports[node_id]},"
                f"CONTROLLER://127.0.0.1:{self._controllers[node_id]}"
            ),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": str(self._folder / str(node_id)),
            "default.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "0",
            "controller.quorum.election.timeout.ms": "300",
            # All three are in one process, which may stand still for some seconds. They notice
            # sooner that a connection has ended.
            "broker.session.timeout.ms": "30000",
            "controller.quorum.fetch.timeout.ms": "20000",
            "auto.create.topics.enable": "false",
        } | self._properties

    async def start(self, *node_ids: int) -> None:
        """Start nodes, all of them by default."""
        wanted = node_ids or (1, 2, 3)
        async with asyncio.timeout(TIMEOUT_S):
            started = await asyncio.gather(
                *(
                    start_broker(
                        BrokerConfig.from_properties(self.properties(node_id)), self._environment
                    )
                    for node_id in wanted
                )
            )
        self.brokers |= dict(zip(wanted, started, strict=True))

    async def stop(self, *node_ids: int) -> None:
        """Stop nodes one after the other."""
        for node_id in node_ids:
            await self.brokers.pop(node_id).close()

    @property
    def active(self) -> int:
        """The node whose controller is active."""
        return next(
            node_id
            for node_id, broker in self.brokers.items()
            if broker.cluster is not None and broker.cluster.is_active
        )

    async def until(self, condition: Callable[[Broker], bool]) -> None:
        """Wait until a condition is true on all running brokers."""
        async with asyncio.timeout(TIMEOUT_S):
            while not all(condition(broker) for broker in self.brokers.values()):
                await asyncio.sleep(0.01)


StartTrio = Callable[..., Awaitable[Trio]]


@pytest.fixture
async def start_trio(tmp_path: Path) -> AsyncIterator[StartTrio]:
    """Start three brokers in an environment, with properties; stop them after the test."""
    trios: list[Trio] = []

    async def start(environment: Environment | None = None, /, **properties: str) -> Trio:
        trio = Trio(tmp_path, environment, **properties)
        trios.append(trio)
        await trio.start()
        return trio

    yield start
    for trio in trios:
        await asyncio.gather(*(broker.close() for broker in trio.brokers.values()))


@pytest.fixture
async def trio(start_trio: StartTrio) -> Trio:
    """Three brokers."""
    return await start_trio()
