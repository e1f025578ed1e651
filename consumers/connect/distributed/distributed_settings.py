"""The properties of one of several workers, by the names of Kafka Connect's documentation."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from consumers.connect.configuration.definitions import (
    NO_DEFAULT,
    ConfigDef,
    ConfigType,
    Importance,
)
from consumers.connect.configuration.exceptions import ConfigException, invalid_value
from consumers.connect.configuration.plugin_properties import with_prefix
from consumers.connect.configuration.validators import (
    all_of,
    at_least,
    between,
    non_empty,
    one_of_ignoring_case,
    optional,
    topic_name,
)
from consumers.connect.configuration.variables import Variables
from consumers.connect.group.membership import GroupTiming
from consumers.connect.group.protocol import COMPATIBLE, EAGER, SESSIONED
from consumers.connect.group.session_keys import ALGORITHMS
from consumers.connect.tasks.client_properties import ClientProperties
from consumers.connect.topics.internal_topics import InternalTopic
from consumers.connect.worker.worker_settings import (
    WORKER_CONFIG,
    WorkerSettings,
    resolved_properties,
    settings_of,
    worker_key,
)
from waylog.kafka.connection.properties import configured_properties
from waylog.kafka.connection.security import ConnectionSecurity, connection_security

_TOPIC: Final = ".storage.topic"
_PARTITIONS: Final = ".storage.partitions"
_FACTOR: Final = ".storage.replication.factor"
_PURPOSES: Final = {
    "config": "connector configurations",
    "offset": "source connector offsets",
    "status": "connector and task statuses",
}
_MINUTE_MS: Final = 60_000
_PROTOCOLS: Final = {"eager": EAGER, COMPATIBLE: COMPATIBLE, SESSIONED: SESSIONED}
_ALGORITHM: Final = "HmacSHA256"


class ExactlyOnce(enum.Enum):
    """What a worker does about exactly-once sources (KIP-618)."""

    DISABLED = "disabled"
    PREPARING = "preparing"  # as a leader it writes in transactions already
    ENABLED = "enabled"


def _count(name: str, value: Any) -> None:
    if value is None or (value < 1 and value != -1):
        raise invalid_value(name, value, "Number must be at least 1, or -1 for the broker's own")


def _protocol(name: str, value: Any) -> None:
    if str(value).lower() not in _PROTOCOLS:
        raise invalid_value(name, value, "Invalid Connect protocol compatibility")


def _algorithm(name: str, value: Any) -> None:
    if value not in ALGORITHMS:
        raise invalid_value(name, value, f"one of {', '.join(ALGORITHMS)} is expected")


def _algorithms(name: str, value: Any) -> None:
    if not value:
        raise invalid_value(name, value, "at least one algorithm is expected")
    for each in value:
        _algorithm(name, each)


DISTRIBUTED_CONFIG: Final = ConfigDef(
    [
        *WORKER_CONFIG.keys.values(),
        worker_key(
            "group.id",
            ConfigType.STRING,
            "The group of the workers that share connectors.",
            NO_DEFAULT,
            non_empty,
            Importance.HIGH,
        ),
        *(
            worker_key(
                kind + _TOPIC,
                ConfigType.STRING,
                f"The topic of {purpose}.",
                NO_DEFAULT,
                all_of(non_empty, topic_name),
                Importance.HIGH,
            )
            for kind, purpose in _PURPOSES.items()
        ),
        *(
            worker_key(
                kind + _FACTOR,
                ConfigType.SHORT,
                "The replicas of that topic if it is created; -1 as the brokers say.",
                3,
                _count,
            )
            for kind in _PURPOSES
        ),
        worker_key(
            "offset" + _PARTITIONS,
            ConfigType.INT,
            "The partitions of the topic of offsets if it is created.",
            25,
            _count,
        ),
        worker_key(
            "status" + _PARTITIONS,
            ConfigType.INT,
            "The partitions of the topic of states if it is created.",
            5,
            _count,
        ),
        worker_key(
            "session.timeout.ms",
            ConfigType.INT,
            "Milliseconds without a heartbeat after which a worker has left the group.",
            10_000,
            at_least(1),
            Importance.HIGH,
        ),
        worker_key(
            "heartbeat.interval.ms",
            ConfigType.INT,
            "Milliseconds between two heartbeats.",
            3_000,
            at_least(1),
            Importance.HIGH,
        ),
        worker_key(
            "rebalance.timeout.ms",
            ConfigType.INT,
            "Milliseconds that a worker has to join again.",
            _MINUTE_MS,
            at_least(1),
            Importance.HIGH,
        ),
        worker_key(
            "worker.sync.timeout.ms",
            ConfigType.INT,
            "Milliseconds in which a worker has to read what others have configured.",
            3_000,
            at_least(1),
            Importance.MEDIUM,
        ),
        worker_key(
            "worker.unsync.backoff.ms",
            ConfigType.INT,
            "Milliseconds out of the group after that was not possible.",
            5 * _MINUTE_MS,
            at_least(0),
            Importance.MEDIUM,
        ),
        worker_key(
            "scheduled.rebalance.max.delay.ms",
            ConfigType.INT,
            "Milliseconds until the work of a worker that has gone is given to others.",
            5 * _MINUTE_MS,
            between(0, 2**31 - 1),
        ),
        worker_key(
            "connect.protocol",
            ConfigType.STRING,
            "How workers talk: sessioned; compatible, which does not sign requests; or eager, of "
            "workers before Kafka 2.3.",
            SESSIONED,
            _protocol,
        ),
        worker_key(
            "exactly.once.source.support",
            ConfigType.STRING,
            "Whether sources write each record once: disabled; enabled, after all workers of the "
            "group have been preparing.",
            "disabled",
            one_of_ignoring_case(*(each.value for each in ExactlyOnce)),
            Importance.HIGH,
        ),
        worker_key(
            "inter.worker.key.generation.algorithm",
            ConfigType.STRING,
            "For which algorithm keys are made.",
            _ALGORITHM,
            _algorithm,
        ),
        worker_key(
            "inter.worker.key.size",
            ConfigType.INT,
            "Bits of a key.",
            None,
            optional(at_least(40)),
        ),
        worker_key(
            "inter.worker.key.ttl.ms",
            ConfigType.INT,
            "Milliseconds until the leader makes another key.",
            60 * _MINUTE_MS,
            at_least(0),
        ),
        worker_key(
            "inter.worker.signature.algorithm",
            ConfigType.STRING,
            "How requests between workers are signed.",
            _ALGORITHM,
            _algorithm,
        ),
        worker_key(
            "inter.worker.verification.algorithms",
            ConfigType.LIST,
            "Which signatures are taken.",
            [_ALGORITHM],
            _algorithms,
        ),
    ]
)


class DistributedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the properties of one of several workers say."""

    worker: WorkerSettings
    group_id: str
    timing: GroupTiming
    protocol: str  # connect.protocol, by its name in the group
    max_delay_ms: int
    sync_timeout_s: float
    unsync_backoff_s: float
    config_topic: InternalTopic
    offset_topic: InternalTopic
    status_topic: InternalTopic
    key_algorithm: str
    key_size_bits: int | None
    key_ttl_ms: int
    signature_algorithm: str
    verification_algorithms: tuple[str, ...]
    exactly_once: ExactlyOnce

    @property
    def leader_transactional_id(self) -> str | None:
        """The transactional id of whoever leads; None: leaders write without transactions."""
        if self.exactly_once is ExactlyOnce.DISABLED:
            return None
        return f"connect-cluster-{self.group_id}"

    @property
    def topics(self) -> tuple[InternalTopic, ...]:
        """The topics in which workers keep what they share."""
        return self.config_topic, self.offset_topic, self.status_topic


def distributed_settings(
    properties: Mapping[str, str], variables: Variables
) -> DistributedSettings:
    """Return what the properties say; raises ConfigException."""
    resolved = resolved_properties(properties, variables)
    parsed = DISTRIBUTED_CONFIG.parse(resolved)
    timing = GroupTiming(
        session_timeout_ms=parsed["session.timeout.ms"],
        heartbeat_interval_ms=parsed["heartbeat.interval.ms"],
        rebalance_timeout_ms=parsed["rebalance.timeout.ms"],
    )
    if timing.heartbeat_interval_ms * 2 > timing.session_timeout_ms:
        raise invalid_value(
            "heartbeat.interval.ms",
            timing.heartbeat_interval_ms,
            "it must be less than half of session.timeout.ms",
        )
    signature = parsed["inter.worker.signature.algorithm"]
    allowed = tuple(parsed["inter.worker.verification.algorithms"])
    if signature not in allowed:
        raise ConfigException(
            f"Signature algorithm must be present in inter.worker.verification.algorithms list: "
            f"{signature}"
        )
    topics = {kind: _topic(kind, parsed, resolved) for kind in _PURPOSES}
    if len({each.name for each in topics.values()}) < len(topics):
        raise ConfigException(
            "config.storage.topic, offset.storage.topic and status.storage.topic have to differ"
        )
    return DistributedSettings(
        worker=settings_of(parsed, resolved, Path()),
        group_id=parsed["group.id"],
        timing=timing,
        protocol=_PROTOCOLS[parsed["connect.protocol"].lower()],
        max_delay_ms=parsed["scheduled.rebalance.max.delay.ms"],
        sync_timeout_s=parsed["worker.sync.timeout.ms"] / 1000,
        unsync_backoff_s=parsed["worker.unsync.backoff.ms"] / 1000,
        config_topic=topics["config"],
        offset_topic=topics["offset"],
        status_topic=topics["status"],
        key_algorithm=parsed["inter.worker.key.generation.algorithm"],
        key_size_bits=parsed["inter.worker.key.size"],
        key_ttl_ms=parsed["inter.worker.key.ttl.ms"],
        signature_algorithm=signature,
        verification_algorithms=allowed,
        exactly_once=ExactlyOnce(parsed["exactly.once.source.support"].lower()),
    )


def _topic(kind: str, parsed: Mapping[str, Any], resolved: Mapping[str, str]) -> InternalTopic:
    prefix = f"{kind}.storage."
    own = ("topic", "partitions", "replication.factor", "cleanup.policy")
    settings = {
        name: text for name, text in with_prefix(resolved, prefix).items() if name not in own
    }
    return InternalTopic(
        parsed[kind + _TOPIC],
        kind + _TOPIC,
        _PURPOSES[kind],
        1 if kind == "config" else parsed[kind + _PARTITIONS],
        parsed[kind + _FACTOR],
        settings,
        has_one_partition=kind == "config",
    )


def group_security(settings: WorkerSettings) -> ConnectionSecurity:
    """Return how the connections to the group's coordinator are secured; raises ConfigError.

    Properties of the worker count before those of the file that the environment names.
    """
    clients = ClientProperties(settings.bootstrap_servers, settings.properties, {})
    return connection_security({**configured_properties(), **clients.security()})
