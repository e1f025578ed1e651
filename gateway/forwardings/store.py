"""The forwardings of all users, as the log has them; changes are written to it.

Several gateways may run: each reads to the end of the topic before it decides or answers.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import KafkaException

from waylog.config import ConfigError
from waylog.forwarding.definition import Forwarding, Progress, encode, record_key
from waylog.forwarding.keys import forwarding_keys
from waylog.forwarding.known_forwardings import KnownForwardings
from waylog.forwarding.pauses import KnownPauses, Pause, pause_key
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


class Kept(NamedTuple):
    """A forwarding, its progress by partition, and the pause of an administrator that covers it."""

    forwarding: Forwarding
    progress: dict[int, Progress]
    pause: Pause | None


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
        return self._known(FORWARDING).users()

    def of_user(self, user: str) -> dict[str, Kept]:
        """Return the forwardings of a user by id."""
        known = self._known(*_READ)
        return _kept(known, user, known.pauses())

    def of_users(self, after: str, most: int) -> dict[str, dict[str, Kept]]:
        """Return the forwardings of the users behind a name, by user and id.

        They are those of whole users, of so many that there are `most` forwardings or more, or no
        further users.
        """
        known = self._known(*_READ)
        pauses = known.pauses()
        found: dict[str, dict[str, Kept]] = {}
        count = 0
        for user in known.users():
            if user > after:
                if count >= most:
                    break
                found[user] = _kept(known, user, pauses)
                count += len(found[user])
        return found

    def pauses(self) -> dict[str, Pause]:
        """Return what administrators have paused, by id."""
        return dict(self._known(FORWARDING).pauses().items())

    def put(self, user: str, forwarding_id: str, forwarding: Forwarding) -> Pause | None:
        """Write a new or changed forwarding; return the pause that covers it."""
        self._put(record_key(user, forwarding_id), encode(forwarding))
        return self._opened()[1].pauses().of(user, forwarding_id, forwarding)

    def remove(self, user: str, forwarding_id: str) -> None:
        """End a forwarding."""
        self._write(self._opened()[0], record_key(user, forwarding_id), None)

    def put_pause(self, pause_id: str, pause: Pause) -> None:
        """Write what an administrator has paused."""
        self._put(pause_key(pause_id, pause.user), encode(pause))

    def remove_pause(self, pause_id: str, pause: Pause) -> None:
        """End a pause."""
        self._write(self._opened()[0], pause_key(pause_id, pause.user), None)

    def close(self) -> None:
        """Stop reading."""
        with self._starting:
            if self._open is not None:
                self._open[0].close()

    def _known(self, *topics: str) -> KnownForwardings:
        """Return what is in topics now."""
        log, known, _ = self._opened()
        for topic in topics:
            # A killed worker holds progress up for some seconds; it may be older than that.
            self._wait(log.read_to_end(topic, waits=topic != FORWARDING_PROGRESS))
        return known

    def _put(self, key: bytes, value: bytes) -> None:
        log, _, keys = self._opened()
        try:
            sealed = keys.seal_value(FORWARDING, value, key)
        except ConfigError as error:
            raise ForwardingsOff(str(error)) from error
        self._write(log, key, sealed)

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


def _kept(known: KnownForwardings, user: str, pauses: KnownPauses) -> dict[str, Kept]:
    return {
        each: Kept(forwarding, known.progress(user, each), pauses.of(user, each, forwarding))
        for each, forwarding in known.of_user(user).items()
    }
