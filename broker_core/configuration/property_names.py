"""The names in a broker's property file: supported, not supported, or misspelt.

Kafka ignores a name that it does not know. A misspelt voter, listener or permission is dangerous,
though: the broker does not start if a name that matters for safety is wrong. Any other wrong name
only gives a warning.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from waylog.config import ConfigError

#: Without these a node may join another cluster, take another identity, or be open to others.
SAFETY: Final = frozenset(
    {
        "advertised.listeners",
        "allow.everyone.if.no.acl.found",
        "authorizer.class.name",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.voters",
        "default.replication.factor",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "local.accounts",
        "log.dir",
        "log.dirs",
        "log.flush.interval.messages",
        "min.insync.replicas",
        "node.id",
        "offsets.topic.replication.factor",
        "process.roles",
        "sasl.enabled.mechanisms",
        "share.coordinator.state.topic.replication.factor",
        "ssl.client.auth",
        "ssl.principal.mapping.rules",
        "super.users",
        "transaction.state.log.replication.factor",
        "unclean.leader.election.enable",
    }
)

#: Properties of listeners; the others are fields of BrokerConfig.
OF_LISTENERS: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "connections.max.reauth.ms",
        "controller.listener.names",
        "listener.security.protocol.map",
        "listeners",
        "local.accounts",
        "log.dir",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.principal.mapping.rules",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
_SERVED_PREFIXES: Final = ("plain.", "scram-", "oauthbearer.", "sasl.oauthbearer.")

#: Prefixes of Kafka's properties that only concern its own threads, buffers and Java.
_KAFKAS_PREFIXES: Final = (
    "controlled.shutdown.", "controller.quorum.", "controller.socket.", "delegation.token.",
    "group.coordinator.", "group.streams.", "kafka.metrics.", "log.cleaner.", "log.flush.",
    "metadata.", "metric.", "metrics.", "num.", "offsets.", "password.encoder.", "producer.id.",
    "remote.log.", "replica.", "replication.quota.", "sasl.kerberos.", "sasl.login.",
    "sasl.server.", "sasl.client.", "share.coordinator.", "socket.", "ssl.allow.",
    "transaction.", "transaction.state.log.", "unstable.",
)  # fmt: skip
_KAFKAS: Final = frozenset(
    {
        "alter.config.policy.class.name", "auto.include.jmx.reporter", "background.threads",
        "broker.id.generation.enable", "client.quota.callback.class",
        "controller.quota.window.num", "controller.quota.window.size.seconds",
        "create.topic.policy.class.name", "early.start.listeners",
        "initial.broker.registration.timeout.ms", "inter.broker.protocol.version",
        "internal.topic.id.enable", "leader.imbalance.per.broker.percentage",
        "log.dir.failure.timeout.ms", "log.initial.task.delay.ms", "log.local.retention.bytes",
        "log.local.retention.ms", "log.message.downconversion.enable",
        "log.message.format.version", "log.message.timestamp.difference.max.ms",
        "max.request.partition.size.limit", "principal.builder.class", "request.timeout.ms",
        "reserved.broker.max.id", "security.inter.broker.protocol", "security.providers",
        "server.max.startup.time.ms", "ssl.engine.factory.class",
        "ssl.keymanager.algorithm", "ssl.keystore.password", "ssl.protocol", "ssl.provider",
        "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
        "ssl.truststore.password", "telemetry.max.bytes", "zookeeper.connect",
    }
)  # fmt: skip

_BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
_VOTERS: Final = "controller.quorum.voters"
_DEFAULT_BUILDER: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)
_CLOSE: Final = 0.86


def check_names(
    given: Mapping[str, str], served: Collection[str], listeners: Iterable[str]
) -> tuple[str, ...]:
    """Check all names; return a warning for each kind of name that has no effect.

    `served` are the supported properties besides those of listeners; `listeners` are the names of
    the listeners. Raises ConfigError if a name that matters for safety is misspelt or unsupported.
    """
    _check_unserved(given)
    known = OF_LISTENERS | set(served)
    names = {name.lower() for name in listeners}
    unserved: list[str] = []
    unknown: list[str] = []
    for name in given:
        inner = name
        if name.lower().startswith("listener.name."):
            listener, _, inner = name[len("listener.name.") :].partition(".")
            if listener.lower() not in names:
                raise ConfigError(
                    f"{name}: there is no listener {listener.upper()}, only "
                    f"{', '.join(sorted(names)).upper()}"
                )
        if inner in known or inner.startswith(_SERVED_PREFIXES):
            continue
        close = difflib.get_close_matches(inner.lower().replace("_", "."), known, 1, _CLOSE)
        if inner in _KAFKAS or (not close and inner.startswith(_KAFKAS_PREFIXES)):
            unserved.append(name)
        elif close and close[0] in SAFETY:
            raise ConfigError(f"{name}: there is no such property; did you mean {close[0]}?")
        else:
            unknown.append(name + (f" (did you mean {close[0]}?)" if close else ""))
    warnings = []
    if unserved:
        warnings.append(f"of no effect here: {', '.join(sorted(unserved))}")
    if unknown:
        warnings.append(f"unknown, passed over: {', '.join(sorted(unknown))}")
    return tuple(warnings)


def _check_unserved(given: Mapping[str, str]) -> None:
    """Raise ConfigError for settings of Kafka that are not supported and must not be ignored."""
    if given.get(_BOOTSTRAP) and not given.get(_VOTERS):
        raise ConfigError(
            f"{_BOOTSTRAP}={given[_BOOTSTRAP]}: the voters have to be known from the start; give "
            f"{_VOTERS}=NODE@HOST:PORT,... with the node.id of each, the same at all nodes"
        )
    if given.get("controller.quorum.auto.join.enable", "").lower() == "true":
        raise ConfigError(
            f"controller.quorum.auto.join.enable=true: voters do not change; give {_VOTERS}"
        )
    if given.get("zookeeper.connect"):
        raise ConfigError(
            f"zookeeper.connect: there is no ZooKeeper here; give {_VOTERS} for a cluster, or "
            "nothing for a broker alone"
        )
    if given.get("security.inter.broker.protocol") and not given.get("inter.broker.listener.name"):
        raise ConfigError(
            "security.inter.broker.protocol is not served; name the listener between brokers with "
            "inter.broker.listener.name"
        )
    if given.get("principal.builder.class", _DEFAULT_BUILDER) != _DEFAULT_BUILDER:
        raise ConfigError(f"principal.builder.class: only {_DEFAULT_BUILDER} is served")
