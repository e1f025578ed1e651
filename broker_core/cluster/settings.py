"""What a controller is told by the property file; times in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from broker_core.log.config import LogConfig

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Named after Kafka's properties."""

    session_timeout: float = 9.0  # broker.session.timeout.ms: silent for so long, a broker is dead
    partitions: int = 1  # num.partitions
    replication_factor: int = 1  # default.replication.factor
    #: Every partition holds files and memory on each of its replicas; a limit of ours.
    partitions_max: int = 10_000
    topic_defaults: LogConfig = field(default_factory=LogConfig)
    rebalances_leaders: bool = True  # auto.leader.rebalance.enable
    rebalance_interval: float = 300.0  # leader.imbalance.check.interval.seconds
    producer_ids: int = 1000  # ids in a block that a broker is given
