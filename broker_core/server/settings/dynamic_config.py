"""Broker settings that can be changed at run time (KIP-226).

Clients set them for one broker or for all brokers. They override the property file, survive
restarts and take effect at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.cluster.settings import MIN_INSYNC_REPLICAS
from broker_core.configuration.config import TOPIC_DEFAULTS, BrokerConfig
from broker_core.errors import InvalidConfig, InvalidRequest
from broker_core.log.config import LogConfig
from broker_core.server.network.limits import ConnectionLimits
from broker_core.server.partitions.topics import TopicRegistry
from waylog.config import ConfigError

#: Dynamic settings of Kafka that have no effect here, because there are no such threads and no
#: Kerberos. They are stored and shown, so that tools which set them work.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "background.threads",
        "log.cleaner.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    }
)

#: Settings that can be changed at run time; all others are in the property file alone.
DYNAMIC: Final = (
    frozenset(name for name, _, _ in TOPIC_DEFAULTS)
    | _WITHOUT_EFFECT
    | {
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
        "log.cleaner.backoff.ms",
        "producer.id.expiration.ms",
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
    }
)


class DynamicConfig:
    """Dynamic settings: `cluster` for all brokers, `own` for this one."""

    def __init__(self, config: BrokerConfig) -> None:
        self._static = config
        # All brokers must have the same value of this setting, so it is a cluster setting from the
        # start (KIP-966).
        self._initial = {MIN_INSYNC_REPLICAS: config.topic_defaults.get(MIN_INSYNC_REPLICAS, "1")}
        self.cluster: dict[str, str] = dict(self._initial)
        self.own: dict[str, str] = {}
        #: Called with `leader.` and `follower.replication.throttled.rate`.
        self.set_replication_rates: Callable[[int, int], None] | None = None
        #: Called with `log.cleaner.backoff.ms`.
        self.set_cleaner_backoff: Callable[[int], None] | None = None

    def effective(self) -> BrokerConfig:
        """Return the broker's settings with the dynamic ones applied; raises ConfigError."""
        return self._with(self.cluster, self.own)

    def _with(self, cluster: Mapping[str, str], own: Mapping[str, str]) -> BrokerConfig:
        return BrokerConfig.from_properties({**self._static.properties, **cluster, **own})

    def check(self, properties: Mapping[str, str], *, for_all: bool) -> None:
        """Check new settings that would replace the current ones; raises InvalidRequest."""
        unknown = sorted(set(properties) - DYNAMIC)
        if unknown:
            raise InvalidRequest(f"Cannot update these configs dynamically: {', '.join(unknown)}")
        try:
            cluster, own = (properties, self.own) if for_all else (self.cluster, properties)
            LogConfig.from_properties(self._with(cluster, own).topic_defaults)
        except (ConfigError, InvalidConfig) as error:
            raise InvalidRequest(f"Invalid value: {error}") from None

    def of(self, resource_name: str) -> dict[str, str]:
        """Return the dynamic settings of all brokers (""), or of this one."""
        return self.own if resource_name else self.cluster

    def replace(self, properties: Mapping[str, str], *, for_all: bool) -> None:
        """Replace settings that have passed `check`; `apply` makes them take effect."""
        if for_all:
            self.cluster = self._initial | dict(properties)
        else:
            self.own = dict(properties)

    def apply(self, topics: TopicRegistry, limits: ConnectionLimits) -> None:
        """Make the settings take effect; raises ConfigError."""
        config = self.effective()
        topics.change_defaults(config)
        limits.connections_max = config.max_connections
        limits.connections_per_ip_max = config.max_connections_per_ip
        limits.per_ip_overrides = dict(config.max_connections_per_ip_overrides)
        limits.creation_rate_max = config.max_connection_creation_rate
        if self.set_replication_rates is not None:
            self.set_replication_rates(
                config.leader_replication_throttled_rate,
                config.follower_replication_throttled_rate,
            )
        if self.set_cleaner_backoff is not None:
            self.set_cleaner_backoff(config.cleaner_backoff_ms)

    def to_stored(self) -> dict[str, Any]:
        """Return the settings in the form that is stored as JSON."""
        return {"cluster": self.cluster, "own": self.own}

    def load(self, stored: dict[str, Any]) -> None:
        """Load what `to_stored` returned, without settings that are no longer dynamic."""
        self.cluster = self._initial | {k: v for k, v in stored["cluster"].items() if k in DYNAMIC}
        self.own = {k: v for k, v in stored["own"].items() if k in DYNAMIC}
