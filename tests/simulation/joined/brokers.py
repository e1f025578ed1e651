"""The simulated cluster: production brokers, each with its controller, on machines of their own."""

from __future__ import annotations

import asyncio

from broker_core import errors
from broker_core.configuration.config import BrokerConfig
from broker_core.server.runtime import Broker, start_broker
from tests.simulation.joined.machine import Machine
from tests.simulation.joined.sockets import Network
from tests.simulation.joined.world import World
from waylog.config import ConfigError, Endpoint

PORT = 9092


def host(node_id: int) -> str:
    """Return the address of a node."""
    return f"10.0.0.{node_id}"


class Node:
    """The machine of a broker."""

    def __init__(self, world: World, network: Network, properties: dict[str, str]) -> None:
        self.node_id = int(properties["node.id"])
        self.config = BrokerConfig.from_properties(properties)
        self.machine = Machine(world, network, host(self.node_id), self._main)
        #: The broker while it serves, else None.
        self.broker: Broker | None = None

    @property
    def endpoint(self) -> Endpoint:
        """The address for clients."""
        return Endpoint(host(self.node_id), PORT)

    async def _main(self, machine: Machine) -> None:
        world = machine.world
        self.broker = None
        stop = asyncio.Event()
        machine.stop = stop.set
        starting = asyncio.ensure_future(start_broker(self.config, machine.environment))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        try:
            broker = starting.result()
        except (OSError, errors.BrokerError, ConfigError) as error:
            world.note(f"{machine} cannot start: {error}")
            world.faults["start refused"] += 1
            return
        world.note(f"{machine} serves")
        self.broker = broker
        broker.failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
        self.broker = None
        if broker.failed.done():
            world.note(f"{machine} cannot go on")
        await broker.close()


def properties(world: World, node_id: int, nodes: int, *, flushes: bool) -> dict[str, str]:
    """Return a node's properties: production's settings, with times ten times shorter."""
    factor = min(nodes, 3)
    voters = ",".join(f"{each}@{host(each)}:9093" for each in range(1, nodes + 1))
    return {
        "node.id": str(node_id),
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{host(node_id)}:{PORT},CONTROLLER://{host(node_id)}:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "log.dirs": "/data",
        "broker.rack": f"rack-{node_id % 3}",
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(max(factor - 1, 1)),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "share.coordinator.state.topic.replication.factor": str(factor),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "controller.quorum.election.timeout.ms": "300",
        "controller.quorum.election.backoff.max.ms": "200",
        "controller.quorum.fetch.timeout.ms": "600",
        "broker.heartbeat.interval.ms": "200",
        "broker.session.timeout.ms": "1000",
        "replica.lag.time.max.ms": str(world.random.choice((300, 1000, 3000))),
        "replica.fetch.wait.max.ms": "400",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "500",
        "share.coordinator.state.topic.num.partitions": "2",
        "group.share.session.timeout.ms": "1500",
        "group.share.heartbeat.interval.ms": "250",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.consumer.session.timeout.ms": "1500",
        "group.consumer.heartbeat.interval.ms": "250",
        "log.segment.bytes": str(world.random.choice((2_000, 1_000_000))),
        "log.index.interval.bytes": "200",
        "log.flush.interval.messages": "1" if flushes else str(2**63 - 1),
        "leader.imbalance.check.interval.seconds": "5",
        "log.cleaner.enable": "false",
    }
