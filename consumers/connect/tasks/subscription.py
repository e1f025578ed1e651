"""The topics of a sink task: a list, or those that match an expression of Java's."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from consumers.connect.configuration.connector_properties import TOPICS_REGEX, topics_of
from consumers.connect.data.exceptions import ConnectException
from consumers.connect.java.regular_expression import compile_java
from consumers.connect.tasks.client_properties import INTERNAL_TOPICS
from waylog.kafka.errors import error_text
from waylog.topic_names import TOPIC_NAME_RULE, is_topic_name

logger = logging.getLogger(__name__)

#: Seconds between two looks at the cluster's topics, also while none matches.
_LOOK_S: Final = 10.0
_LOOK_EMPTY_S: Final = 1.0
_ASK_S: Final = 2.0


class Subscription:
    """Subscribes a consumer, and looks for new topics that match."""

    def __init__(
        self,
        consumer: Consumer,
        properties: Mapping[str, str],
        subscribe: Callable[[list[str]], None],
    ) -> None:
        """`subscribe` is called with the topics whenever they change.

        Raises ConnectException for names that no topic can have: librdkafka would ask for them over
        and over, and read none of the others.
        """
        self._consumer: Final = consumer
        self._subscribe: Final = subscribe
        expression = (properties.get(TOPICS_REGEX) or "").strip()
        self._pattern: Final = compile_java(expression) if expression else None
        self._topics: list[str] = []
        self._missing: set[str] = set()
        self._look_at = 0.0
        if self._pattern is None:
            self._topics = topics_of(properties)
            refused = [each for each in self._topics if not is_topic_name(each)]
            if refused:
                raise ConnectException(
                    f"Invalid topics: [{', '.join(refused)}]: a topic has a name of "
                    f"{TOPIC_NAME_RULE}"
                )
            self._missing.update(self._topics)
            subscribe(self._topics)

    @property
    def is_empty(self) -> bool:
        """Tell whether no topic has matched so far."""
        return not self._topics

    def look(self) -> None:
        """Look for topics that match, or that are missing, if it is time to do so.

        Raises ConnectException if the cluster refuses the name of one.
        """
        now = time.monotonic()
        if now < self._look_at:
            return
        try:
            if self._pattern is None:
                self._look_for_missing()
            else:
                self._look_for_matching(self._pattern)
        except KafkaException as error:
            logger.debug("topics were not listed: %s", error_text(error))
            self._look_at = time.monotonic() + _LOOK_EMPTY_S
            return
        is_complete = self._topics and not self._missing
        self._look_at = time.monotonic() + (_LOOK_S if is_complete else _LOOK_EMPTY_S)

    def _look_for_missing(self) -> None:
        """Ask for topics by name: a broker that may creates them, as for Java's consumers.

        librdkafka's own requests for subscribed topics do not have them created.
        """
        for topic in sorted(self._missing):
            found = self._consumer.list_topics(topic, timeout=_ASK_S).topics.get(topic)
            if found is None:
                continue
            if found.error is not None and found.error.code() == KafkaError.TOPIC_EXCEPTION:
                raise ConnectException(f"topic {topic}: {found.error.str()}")
            if found.error is None and found.partitions:
                self._missing.discard(topic)

    def _look_for_matching(self, pattern: re.Pattern[str]) -> None:
        found = self._consumer.list_topics(timeout=_ASK_S).topics
        topics = sorted(
            name
            for name in found
            if name not in INTERNAL_TOPICS and pattern.fullmatch(name) is not None
        )
        if topics and topics != self._topics:
            self._topics = topics
            logger.info("subscribing to %s", ", ".join(topics))
            self._subscribe(topics)
