"""Access to the log: its brokers, and as whom clients log in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient, TopicMetadata  # type: ignore[attr-defined]

from waylog.cli import CommandError
from waylog.kafka.clients import LogUnreachable, consumer_config
from waylog.kafka.errors import error_text
from waylog.kafka.reach import connect_admin

#: Seconds for metadata, which any broker knows.
TIMEOUT_S: Final = 10.0


class LogAway(CommandError):
    """The log, or a part of it that is needed, does not answer now."""


class NotInLog(CommandError):
    """There is no such topic, partition, group or record."""


@dataclass(frozen=True)
class LogAccess:
    """The brokers, and the properties with which clients log in beside the environment's."""

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict)
    client_id: str = "waylog-console"

    def connect(self) -> AdminClient:
        """Return an admin client of a cluster that answers.

        Raises LogAway if no broker answers, ConfigError for unknown client properties.
        """
        try:
            return connect_admin(self.bootstrap_servers, self.properties, self.client_id)
        except LogUnreachable as error:
            raise LogAway(str(error)) from None

    def open_consumer(self, group: str | None = None, **more: Any) -> Consumer:
        """Return a consumer; `more` are its properties, with `_` for Kafka's dots."""
        options = consumer_config(
            self.bootstrap_servers, self.client_id, group or self.client_id, **more
        )
        return Consumer(options | dict(self.properties))


def partitions_of(client: Any, topic: str) -> list[int]:
    """Return the numbers of a topic's partitions; raises NotInLog if there is no topic."""
    return sorted(topic_metadata(client, topic).partitions)


def topic_metadata(client: Any, topic: str) -> TopicMetadata:
    """Return the metadata of a topic; raises NotInLog if there is none."""
    metadata: TopicMetadata = client.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if metadata.error is not None:
        raise NotInLog(f"topic {topic}: {error_text(KafkaException(metadata.error))}")
    return metadata
