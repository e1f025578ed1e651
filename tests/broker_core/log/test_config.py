"""Topic settings under Kafka's names."""

from __future__ import annotations

import pytest

from broker_core.errors import InvalidConfig
from broker_core.log import LogConfig


def test_properties_have_kafkas_names_and_defaults() -> None:
    properties = LogConfig().to_properties()
    assert properties["retention.ms"] == "604800000"
    assert properties["segment.bytes"] == "1073741824"
    assert properties["cleanup.policy"] == "delete"
    assert properties["min.cleanable.dirty.ratio"] == "0.5"
    assert properties["unclean.leader.election.enable"] == "false"
    assert LogConfig.from_properties(properties) == LogConfig()


def test_settings_of_a_topic_go_over_those_of_the_broker() -> None:
    broker = LogConfig(retention_ms=1000, segment_bytes=2000)
    topic = LogConfig.from_properties(
        {"retention.ms": "-1", "cleanup.policy": "compact, delete"}, broker
    )
    assert (topic.retention_ms, topic.segment_bytes) == (-1, 2000)
    assert topic.compacts
    assert topic.deletes
    assert not broker.compacts


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.msec", "1"),
        ("producer.id.expiration.ms", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("segment.bytes", "13"),
        ("segment.bytes", "2147483648"),
        ("cleanup.policy", "shred"),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "FixTime"),
        ("preallocate", "1"),
        ("max.message.bytes", "-1"),
    ],
)
def test_what_kafka_would_refuse_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        LogConfig.from_properties({name: value})


def test_a_topic_without_cleanup_policy_keeps_everything() -> None:
    config = LogConfig.from_properties({"cleanup.policy": ""})
    assert not config.deletes and not config.compacts
