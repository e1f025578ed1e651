"""Creates the topics in which workers keep what they share, or checks those that are there."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from consumers.connect.configuration.exceptions import ConfigException
from waylog.kafka.errors import error_text

logger = logging.getLogger(__name__)

_REQUEST_S: Final = 30.0
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"


class InternalTopic(NamedTuple):
    """A topic of the workers."""

    name: str
    property: str  # of the worker, which names it
    purpose: str
    partitions: int  # -1: as the brokers say
    replication_factor: int  # -1: as the brokers say
    settings: Mapping[str, str]
    has_one_partition: bool = False


def ensure_internal_topics(admin: Mapping[str, Any], topics: Sequence[InternalTopic]) -> None:
    """Create those that are missing; `admin` has the properties of an admin client.

    Raises ConfigException for a topic that cannot serve, KafkaException.
    """
    client = AdminClient(dict(admin))
    existing = client.list_topics(timeout=_REQUEST_S).topics
    for topic in topics:
        found = existing.get(topic.name)
        if found is None or found.error is not None:
            _create(client, topic)
            continue
        if topic.has_one_partition and len(found.partitions) > 1:
            raise ConfigException(
                f"Topic '{topic.name}' supplied via the '{topic.property}' property is required to "
                f"have a single partition in order to guarantee consistency of {topic.purpose}, "
                f"but found {len(found.partitions)} partitions."
            )
        _check_policy(client, topic)


def _create(client: AdminClient, topic: InternalTopic) -> None:
    new = NewTopic(
        topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        config={**topic.settings, _POLICY: _COMPACT},
    )
    try:
        client.create_topics([new], request_timeout=_REQUEST_S)[topic.name].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            _check_policy(client, topic)  # another worker was quicker, or somebody else
            return
        raise ConfigException(
            f"Topic '{topic.name}' of property '{topic.property}' cannot be created with "
            f"replication factor {topic.replication_factor}: {error_text(error)}"
        ) from error
    logger.info("created topic %s for %s", topic.name, topic.purpose)


def _check_policy(client: AdminClient, topic: InternalTopic) -> None:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic.name)
    try:
        answers = client.describe_configs([resource], request_timeout=_REQUEST_S)
        found = answers[resource].result()[_POLICY].value
    except KafkaException as error:
        logger.warning("topic %s: its settings are not told: %s", topic.name, error_text(error))
        return
    if {each.strip() for each in str(found).split(",")} != {_COMPACT}:
        raise ConfigException(
            f"Topic '{topic.name}' supplied via the '{topic.property}' property is required to "
            f"have '{_POLICY}={_COMPACT}' to guarantee consistency and durability of "
            f"{topic.purpose}, but found the topic currently has '{_POLICY}={found}'. Continuing "
            f"would likely result in eventually losing {topic.purpose} and problems restarting "
            f"this Connect cluster in the future. Change the '{topic.property}' property in the "
            f"Connect worker configurations to use a topic with '{_POLICY}={_COMPACT}'."
        )
