"""Broker settings read from properties."""

from __future__ import annotations

import os

import pytest

from broker_core.configuration.config import BrokerConfig
from waylog.config import ConfigError, Endpoint


def test_without_properties_the_defaults_are_kafkas() -> None:
    config = BrokerConfig.from_properties({})
    assert config.node_id == 0
    assert [each.endpoint for each in config.listeners] == [Endpoint("127.0.0.1", 9092)]
    assert config.auto_create_topics
    assert config.group_initial_rebalance_delay_ms == 3000
    assert config.topic_defaults == {}


def test_the_properties_that_waylog_up_writes_are_understood() -> None:
    config = BrokerConfig.from_properties(
        {
            "node.id": "3",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": "PLAINTEXT://host.example:9092",
            "log.dirs": "/var/logs",
            "auto.create.topics.enable": "false",
            "log.flush.interval.messages": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
    )
    assert config.node_id == 3
    assert config.listeners[0].advertised == Endpoint("host.example", 9092)
    assert str(config.log_dir) == "/var/logs"
    assert not config.auto_create_topics
    assert config.topic_defaults == {"flush.messages": "1"}


def test_broker_id_is_the_old_name_of_node_id() -> None:
    assert BrokerConfig.from_properties({"broker.id": "7"}).node_id == 7


def test_the_finest_unit_of_the_retention_wins() -> None:
    config = BrokerConfig.from_properties(
        {"log.retention.ms": "5", "log.retention.hours": "1", "log.retention.minutes": "2"}
    )
    assert config.topic_defaults == {"retention.ms": "5"}
    assert BrokerConfig.from_properties({"log.retention.hours": "1"}).topic_defaults == {
        "retention.ms": "3600000"
    }
    assert BrokerConfig.from_properties({"log.retention.hours": "-1"}).topic_defaults == {
        "retention.ms": "-1"
    }


#: The settings in Kafka 4's own config/server.properties.
STOCK = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


def test_voters_that_are_known_by_address_alone_are_refused_and_not_passed_over() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers=localhost:9093.*quorum\.voters="):
        BrokerConfig.from_properties(STOCK)


def test_kafkas_own_file_with_voters_is_understood_and_what_has_no_effect_is_named() -> None:
    config = BrokerConfig.from_properties(STOCK | {"controller.quorum.voters": "1@localhost:9093"})
    (warning,) = config.warnings
    assert warning.startswith("of no effect here: ")
    assert "num.io.threads" in warning
    assert "transaction.state.log.min.isr" in warning


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("proces.roles", "process.roles"),
        ("node_id", "node.id"),
        ("controller.quorum.voter", "controller.quorum.voters"),
        ("controler.listener.names", "controller.listener.names"),
        ("listener", "listeners"),
        ("advertised.listener", "advertised.listeners"),
        ("min.insync.replica", "min.insync.replicas"),
        ("default.replication.factors", "default.replication.factor"),
        ("ssl.client.autth", "ssl.client.auth"),
        ("listener.name.plaintext.ssl.client.atuh", "ssl.client.auth"),
        ("super.user", "super.users"),
        ("authorizer.class", "authorizer.class.name"),
        ("local.account", "local.accounts"),
        ("locals.accounts", "local.accounts"),
        ("listener.name.plaintext.local_accounts", "local.accounts"),
    ],
)
def test_a_misspelt_name_on_which_safety_hangs_is_refused(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}: .*did you mean {meant}\?"):
        BrokerConfig.from_properties({name: "1"})


def test_another_misspelt_name_is_a_warning_with_the_name_that_was_meant() -> None:
    config = BrokerConfig.from_properties({"log.retention.hour": "3", "colour": "red"})
    assert config.warnings == (
        "unknown, passed over: colour, log.retention.hour (did you mean log.retention.hours?)",
    )


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"zookeeper.connect": "zoo:2181"}, "controller.quorum.voters"),
        ({"process.roles": "broker"}, "without controller.quorum.voters"),
        ({"controller.quorum.auto.join.enable": "true"}, "voters do not change"),
        ({"security.inter.broker.protocol": "SSL"}, "inter.broker.listener.name"),
        ({"principal.builder.class": "org.example.Mine"}, "DefaultKafkaPrincipalBuilder"),
        ({"listener.name.clients.ssl.client.auth": "required"}, "no listener CLIENTS"),
    ],
)
def test_what_would_silently_be_another_cluster_or_less_safe_is_refused(
    properties: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_properties(properties)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("node.id", "-1", "at least 0"),
        ("node.id", "x", "node.id=x"),
        ("listeners", "OUTSIDE://127.0.0.1:9092", "security.protocol.map"),
        ("listeners", "PLAINTEXT://:9092", "advertised.listeners"),
        ("listeners", "SASL_PLAINTEXT://127.0.0.1:9092", "sasl.enabled.mechanisms"),
        ("advertised.listeners", "SSL://host:1", "not one of the listeners"),
        ("super.users", "admin", "User:NAME"),
        ("authorizer.class.name", "my.Own", "StandardAuthorizer"),
        ("max.connections.per.ip.overrides", "1.2.3.4", "ADDRESS:COUNT"),
        ("listeners", "127.0.0.1", "listeners"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.retention.ms", "soon", "log.retention.ms=soon"),
        ("log.dirs", "/a,/b", "one directory"),
        ("max.connections", "0", "at least 1"),
        ("local.accounts", "no-such-account", "of listener PLAINTEXT: .*no account no-such-acc"),
        ("local.accounts", "self,all", "stands alone"),
        ("listener.name.plaintext.local.accounts", "4294967295", "not a uid"),
        ("listener.name.inside.local.accounts", "self", "no listener INSIDE"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_properties({name: value})


def test_what_is_described_says_what_was_given() -> None:
    described = {
        name: (value, given)
        for name, value, given in BrokerConfig.from_properties(
            {"num.partitions": "4", "log.retention.hours": "2"}
        ).describe()
    }
    assert described["num.partitions"] == ("4", True)
    assert described["auto.create.topics.enable"] == ("true", False)
    assert described["log.retention.hours"] == ("2", True)


def test_local_accounts_hold_for_each_listener_unless_it_has_its_own() -> None:
    config = BrokerConfig.from_properties(
        STOCK
        | {
            "controller.quorum.voters": "1@localhost:9093",
            "local.accounts": "4711",
            "listener.name.controller.local.accounts": "self",
        }
    )
    (clients,) = config.listeners
    assert clients.local_accounts == frozenset({0, os.geteuid(), 4711})
    assert config.controller_listener is not None
    assert config.controller_listener.local_accounts == frozenset({0, os.geteuid()})
    assert ("local.accounts", "4711", True) in set(config.describe())
    (everybodys,) = BrokerConfig.from_properties({}).listeners
    assert everybodys.local_accounts is None


_MEMBER = {
    "node.id": "2",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://10.0.0.2:9093",
    "advertised.listeners": "PLAINTEXT://10.0.0.2:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@10.0.0.1:9093,2@10.0.0.2:9093,3@10.0.0.3:9093",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


def test_a_node_of_a_cluster_without_an_id_is_told_so() -> None:
    nameless = {name: value for name, value in _MEMBER.items() if name != "node.id"}
    with pytest.raises(ConfigError, match=r"^node\.id is missing: each node of a cluster"):
        BrokerConfig.from_properties(nameless)


def test_a_controller_without_a_listener_of_its_own_is_told_so() -> None:
    without = {"listeners": "PLAINTEXT://:9092", "controller.listener.names": ""}
    with pytest.raises(ConfigError, match=r"^controller\.listener\.names: a controller needs"):
        BrokerConfig.from_properties(_MEMBER | without)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"controller.quorum.voters": "1@10.0.0.1:9093,2@kafka2:9093,3@10.0.0.3:9093"}, ""),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, ""),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://0.0.0.0:9093"}, ""),
        (
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://10.0.0.2:9094"},
            "has node 2 at 10.0.0.2:9093, but its listener CONTROLLER is at 10.0.0.2:9094",
        ),
        (
            {"listeners": "PLAINTEXT://:9092,CONTROLLER://10.0.0.7:9093"},
            "has node 2 at 10.0.0.2:9093, but its listener CONTROLLER is at 10.0.0.7:9093",
        ),
        ({"min.insync.replicas": "3"}, ""),
        (
            {"min.insync.replicas": "4"},
            "min.insync.replicas=4 is more than default.replication.factor=3: new topics take no",
        ),
    ],
)
def test_what_can_hardly_be_meant_is_warned_of(changed: dict[str, str], said: str) -> None:
    warned = list(BrokerConfig.from_properties(_MEMBER | changed).contradictions())
    assert len(warned) == bool(said)
    assert all(said in each for each in warned)
