"""The brokers that `waylog up` starts: a single one, or several that replicate."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from waylog.cli import CommandError
from waylog.config import Endpoint, save_properties
from waylog.network.free_ports import FreePorts
from waylog.network.local_accounts import SELF
from waylog.supervision.process_spec import ProcessSpec

#: Seconds for a start: after a power cut a broker reads what its last checkpoint does not cover.
_READY_S: Final = 600.0
#: The number of brokers that are also voters of the metadata quorum; three survive the loss of one.
_VOTERS_MAX: Final = 3
_REPLICATION_FACTOR_MAX: Final = 3


@dataclass(frozen=True)
class BrokerProcess:
    """The addresses of one broker: for clients, for its controller and for its metrics."""

    node_id: int
    listener: Endpoint
    metrics: Endpoint
    controller: Endpoint | None = None


@dataclass(frozen=True)
class BrokerProcesses:
    """All brokers of a platform; `folder` has a folder for each."""

    folder: Path
    brokers: tuple[BrokerProcess, ...]
    metrics_token: Path | None = None
    #: The brokers' property `local.accounts`.
    local_accounts: str = SELF

    @classmethod
    def plan(
        cls,
        folder: Path,
        first: Endpoint,
        count: int,
        ports: FreePorts,
        metrics_token: Path | None = None,
        local_accounts: str = SELF,
    ) -> BrokerProcesses:
        """Choose addresses; the other brokers' ports follow the first one's if those are free.

        `first` has been settled already; `metrics_token` is the file of the token for metrics, and
        `local_accounts` names the accounts of this machine that may connect. Raises CommandError
        and PortTaken.
        """
        _check_folder(folder, count)
        metrics, controllers = Endpoint("127.0.0.1", 0), Endpoint(first.host, 0)
        if count == 1:
            alone = BrokerProcess(0, first, ports.settle(metrics))
            return cls(folder, (alone,), metrics_token, local_accounts)
        brokers = []
        for number in range(count):
            listener = first
            if number > 0:
                listener = ports.settle_near(Endpoint(first.host, first.port + number))
            brokers.append(
                BrokerProcess(
                    number + 1, listener, ports.settle(metrics), ports.settle(controllers)
                )
            )
        return cls(folder, tuple(brokers), metrics_token, local_accounts)

    @property
    def endpoints(self) -> list[Endpoint]:
        """All addresses at which the brokers listen."""
        found = [
            each
            for broker in self.brokers
            for each in (broker.listener, broker.metrics, broker.controller)
        ]
        return [each for each in found if each is not None]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses that clients connect to first."""
        return ",".join(str(broker.listener) for broker in self.brokers)

    @property
    def _voters(self) -> tuple[BrokerProcess, ...]:
        # Two voters would need each other, which is worse than one.
        return self.brokers[: _VOTERS_MAX if len(self.brokers) >= _VOTERS_MAX else 1]

    def specs(self) -> list[ProcessSpec]:
        """Write the property files; return the processes to start."""
        return [self._spec(broker) for broker in self.brokers]

    def _spec(self, broker: BrokerProcess) -> ProcessSpec:
        folder = self.folder / str(broker.node_id)
        config = folder / "server.properties"
        properties = {
            "node.id": str(broker.node_id),
            "listeners": f"PLAINTEXT://{broker.listener}",
            "advertised.listeners": f"PLAINTEXT://{broker.listener}",
            "local.accounts": self.local_accounts,
            "log.dirs": str((folder / "logs").resolve()),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "4",
            "metrics.listener": str(broker.metrics),
        }
        if self.metrics_token is not None:
            properties["metrics.token.file"] = str(self.metrics_token.resolve())
        if len(self.brokers) == 1:
            # A single broker has no replicas that would keep a record over a power cut, so it
            # acknowledges after fdatasync; one fdatasync covers all appends that wait.
            properties["log.flush.interval.messages"] = "1"
        else:
            properties |= self._cluster_properties(broker)
        save_properties(config, properties)
        words = [sys.executable, "-m", "waylog.cli", "broker", "--config", str(config)]
        name = "broker" if len(self.brokers) == 1 else f"broker-{broker.node_id}"
        return ProcessSpec(name, words, ready_timeout_s=_READY_S)

    def _cluster_properties(self, broker: BrokerProcess) -> dict[str, str]:
        factor = min(len(self.brokers), _REPLICATION_FACTOR_MAX)
        properties = {
            "process.roles": "broker",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{each.node_id}@{each.controller}" for each in self._voters
            ),
            "default.replication.factor": str(factor),
            "min.insync.replicas": str(max(factor - 1, 1)),
            "offsets.topic.replication.factor": str(factor),
            "share.coordinator.state.topic.replication.factor": str(factor),
            "transaction.state.log.replication.factor": str(factor),
        }
        if broker in self._voters:
            properties["process.roles"] = "broker,controller"
            properties["listeners"] = (
                f"PLAINTEXT://{broker.listener},CONTROLLER://{broker.controller}"
            )
        return properties


def _check_folder(folder: Path, count: int) -> None:
    """Raise CommandError if this number of brokers cannot take over the folder's data.

    A single broker stores the metadata of topics differently from several, so one cannot become
    the other; and of several brokers none can be left out.
    """
    there = sorted(path.parent.parent.name for path in folder.glob("*/logs/meta.properties"))
    if not there:
        return
    is_alone = there == ["0"]
    if is_alone != (count == 1) or len(there) > count:
        present = "one broker" if is_alone else f"{len(there)} brokers"
        raise CommandError(
            f"{folder} has the data of {present}: --brokers {count} cannot take it over; give the "
            "number that there was, or another folder with --data"
        )
