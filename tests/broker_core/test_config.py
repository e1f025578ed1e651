"""Properties in, settings out."""

from __future__ import annotations

import pytest

from broker_core.config import BrokerConfig
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


def test_unknown_properties_are_ignored_as_by_kafka() -> None:
    assert BrokerConfig.from_properties({"process.roles": "broker"}).node_id == 0


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
