"""The identity of a topic, and the offsets that the log holds of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    OffsetSpec,
)

from waylog.kafka.clients import LogUnreachable, client_config
from waylog.kafka.errors import error_text

_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class TopicExtent:
    """The offset of the first record of each partition of a topic, and the one after the last."""

    #: Identifies cluster and topic; a topic that is created again under the name has another.
    identity: str
    first: Mapping[int, int]
    end: Mapping[int, int]


def topic_extent(bootstrap_servers: str, client_id: str, topic: str) -> TopicExtent:
    """Ask the log; blocks for some seconds at most. Raises LogUnreachable."""
    admin = AdminClient(client_config(bootstrap_servers, client_id))
    try:
        metadata = admin.list_topics(topic, timeout=_TIMEOUT_S)
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)[
            topic
        ].result(_TIMEOUT_S)
        partitions = [each.id for each in described.partitions]
        if not partitions:
            raise LogUnreachable(f"topic {topic} has no partitions yet")
        first, end = (
            {
                place.partition: future.result(_TIMEOUT_S).offset
                for place, future in admin.list_offsets(
                    {TopicPartition(topic, each): which for each in partitions},
                    request_timeout=_TIMEOUT_S,
                ).items()
            }
            for which in (
                OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
                OffsetSpec.latest(),  # type: ignore[no-untyped-call]
            )
        )
    except (KafkaException, TimeoutError) as error:
        missing = (
            isinstance(error, KafkaException)
            and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        )
        hint = "; `waylog topics ensure` creates the platform's topics" if missing else ""
        raise LogUnreachable(f"topic {topic}: {error_text(error)}{hint}") from error
    return TopicExtent(f"{metadata.cluster_id} {described.topic_id}", first, end)


def offsets_at(bootstrap_servers: str, client_id: str, topic: str, time_ms: int) -> dict[int, int]:
    """Return the first offset of a time or later, of each partition that has one.

    Blocks for some seconds at most. Raises LogUnreachable.
    """
    admin = AdminClient(client_config(bootstrap_servers, client_id))
    try:
        partitions = admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic].partitions
        which = OffsetSpec.for_timestamp(time_ms)
        asked = admin.list_offsets(
            {TopicPartition(topic, each): which for each in partitions}, request_timeout=_TIMEOUT_S
        )
        found = {
            place.partition: future.result(_TIMEOUT_S).offset for place, future in asked.items()
        }
    except (KafkaException, TimeoutError) as error:
        raise LogUnreachable(f"topic {topic}: {error_text(error)}") from error
    return {partition: offset for partition, offset in found.items() if offset >= 0}
