"""Readers find what the retention promises, also in topics of an earlier version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from tests.contract.broker_process import BrokerProcess
from waylog.kafka.clients import ensure_topics
from waylog.kafka.topic_settings import missing_settings
from waylog.kafka.topics import LOCATION, PARAMETER, PLACE, TOPICS, Topic, kept_for

DAY_MS = 86_400_000


def settings_of(servers: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": servers})
    described: dict[str, Any] = admin.describe_configs([resource])[resource].result(timeout=60)
    return {name: entry.value for name, entry in described.items()}


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_no_topic_lets_its_segments_roll_by_the_brokers_default(topic: Topic) -> None:
    if "compact" not in topic.config.get("cleanup.policy", ""):
        oldest_ms = int(topic.config["retention.ms"]) + int(topic.config["segment.ms"])
        assert oldest_ms <= 1.05 * int(topic.config["retention.ms"])
    else:
        assert int(topic.config["segment.ms"]) <= DAY_MS
        assert int(topic.config["max.compaction.lag.ms"]) <= DAY_MS


def test_topics_of_an_earlier_version_come_to_todays_promise(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    servers = broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": servers})
        older = [
            NewTopic(LOCATION, 4, config={"retention.ms": str(7 * DAY_MS)}),
            # A setting that somebody has made stays, and segments follow it.
            NewTopic(PARAMETER, 1, config={"retention.ms": "7200000"}),
            NewTopic(PLACE, 4, config={"cleanup.policy": "compact"}),
        ]
        for created in admin.create_topics(older).values():
            created.result(timeout=30)
        ensure_topics(servers)
        location, parameter = settings_of(servers, LOCATION), settings_of(servers, PARAMETER)
        assert location["retention.ms"] == str(7 * DAY_MS)
        assert location["segment.ms"] == str(7 * DAY_MS // 24)
        assert (parameter["retention.ms"], parameter["segment.ms"]) == ("7200000", "300000")
        assert settings_of(servers, PLACE)["max.compaction.lag.ms"] == str(DAY_MS)
    finally:
        broker.stop()


def test_what_somebody_has_set_stays() -> None:
    topic = Topic("t", 1, kept_for(7))
    assert missing_settings(topic, topic.config) == {}
    assert missing_settings(topic, {"segment.ms": "1"}) == {"retention.ms": str(7 * DAY_MS)}
    assert missing_settings(topic, {"retention.ms": "-1"})["segment.ms"] == str(7 * DAY_MS // 24)
