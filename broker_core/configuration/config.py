"""The settings of one broker, with Apache Kafka's property names and defaults.

Where a default differs from Kafka's, the field gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, TypeVar

from broker_core.configuration.listeners import (
    DEFAULT_LISTENERS,
    ListenerConfig,
    addresses_of,
    controller_login,
    controller_tls,
    parse_controller_listener,
    parse_listeners,
)
from broker_core.configuration.property_names import check_names
from broker_core.coordinator.groups.migration_policy import MigrationPolicy
from broker_core.replication.throttle import UNLIMITED
from broker_core.security.principal import ANONYMOUS, Principal
from waylog.config import ConfigError, Endpoint, parse_endpoint
from waylog.kafka.connection.sasl import SaslCredentials
from waylog.network.served_hosts import ServedHosts

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_LONG_MAX: Final = 2**63 - 1

#: Broker properties that set defaults of topic properties. If several set the same one, the last
#: wins: (broker property, topic property, factor to the unit of the topic property).
TOPIC_DEFAULTS: Final = (
    ("log.retention.hours", "retention.ms", _HOUR_MS),
    ("log.retention.minutes", "retention.ms", _MINUTE_MS),
    ("log.retention.ms", "retention.ms", 1),
    ("log.retention.bytes", "retention.bytes", 1),
    ("log.segment.bytes", "segment.bytes", 1),
    ("log.roll.hours", "segment.ms", _HOUR_MS),
    ("log.roll.ms", "segment.ms", 1),
    ("log.index.size.max.bytes", "segment.index.bytes", 1),
    ("log.index.interval.bytes", "index.interval.bytes", 1),
    ("log.cleanup.policy", "cleanup.policy", None),
    ("log.cleaner.delete.retention.ms", "delete.retention.ms", 1),
    ("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio", None),
    ("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms", 1),
    ("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms", 1),
    ("log.flush.interval.messages", "flush.messages", 1),
    ("log.flush.interval.ms", "flush.ms", 1),
    ("log.message.timestamp.type", "message.timestamp.type", None),
    ("log.message.timestamp.after.max.ms", "message.timestamp.after.max.ms", 1),
    ("log.message.timestamp.before.max.ms", "message.timestamp.before.max.ms", 1),
    ("log.preallocate", "preallocate", None),
    ("log.roll.jitter.hours", "segment.jitter.ms", _HOUR_MS),
    ("log.roll.jitter.ms", "segment.jitter.ms", 1),
    ("unclean.leader.election.enable", "unclean.leader.election.enable", None),
    ("message.max.bytes", "max.message.bytes", 1),
    ("compression.type", "compression.type", None),
    ("min.insync.replicas", "min.insync.replicas", 1),
    ("log.segment.delete.delay.ms", "file.delete.delay.ms", 1),
)


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("true or false is expected")
    return text.lower() == "true"


def _super_users(text: str) -> frozenset[Principal]:
    return frozenset(Principal.parse(word.strip()) for word in text.split(";") if word.strip())


NO_PRINCIPALS: Final[frozenset[Principal]] = frozenset()

_STANDARD_AUTHORIZERS: Final = frozenset(
    {
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
    }
)


def _authorizer(text: str) -> str:
    if text not in _STANDARD_AUTHORIZERS:
        raise ValueError(f"one of {', '.join(sorted(_STANDARD_AUTHORIZERS))} is expected")
    return text


_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _replica_selector(text: str) -> str:
    if text != _RACK_AWARE:
        raise ValueError(f"{_RACK_AWARE} is expected")
    return text


def _migration_policy(text: str) -> MigrationPolicy:
    try:
        return MigrationPolicy(text.lower())
    except ValueError:
        names = ", ".join(each.value for each in MigrationPolicy)
        raise ValueError(f"one of {names} is expected") from None


class IpOverrides(tuple[tuple[str, int], ...]):
    """(address, maximum number of its connections) pairs."""

    __slots__ = ()


def _overrides(text: str) -> IpOverrides:
    overrides = []
    for word in text.split(","):
        host, separator, count = word.strip().rpartition(":")
        if not separator or not count.isdigit():
            raise ValueError("ADDRESS:COUNT,... is expected")
        overrides.append((host, int(count)))
    return IpOverrides(overrides)


class Voters(tuple[tuple[int, Endpoint], ...]):
    """(node id, address of its controller listener) pairs."""

    __slots__ = ()


def _voters(text: str) -> Voters:
    voters = []
    for word in text.split(","):
        node_id, separator, address = word.strip().partition("@")
        if not separator or not node_id.isdigit():
            raise ValueError("NODE@HOST:PORT,... is expected")
        voters.append((int(node_id), parse_endpoint(address)))
    if len({node_id for node_id, _ in voters}) < len(voters):
        raise ValueError("a node is there twice")
    return Voters(voters)


def _roles(text: str) -> frozenset[str]:
    roles = frozenset(word.strip() for word in text.split(",") if word.strip())
    if not roles <= {"broker", "controller"} or "broker" not in roles:
        raise ValueError("broker, or broker,controller is expected")
    return roles


T = TypeVar("T")


_NO_HOSTS: Final[tuple[str, ...]] = ()


def _host_names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, (name.strip() for name in text.split(","))))
    ServedHosts(more=names)
    return names


def _metrics_access(text: str) -> str:
    if text not in ("token", "public"):
        raise ValueError("token or public is expected")
    return text


def _setting(name: str, default: T, parse: Callable[[str], T], *, low: int | None = None) -> Any:
    return field(default=default, metadata={"property": name, "parse": parse, "low": low})


def _may_meet(told: Endpoint, listens: Endpoint) -> bool:
    """Return whether who connects to `told` may find a listener there, without asking a name."""
    if listens.port and told.port != listens.port:
        return False
    try:
        addresses = ip_address(told.host), ip_address(listens.host)
    except ValueError:
        return True  # a name, or all addresses of this machine
    return addresses[0] == addresses[1] or addresses[1].is_unspecified


@dataclass(frozen=True)
class BrokerConfig:
    """The settings of one broker; see `from_properties`."""

    #: Id of this node, also set by `broker.id`. aiokafka's own test suite requires 0.
    node_id: int = _setting("node.id", 0, int, low=0)
    listeners: tuple[ListenerConfig, ...] = DEFAULT_LISTENERS
    log_dir: Path = _setting("log.dirs", Path("data/broker/0/logs"), Path)  # noqa: RUF009
    num_partitions: int = _setting("num.partitions", 1, int, low=1)
    auto_create_topics: bool = _setting("auto.create.topics.enable", True, _boolean)
    delete_topics: bool = _setting("delete.topic.enable", True, _boolean)

    socket_request_max_bytes: int = _setting(
        "socket.request.max.bytes", 100 * 1024 * 1024, int, low=1
    )
    #: Largest request in bytes before a client of a SASL listener has logged in.
    sasl_server_max_receive_bytes: int = _setting(
        "sasl.server.max.receive.size", 512 * 1024, int, low=1
    )
    #: Milliseconds between checks for changed certificate files. Not a property of Kafka, which is
    #: told about changes.
    ssl_store_check_interval_ms: int = _setting("ssl.store.check.interval.ms", 10_000, int, low=10)
    #: Limit in bytes of all requests, over all connections, that have not arrived completely.
    #: Kafka has no limit by default.
    queued_max_request_bytes: int = _setting(
        "queued.max.request.bytes", 128 * 1024 * 1024, int, low=1024
    )
    connections_max_idle_ms: int = _setting("connections.max.idle.ms", 10 * _MINUTE_MS, int, low=1)
    #: Kafka has no limit by default; this one keeps file descriptors free for segments.
    max_connections: int = _setting("max.connections", 4096, int, low=1)
    max_connections_per_ip: int = _setting("max.connections.per.ip", 2**31 - 1, int, low=0)
    max_connections_per_ip_overrides: IpOverrides = _setting(  # noqa: RUF009
        "max.connections.per.ip.overrides", IpOverrides(), _overrides
    )
    #: New connections per second.
    max_connection_creation_rate: int = _setting(
        "max.connection.creation.rate", 2**31 - 1, int, low=1
    )
    #: Not a property of Kafka: time in ms for TLS, login and the first request.
    connection_setup_timeout_ms: int = _setting("connection.setup.timeout.ms", 30_000, int, low=1)
    #: Delay in ms of the response to a wrong password.
    failed_authentication_delay_ms: int = _setting(
        "connection.failed.authentication.delay.ms", 100, int, low=0
    )
    authorizer: str | None = _setting("authorizer.class.name", None, _authorizer)
    super_users: frozenset[Principal] = _setting("super.users", NO_PRINCIPALS, _super_users)
    allow_everyone_if_no_acl_found: bool = _setting(
        "allow.everyone.if.no.acl.found", False, _boolean
    )
    quota_window_num: int = _setting("quota.window.num", 11, int, low=1)
    quota_window_size_seconds: int = _setting("quota.window.size.seconds", 1, int, low=1)
    #: Not a property of Kafka: address where Prometheus fetches the metrics; None disables it.
    metrics_listener: Endpoint | None = _setting(  # noqa: RUF009
        "metrics.listener", None, parse_endpoint
    )
    #: Not a property of Kafka: host names for metrics requests, beside the machine's own names and
    #: addresses.
    metrics_hosts: tuple[str, ...] = _setting("metrics.hosts", _NO_HOSTS, _host_names)
    #: Not a property of Kafka: file with the token for metrics requests; None is `metrics.token`
    #: in log.dirs. A missing file is created.
    metrics_token_file: Path | None = _setting("metrics.token.file", None, Path)  # noqa: RUF009
    #: Not a property of Kafka: with `public`, metrics need no token.
    metrics_access: str = _setting("metrics.access", "token", _metrics_access)
    fetch_max_bytes: int = _setting("fetch.max.bytes", 55 * 1024 * 1024, int, low=1024)
    fetch_session_slots: int = _setting(
        "max.incremental.fetch.session.cache.slots", 1000, int, low=0
    )
    #: Requests of a connection that may wait for their responses before it is not read any more.
    queued_max_requests: int = _setting("queued.max.requests", 500, int, low=1)

    flush_scheduler_interval_ms: int = _setting(
        "log.flush.scheduler.interval.ms", 1000, int, low=10
    )
    retention_check_interval_ms: int = _setting(
        "log.retention.check.interval.ms", 5 * _MINUTE_MS, int, low=10
    )
    cleaner_enable: bool = _setting("log.cleaner.enable", True, _boolean)
    cleaner_backoff_ms: int = _setting("log.cleaner.backoff.ms", 15_000, int, low=10)

    #: Kafka has 50. A single broker does not share its groups with others, and every partition
    #: costs a directory and file descriptors.
    offsets_topic_partitions: int = _setting("offsets.topic.num.partitions", 4, int, low=1)
    offsets_topic_segment_bytes: int = _setting(
        "offsets.topic.segment.bytes", 100 * 1024 * 1024, int, low=1024
    )
    offsets_retention_minutes: int = _setting("offsets.retention.minutes", 7 * 24 * 60, int, low=1)
    offsets_retention_check_interval_ms: int = _setting(
        "offsets.retention.check.interval.ms", 10 * _MINUTE_MS, int, low=10
    )
    offset_metadata_max_bytes: int = _setting("offset.metadata.max.bytes", 4096, int, low=0)
    group_initial_rebalance_delay_ms: int = _setting(
        "group.initial.rebalance.delay.ms", 3000, int, low=0
    )
    group_min_session_timeout_ms: int = _setting("group.min.session.timeout.ms", 6000, int, low=1)
    group_max_session_timeout_ms: int = _setting(
        "group.max.session.timeout.ms", 30 * _MINUTE_MS, int, low=1
    )
    group_max_size: int = _setting("group.max.size", 2**31 - 1, int, low=1)

    group_consumer_session_timeout_ms: int = _setting(
        "group.consumer.session.timeout.ms", 45_000, int, low=1
    )
    group_consumer_heartbeat_interval_ms: int = _setting(
        "group.consumer.heartbeat.interval.ms", 5_000, int, low=1
    )
    group_consumer_max_size: int = _setting("group.consumer.max.size", 2**31 - 1, int, low=1)
    #: True if groups with members may change to the consumer protocol, and back.
    group_consumer_migration_policy: MigrationPolicy = _setting(  # noqa: RUF009
        "group.consumer.migration.policy", MigrationPolicy.BIDIRECTIONAL, _migration_policy
    )

    group_share_session_timeout_ms: int = _setting(
        "group.share.session.timeout.ms", 45_000, int, low=1
    )
    group_share_heartbeat_interval_ms: int = _setting(
        "group.share.heartbeat.interval.ms", 5_000, int, low=1
    )
    group_share_max_size: int = _setting("group.share.max.size", 200, int, low=1)
    group_share_sessions_max: int = _setting("group.share.max.share.sessions", 2_000, int, low=1)
    group_share_record_lock_ms: int = _setting(
        "group.share.record.lock.duration.ms", 30_000, int, low=1000
    )
    group_share_min_record_lock_ms: int = _setting(
        "group.share.min.record.lock.duration.ms", 15_000, int, low=1000
    )
    group_share_max_record_lock_ms: int = _setting(
        "group.share.max.record.lock.duration.ms", 60_000, int, low=1000
    )
    group_share_deliveries_max: int = _setting("group.share.delivery.count.limit", 5, int, low=2)
    group_share_record_locks_max: int = _setting(
        "group.share.partition.max.record.locks", 2_000, int, low=100
    )
    #: Kafka has 50; see offsets.topic.num.partitions.
    share_state_topic_partitions: int = _setting(
        "share.coordinator.state.topic.num.partitions", 4, int, low=1
    )
    share_state_topic_replication_factor: int = _setting(
        "share.coordinator.state.topic.replication.factor", 3, int, low=1
    )
    share_state_topic_segment_bytes: int = _setting(
        "share.coordinator.state.topic.segment.bytes", 100 * 1024 * 1024, int, low=1024
    )

    #: Kafka has 50; see offsets.topic.num.partitions.
    transaction_topic_partitions: int = _setting(
        "transaction.state.log.num.partitions", 4, int, low=1
    )
    transaction_topic_segment_bytes: int = _setting(
        "transaction.state.log.segment.bytes", 100 * 1024 * 1024, int, low=1024
    )
    transaction_max_timeout_ms: int = _setting(
        "transaction.max.timeout.ms", 15 * _MINUTE_MS, int, low=1
    )
    transactional_id_expiration_ms: int = _setting(
        "transactional.id.expiration.ms", 7 * 24 * _HOUR_MS, int, low=1
    )
    producer_id_expiration_ms: int = _setting(
        "producer.id.expiration.ms", 24 * _HOUR_MS, int, low=1
    )

    #: Roles of this node; a controller is a voter of the metadata quorum. A node cannot be a
    #: controller only: a broker beside it costs little.
    roles: frozenset[str] = _setting("process.roles", frozenset({"broker"}), _roles)
    #: The nodes that store the metadata; without any, this broker is a cluster of its own.
    #: `quorum` names the voters in either case.
    voters: Voters = _setting("controller.quorum.voters", Voters(), _voters)  # noqa: RUF009
    controller_listener: ListenerConfig | None = None
    #: `ssl.*` properties of connections to controllers; None if they are not encrypted.
    controller_tls: Mapping[str, str] | None = field(default=None, repr=False)
    #: The login of this node at controllers.
    controller_login: SaslCredentials | None = field(default=None, repr=False)
    rack: str | None = _setting("broker.rack", None, str)
    default_replication_factor: int = _setting("default.replication.factor", 1, int, low=1)
    offsets_topic_replication_factor: int = _setting(
        "offsets.topic.replication.factor", 3, int, low=1
    )
    transaction_topic_replication_factor: int = _setting(
        "transaction.state.log.replication.factor", 3, int, low=1
    )
    #: Kafka has 2 s and 9 s. A broker that was killed is fenced when its address refuses
    #: connections; these timeouts are for a broker that hangs, or whose machine is gone.
    heartbeat_interval_ms: int = _setting("broker.heartbeat.interval.ms", 500, int, low=10)
    session_timeout_ms: int = _setting("broker.session.timeout.ms", 3000, int, low=100)
    election_timeout_ms: int = _setting("controller.quorum.election.timeout.ms", 1000, int, low=10)
    quorum_fetch_timeout_ms: int = _setting("controller.quorum.fetch.timeout.ms", 2000, int, low=10)
    election_backoff_max_ms: int = _setting(
        "controller.quorum.election.backoff.max.ms", 1000, int, low=0
    )
    auto_leader_rebalance: bool = _setting("auto.leader.rebalance.enable", True, _boolean)
    leader_imbalance_check_interval_seconds: int = _setting(
        "leader.imbalance.check.interval.seconds", 300, int, low=1
    )
    controlled_shutdown: bool = _setting("controlled.shutdown.enable", True, _boolean)
    #: The listener for connections between brokers; None is the first one.
    inter_broker_listener_name: str | None = _setting("inter.broker.listener.name", None, str.upper)
    #: Milliseconds without catching up after which a follower is removed from the ISR.
    replica_lag_time_max_ms: int = _setting("replica.lag.time.max.ms", 30_000, int, low=10)
    replica_fetch_max_bytes: int = _setting("replica.fetch.max.bytes", 1024 * 1024, int, low=1024)
    replica_fetch_response_max_bytes: int = _setting(
        "replica.fetch.response.max.bytes", 10 * 1024 * 1024, int, low=1024
    )
    #: Class that selects the replica for a consumer with a rack; None selects the leader.
    replica_selector: str | None = _setting("replica.selector.class", None, _replica_selector)
    replica_fetch_wait_max_ms: int = _setting("replica.fetch.wait.max.ms", 500, int, low=1)
    replica_fetch_min_bytes: int = _setting("replica.fetch.min.bytes", 1, int, low=1)
    #: Bytes per second of replicas that catch up and are named in a topic's settings (KIP-73).
    leader_replication_throttled_rate: int = _setting(
        "leader.replication.throttled.rate", UNLIMITED, int, low=0
    )
    follower_replication_throttled_rate: int = _setting(
        "follower.replication.throttled.rate", UNLIMITED, int, low=0
    )
    #: Not a property of Kafka: ms for which fast appends are gathered before followers get them.
    replica_fetch_linger_ms: int = _setting("replica.fetch.linger.ms", 10, int, low=0)

    #: Defaults of topics, by topic property ("retention.ms").
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    #: All properties as they were given, for DescribeConfigs.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Warnings about properties that have no effect.
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Read Kafka's properties; those without effect are in `warnings`.

        Raises ConfigError if a value is malformed or out of range, or if a property that matters
        for safety is not supported.
        """
        given = dict(properties)
        warnings = check_names(given, cls._served(), addresses_of(given))
        if "broker.id" in given:
            given.setdefault("node.id", given["broker.id"])
        if "log.dir" in given:
            given.setdefault("log.dirs", given["log.dir"])
        if "," in given.get("log.dirs", ""):
            raise ConfigError("log.dirs: this version keeps its logs in one directory")
        values: dict[str, Any] = {}
        for name, attribute in cls.__dataclass_fields__.items():
            metadata = attribute.metadata
            text = given.get(metadata.get("property", ""))
            if text is None or text == "":
                continue
            try:
                value = metadata["parse"](text)
            except ConfigError as error:
                raise ConfigError(f"{metadata['property']}: {error}") from error
            except ValueError as error:
                why = "a whole number is expected" if metadata["parse"] is int else error
                raise ConfigError(f"{metadata['property']}={text}: {why}") from error
            low = metadata["low"]
            if low is not None and value < low:
                raise ConfigError(f"{metadata['property']}={text}: at least {low} is expected")
            values[name] = value
        config = cls(
            **values,
            listeners=parse_listeners(given),
            controller_listener=parse_controller_listener(given),
            controller_tls=controller_tls(given),
            controller_login=controller_login(given),
            topic_defaults=_topic_defaults(given),
            properties=given,
            warnings=warnings,
        )
        config._check_quorum()
        return config

    @classmethod
    def _served(cls) -> frozenset[str]:
        fields = {each.metadata.get("property") for each in cls.__dataclass_fields__.values()}
        topics = {name for name, _, _ in TOPIC_DEFAULTS}
        return frozenset(filter(None, fields | topics))

    @property
    def is_alone(self) -> bool:
        """Tell whether this broker is a cluster of its own: the only voter and the only replica."""
        return not self.voters

    @property
    def quorum(self) -> Voters:
        """The voters of the metadata quorum; a broker that is alone is the only one."""
        return self.voters or Voters([(self.node_id, self.listeners[0].endpoint)])

    @property
    def is_controller(self) -> bool:
        """Tell whether this node is a voter of the metadata quorum."""
        return self.is_alone or "controller" in self.roles

    @property
    def selects_replicas_by_rack(self) -> bool:
        """Tell whether consumers are directed to replicas in their own rack."""
        return self.replica_selector is not None

    @property
    def broker_principal(self) -> Principal:
        """The principal of this broker's own requests."""
        return min(self.super_users, key=str, default=ANONYMOUS)

    def _check_quorum(self) -> None:
        if not self.voters:
            if self.properties.get("process.roles") and "controller" not in self.roles:
                raise ConfigError(
                    "process.roles=broker without controller.quorum.voters is a broker of no "
                    "cluster; give the voters, or no process.roles for a broker alone"
                )
            # `process.roles=broker,controller` without voters: one node, as in Kafka's quick start.
            return
        if not self.properties.get("node.id"):
            raise ConfigError(
                "node.id is missing: each node of a cluster has one of its own, and those that "
                "vote are named in controller.quorum.voters"
            )
        votes = self.node_id in dict(self.voters)
        if votes != self.is_controller:
            raise ConfigError(
                f"node.id={self.node_id} {'votes' if votes else 'does not vote'} by "
                f"controller.quorum.voters, but process.roles={','.join(sorted(self.roles))}"
            )
        if self.is_controller and self.controller_listener is None:
            raise ConfigError(
                "controller.listener.names: a controller needs one of the listeners for itself"
            )

    def contradictions(self) -> Iterator[str]:
        """Yield what is allowed and can hardly be meant, a line each."""
        voter = dict(self.voters).get(self.node_id)
        if voter is not None and self.controller_listener is not None:
            listens = self.controller_listener.endpoint
            if not _may_meet(voter, listens):
                yield (
                    f"controller.quorum.voters has node {self.node_id} at {voter}, but its "
                    f"listener {self.controller_listener.name} is at {listens}: the other "
                    "controllers do not reach it unless something passes connections on"
                )
        in_sync = self.topic_defaults.get("min.insync.replicas", "")
        if in_sync.isdecimal() and int(in_sync) > self.default_replication_factor:
            yield (
                f"min.insync.replicas={in_sync} is more than default.replication.factor="
                f"{self.default_replication_factor}: new topics take no records with acks=all"
            )

    def describe(self) -> Iterator[tuple[str, str, bool]]:
        """Yield (property, value, whether it was given) for all known properties with a value."""
        for name, attribute in self.__dataclass_fields__.items():
            property_name = attribute.metadata.get("property")
            if property_name is None:
                continue
            given = self.properties.get(property_name)
            value = getattr(self, name)
            if given is None and (value is None or isinstance(value, tuple | frozenset)):
                continue
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield property_name, given if given is not None else text, given is not None
        for name in ("listeners", "listener.security.protocol.map", "local.accounts"):
            if name in self.properties:
                yield name, self.properties[name], True
        # Clients look for it in any case.
        advertised = self.properties.get("advertised.listeners")
        yield (
            "advertised.listeners",
            self.properties.get("listeners", "") if advertised is None else advertised,
            advertised is not None,
        )
        for name, _, _ in TOPIC_DEFAULTS:
            if name in self.properties:
                yield name, self.properties[name], True


def _topic_defaults(given: Mapping[str, str]) -> dict[str, str]:
    defaults: dict[str, str] = {}
    for name, topic_name, factor in TOPIC_DEFAULTS:
        text = given.get(name)
        if not text:
            continue
        if factor is None:
            defaults[topic_name] = text
            continue
        try:
            value = int(text)
        except ValueError as error:
            raise ConfigError(f"{name}={text}: a whole number is expected") from error
        # -1 means "no limit" and has no unit.
        defaults[topic_name] = str(value if value < 0 else min(value * factor, _LONG_MAX))
    return defaults
