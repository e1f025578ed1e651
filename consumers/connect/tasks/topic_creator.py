"""Creates the topics of source connectors that say how (KIP-158)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from consumers.connect.configuration.topic_creation import TopicCreation
from consumers.connect.data.exceptions import ConnectException, RetriableException
from waylog.kafka.errors import error_text

logger = logging.getLogger(__name__)

_REQUEST_S: Final = 30.0
#: Errors of a cluster that is away for a while.
_PASSING: Final = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_CONTROLLER,
    KafkaError.BROKER_NOT_AVAILABLE,
)


class TopicCreator:
    """Creates each topic before the first record for it, unless it exists."""

    def __init__(self, creation: TopicCreation, admin: Mapping[str, Any]) -> None:
        """`admin` has the properties of an admin client."""
        self._creation: Final = creation
        self._properties: Final = admin
        self._admin: AdminClient | None = None
        self._known: Final[set[str]] = set()

    def ensure(self, topic: str) -> None:
        """Create the topic if it is missing and the connector says how.

        Raises RetriableException while the cluster is away, ConnectException if it refuses.
        """
        if topic in self._known:
            return
        new = self._creation.of(topic)
        if new is not None:
            try:
                self._create(
                    NewTopic(
                        topic,
                        num_partitions=new.partitions,
                        replication_factor=new.replication_factor,
                        config=new.settings,
                    )
                )
            except KafkaException as error:
                text = f"Task failed to create new topic {topic}: {error_text(error)}"
                if error.args[0].code() in _PASSING:
                    raise RetriableException(text) from error
                raise ConnectException(
                    f"{text}. Ensure that the task is authorized to create topics or that the "
                    "topic exists and restart the task"
                ) from error
        self._known.add(topic)

    def _create(self, new: NewTopic) -> None:
        if self._admin is None:
            self._admin = AdminClient(dict(self._properties))
        found = self._admin.list_topics(timeout=_REQUEST_S).topics.get(new.topic)
        if found is not None and found.error is None:
            return
        try:
            self._admin.create_topics([new], request_timeout=_REQUEST_S)[new.topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        logger.info("created topic %s", new.topic)
