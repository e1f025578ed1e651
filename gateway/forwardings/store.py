"""The forwardings of all users, as the log has them; changes are written to it.

Several gateways may run: each reads to the end of the topic before it decides or answers.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from waylog.config import ConfigError
from waylog.forwarding.definition import Forwarding, Progress, encode, record_key
from waylog.forwarding.keys import forwarding_keys
from waylog.forwarding.known_forwardings import KnownForwardings
from waylog.kafka.clients import (
    LogUnreachable,
    client_config,
    consumer_config,
    ensure_topics,
    producer_config,
)
from waylog.kafka.errors import error_text
from waylog.kafka.topic_log import TopicLog, TopicLogError, TopicRecord
from waylog.kafka.topics import FORWARDING, FORWARDING_PROGRESS, FORWARDING_TOPICS

if TYPE_CHECKING:
    from waylog.sealing.value_keys import KeyRing

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 10.0
#: No progress is known without the worker's topics, which are read from their beginning.
_READ = (FORWARDING, FORWARDING_PROGRESS)


class ForwardingsOff(Exception):
    """This gateway takes no forwardings; the message says why."""


class ForwardingStore:
    """Methods block, and may be called in any thread; the topics are read from the first call on.

    All raise ForwardingsOff and LogUnreachable.
    """

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self._servers: Final = bootstrap_servers
        self._client_id: Final = f"{client_id}-forwardings"
        self._starting: Final = threading.Lock()
        self._open: tuple[TopicLog, KnownForwardings, KeyRing] | None = None

    def users(self) -> list[str]:
        """Return the users who have forwardings."""
        log, known, _ = self._opened()
        self._wait(log.read_to_end(FORWARDING))
        return known.users()

    def of_user(self, user: str) -> dict[str, tuple[Forwarding, dict[int, Progress]]]:
        """Return the forwardings of a user, and their progress by partition, by id."""
        log, known, _ = self._opened()
        for topic in _READ:
            self._wait(log.read_to_end(topic))
        return {
            each: (forwarding, known.progress(user, each))
            for each, forwarding in known.of_user(user).items()
        }

    def put(self, user: str, forwarding_id: str, forwarding: Forwarding) -> None:
        """Write a new or changed forwarding."""
        log, _, keys = self._opened()
        key = record_key(user, forwarding_id)
        try:
            value = keys.seal_value(FORWARDING, encode(forwarding), key)
        except ConfigError as error:
            raise ForwardingsOff(str(error)) from error
        self._write(log, key, value)

    def remove(self, user: str, forwarding_id: str) -> None:
        """End a forwarding."""
        self._write(self._opened()[0], record_key(user, forwarding_id), None)

    def close(self) -> None:
        """Stop reading."""
        with self._starting:
            if self._open is not None:
                self._open[0].close()

    def _write(self, log: TopicLog, key: bytes, value: bytes | None) -> None:
        try:
            self._wait(log.write(FORWARDING, key, value))
        except TopicLogError as error:
            raise LogUnreachable(str(error)) from error

    def _wait(self, done: Any) -> None:
        try:
            done.result(_ANSWER_S)
        except FutureTimeoutError:
            raise LogUnreachable(f"topic {FORWARDING} does not answer in time") from None
        except TopicLogError as error:
            raise LogUnreachable(str(error)) from error

    def _opened(self) -> tuple[TopicLog, KnownForwardings, KeyRing]:
        if self._open is not None:
            return self._open
        with self._starting:
            if self._open is None:
                self._open = self._start()
            return self._open

    def _start(self) -> tuple[TopicLog, KnownForwardings, KeyRing]:
        try:
            keys = forwarding_keys(self._servers)
        except ConfigError as error:
            raise ForwardingsOff(str(error)) from error
        if keys is None:
            raise ForwardingsOff(
                "forwardings are off here: there is no key to seal their secrets with "
                "(WAYLOG_FORWARDING_KEY)"
            )
        known = KnownForwardings(keys)
        try:
            ensure_topics(self._servers, FORWARDING_TOPICS, timeout_s=_ANSWER_S)
            keys.catch_up(_ANSWER_S)

            def take(topic: str, record: TopicRecord) -> None:
                known.take(topic, record.key, record.value)

            log = TopicLog(
                {topic: partial(take, topic) for topic in _READ},
                consumer=consumer_config(
                    *(self._servers, self._client_id, self._client_id),
                    enable_partition_eof=True,
                    queued_max_messages_kbytes=2 * 1024,
                ),
                producer=producer_config(self._servers, self._client_id, linger_ms=0),
                admin=client_config(self._servers, self._client_id),
                name="forwardings",
            )
            log.start()
        except KafkaException as error:
            raise LogUnreachable(error_text(error)) from error
        except ConfigError as error:
            raise ForwardingsOff(str(error)) from error
        return log, known, keys
