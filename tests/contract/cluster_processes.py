"""Brokers in processes of their own that form a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.contract.broker_process import BrokerProcess
from tests.ports import reserved_ports

NODES = (1, 2, 3)


class ClusterProcesses:
    """Brokers 1, 2 and 3, or those named; each can be stopped, killed and started by itself."""

    def __init__(self, folder: Path, /, *, nodes: Sequence[int] = NODES, **properties: str) -> None:
        ports = reserved_ports(2 * len(nodes))
        self.ports = dict(zip(nodes, ports, strict=False))
        controllers = dict(zip(nodes, ports[len(nodes) :], strict=True))
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items())
        self.brokers: dict[int, BrokerProcess] = {}
        for node in nodes:
            (folder / str(node)).mkdir(parents=True)
            # As `waylog up --brokers 3` writes them, but without acknowledging after fdatasync.
            broker = BrokerProcess(folder / str(node), **properties)
            broker.properties |= {
                "node.id": str(node),
                "process.roles": "broker,controller",
                "listeners": (
                    f"PLAINTEXT://127.0.0.1:{self.ports[node]},"
                    f"CONTROLLER://127.0.0.1:{controllers[node]}"
                ),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
            }
            del broker.properties["log.flush.interval.messages"]
            self.brokers[node] = broker

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, *nodes: int) -> str:
        """Start nodes, all if none is named; return the bootstrap servers once they serve."""
        with ThreadPoolExecutor() as executor:
            list(executor.map(self._start, nodes or self.brokers))
        return self.bootstrap_servers

    def _start(self, node: int) -> None:
        broker = self.brokers[node]
        listeners = broker.properties["listeners"]
        broker.start()
        broker.properties["listeners"] = listeners

    def stop(self) -> None:
        """Stop all running nodes."""
        for broker in self.brokers.values():
            broker.stop()
