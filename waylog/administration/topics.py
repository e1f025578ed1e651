"""Topics of any Kafka: creating, changing and deleting them, their settings, and who owns them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from waylog.administration.answers import result_of
from waylog.administration.cluster_admin import REQUEST_S
from waylog.administration.log_access import LogAccess, partitions_of
from waylog.cli import CommandError
from waylog.kafka.topics import (
    DEAD_LETTER_REPLAY_TOPIC,
    FORWARDING_TOPICS,
    FRIENDSHIP_TOPIC,
    GEOFENCE_TOPIC,
    HEAT_MAP_TOPIC,
    TOPICS,
    TRIP_TOPICS,
    VALUE_KEY_TOPIC,
)

#: What the platform keeps; without one of them a part of it stops, or forgets.
PLATFORM_TOPICS: Final = frozenset(
    topic.name
    for topic in (
        *(*TOPICS, *TRIP_TOPICS, *FORWARDING_TOPICS),
        *(DEAD_LETTER_REPLAY_TOPIC, VALUE_KEY_TOPIC, GEOFENCE_TOPIC, HEAT_MAP_TOPIC),
        FRIENDSHIP_TOPIC,
    )
)


def owner_of_topic(name: str) -> str:
    """Return whose a topic is: `kafka` (its own), `platform`, or `other`."""
    # Kafka's own, as __consumer_offsets, and those of a registry or of Connect, as _schemas.
    if name.startswith("_"):
        return "kafka"
    return "platform" if name in PLATFORM_TOPICS else "other"


def topic_settings(access: LogAccess, admin: AdminClient, topic: str) -> Mapping[str, ConfigEntry]:
    """Return the settings of a topic by name; raises KafkaException and CommandError."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    answers = admin.describe_configs([resource], request_timeout=REQUEST_S)
    found: Mapping[str, ConfigEntry] = result_of(access, answers[resource])
    return found


def create_topics(
    admin: AdminClient,
    names: Iterable[str],
    *,
    partitions: int | None = None,
    replication_factor: int = -1,
    settings: Mapping[str, str] | None = None,
    is_dry: bool = False,
) -> Mapping[str, Future[None]]:
    """Create topics, or ask whether they could be; None and -1 stand for the broker's defaults."""
    wanted = [
        NewTopic(
            name,
            num_partitions=partitions or -1,
            replication_factor=replication_factor,
            config=dict(settings or {}),
        )
        for name in names
    ]
    answers: Mapping[str, Future[None]] = admin.create_topics(
        wanted, validate_only=is_dry, request_timeout=REQUEST_S
    )
    return answers


def alter_topic(
    access: LogAccess,
    admin: AdminClient,
    topic: str,
    *,
    settings: Mapping[str, str],
    defaults: Sequence[str] = (),
    partitions: int | None = None,
    is_dry: bool = False,
) -> None:
    """Change settings, take others back to the broker's `defaults`, add partitions.

    Raises KafkaException, and CommandError for a topic or a setting that there is not.
    """
    partitions_of(admin, topic)
    if defaults:
        known = topic_settings(access, admin, topic)
        for name in defaults:
            if name not in known:
                raise CommandError(f"unknown topic setting {name}")
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ] + [
        ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in defaults
    ]
    if changes:
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        answers = admin.incremental_alter_configs(
            [resource], validate_only=is_dry, request_timeout=REQUEST_S
        )
        result_of(access, answers[resource])
    if partitions is not None:
        grown = admin.create_partitions(
            [NewPartitions(topic, partitions)], validate_only=is_dry, request_timeout=REQUEST_S
        )
        result_of(access, grown[topic])


def delete_topic(access: LogAccess, admin: AdminClient, topic: str) -> None:
    """Delete a topic with its records; raises KafkaException and CommandError."""
    result_of(access, admin.delete_topics([topic], request_timeout=REQUEST_S)[topic])
