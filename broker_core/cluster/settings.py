"""The controller's settings from the property file; times in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker_core.log.config import LogConfig

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The settings, named after Kafka's properties."""

    session_timeout: float = 9.0  # broker.session.timeout.ms: a broker is fenced after such silence
    #: The broker in the controller's own process; while the controller runs, this broker does.
    local_broker: int | None = None
    partitions: int = 1  # num.partitions
    replication_factor: int = 1  # default.replication.factor
    #: Limit of this broker only: every partition takes files and memory on each of its replicas.
    partitions_max: int = 10_000
    topic_defaults: LogConfig = field(default_factory=LogConfig)
    rebalances_leaders: bool = True  # auto.leader.rebalance.enable
    rebalance_interval: float = 300.0  # leader.imbalance.check.interval.seconds
    producer_ids: int = 1000  # ids in a block that is assigned to a broker
