"""Updates the settings of existing topics to those that the platform relies on.

A setting that somebody has made on a topic stays; only settings that the topic takes from its
broker's defaults are set. So an installation of an earlier version gets this version's guarantees.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)

from waylog.kafka.topics import Topic, segment_ms

logger = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_OF_THE_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG


def update_topic_settings(admin: AdminClient, topics: Sequence[Topic]) -> dict[str, dict[str, str]]:
    """Set what existing topics lack; return the settings made, by topic.

    A log that refuses, for example for lack of rights, is left as it is, with a warning.
    """
    resources = {
        ConfigResource(ConfigResource.Type.TOPIC, topic.name): topic
        for topic in topics
        if topic.config
    }
    changed: dict[str, dict[str, str]] = {}
    if not resources:
        return changed
    answers = admin.describe_configs(list(resources), request_timeout=_TIMEOUT_S)
    for resource, future in answers.items():
        topic = resources[resource]
        try:
            missing = missing_settings(topic, _own(future.result()))
            if missing:
                _set(admin, topic.name, missing)
                changed[topic.name] = missing
        except KafkaException as error:
            logger.warning("topic %s keeps its settings: %s", topic.name, error.args[0].str())
    for name, settings in changed.items():
        words = ", ".join(f"{key}={value}" for key, value in settings.items())
        logger.info("topic %s was made by an earlier version: now %s", name, words)
    return changed


def missing_settings(topic: Topic, own: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a topic should have and lacks, given those made on the topic.

    If somebody has chosen another retention, `segment.ms` follows that one.
    """
    wanted = dict(topic.config)
    retention = own.get("retention.ms", "")
    if "segment.ms" in wanted and retention.isdecimal():
        wanted["segment.ms"] = str(min(int(wanted["segment.ms"]), segment_ms(int(retention))))
    return {name: value for name, value in wanted.items() if name not in own}


def _own(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    return {
        name: str(entry.value)
        for name, entry in entries.items()
        if ConfigSource(entry.source) == _OF_THE_TOPIC and entry.value is not None
    }


def _set(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
    admin.incremental_alter_configs([resource], request_timeout=_TIMEOUT_S)[resource].result()
