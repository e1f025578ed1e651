"""Reads a compacted topic from its beginning and goes on with what comes, in a thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from waylog.kafka.clients import LogForbidden, LogUnreachable, check_allowed, consumer_config
from waylog.kafka.errors import error_text
from waylog.kafka.polling import next_messages
from waylog.process.threads import Rounds, start_thread

_SILENCE_MAX_S: Final = 60.0
_POLL_S: Final = 0.2
_RETRY_S: Final = 1.0
_REQUEST_S: Final = 2.0
_MESSAGES: Final = 2000
#: Seconds at the beginning in which a log that cannot be reached is not told: others who need it
#: say so at once, and better.
_UNTOLD_S: Final = 10.0
#: A wait looks this often whether it is to end.
_STEP_S: Final = 0.1


class TopicFollower:
    """Hands the records of all partitions of a topic to a function, in a thread of its own.

    One that the function fails at is handed to it again, until it succeeds.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        take: Callable[[Message], object],
        *,
        client_id: str,
        may_be_missing: bool = False,
        queued_kbytes: int = 1024,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """`take` is called in the thread.

        A topic that `may_be_missing` counts as read when the log says that there is none; it is
        read once there is. `properties` are librdkafka's, beside those that all clients have.
        """
        self._topic: Final = topic
        self._take: Final = take
        self._may_be_missing: Final = may_be_missing
        self._began: Final = time.monotonic()
        self._stopping = threading.Event()
        self._loaded = threading.Event()
        # Partitions that have not been read to their end; None until the topic is known.
        self._unread: set[int] | None = None
        # Records that the consumer has given, and would not give again.
        self._untaken: deque[Message] = deque()
        #: The right that is missing, until the topic can be read.
        self._forbidden: LogForbidden | None = None
        self._consumer = Consumer(
            consumer_config(
                bootstrap_servers,
                client_id,
                client_id,
                enable_partition_eof=True,
                fetch_wait_max_ms=500,
                queued_max_messages_kbytes=queued_kbytes,
            )
            | dict(properties or {})
        )
        self._thread = start_thread(self._follow, f"follow {topic}", may_end=self._stopping.is_set)

    def wait(
        self,
        timeout_s: float = _SILENCE_MAX_S,
        *,
        stopping: threading.Event | None = None,
        alive: Callable[[], object] = lambda: None,
    ) -> bool:
        """Wait until the topic was read once; return False if `stopping` or `close` comes first.

        Calls `alive` from time to time. Raises LogForbidden as soon as a right turns out to be
        missing, LogUnreachable after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not self._loaded.wait(_STEP_S):
            if self._stopping.is_set() or (stopping is not None and stopping.is_set()):
                return False
            alive()
            if self._forbidden is not None:
                raise self._forbidden
            if time.monotonic() > deadline:
                raise LogUnreachable(f"topic {self._topic} did not answer for {timeout_s:.0f} s")
        return True

    def close(self) -> None:
        """Stop following the topic."""
        self._stopping.set()
        self._thread.join(5.0)

    # ---- in the thread ----

    def _follow(self) -> None:
        rounds = Rounds(f"reading topic {self._topic}", (KafkaException, LogUnreachable))
        try:
            # Others must not go on with what was known before, so this is tried for ever.
            while not self._stopping.is_set():
                if not rounds.once(self._follow_once):
                    self._stopping.wait(_RETRY_S)
        finally:
            self._consumer.close()

    def _follow_once(self) -> None:
        try:
            if self._unread is None:
                self._unread = self._assign()
            if self._unread is None:
                self._stopping.wait(_RETRY_S)
            else:
                self._take_next(self._unread)
        except LogForbidden as error:
            self._forbidden = error
            if self._loaded.is_set():
                raise
            # `wait` raises it; a line of the log would tell it twice.
            self._stopping.wait(_RETRY_S)

    def _assign(self) -> set[int] | None:
        """Begin to read; return the partitions, None if the topic is not found yet.

        Another error than that of a missing topic, for example missing rights, does not mean that
        there is none.
        """
        try:
            found = self._consumer.list_topics(self._topic, timeout=_REQUEST_S).topics[self._topic]
        except KafkaException as error:
            check_allowed(error, f"topic {self._topic}")
            if time.monotonic() - self._began < _UNTOLD_S:
                return None
            raise LogUnreachable(f"topic {self._topic}: {error_text(error)}") from error
        if found.error is not None:
            check_allowed(found.error, f"topic {self._topic}")
            if self._may_be_missing and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._is_loaded()
                return None
            raise KafkaException(found.error)
        partitions = set(found.partitions)
        self._consumer.assign(
            [TopicPartition(self._topic, each, OFFSET_BEGINNING) for each in sorted(partitions)]
        )
        return partitions

    def _take_next(self, unread: set[int]) -> None:
        if not self._untaken:
            self._untaken += next_messages(self._consumer, _MESSAGES, _POLL_S)
        while self._untaken:
            message = self._untaken[0]
            error = message.error()
            if error is None:
                self._take(message)
                self._untaken.popleft()
                continue
            self._untaken.popleft()
            if error.code() != KafkaError._PARTITION_EOF:
                check_allowed(error, f"topic {self._topic}")
                raise KafkaException(error)
            unread.discard(message.partition() or 0)
            if not unread:
                self._is_loaded()

    def _is_loaded(self) -> None:
        self._forbidden = None
        self._loaded.set()
