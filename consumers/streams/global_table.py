"""A compacted topic that every worker reads whole and follows: Kafka Streams' GlobalKTable.

For definitions that apply to the records of all partitions. Reading goes on in a thread; the
processor takes what is new between two batches. So a batch is processed with one state of the
table, but which batch is the first one with a new definition is not determined.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from waylog.kafka.clients import LogUnreachable, check_allowed, consumer_config
from waylog.kafka.errors import error_text
from waylog.kafka.polling import next_messages
from waylog.malformed import MALFORMED
from waylog.process.threads import Rounds, start_thread
from waylog.sealing.sealing import opener

logger = logging.getLogger(__name__)

DefinitionT = TypeVar("DefinitionT")

_POLL_S: Final = 0.2
_RETRY_S: Final = 1.0
_MESSAGES: Final = 2000
_STEP_S: Final = 0.1
_SILENCE_MAX_S: Final = 60.0
#: Changes that are taken at once: others wait meanwhile.
_CHANGES: Final = 500


class GlobalTable(Generic[DefinitionT]):
    """Follows a topic. One thread takes the changes; the topic must exist."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        decode: Callable[[str, bytes], DefinitionT],
    ) -> None:
        """`decode` makes a definition of key and value, and raises MALFORMED."""
        self._topic = topic
        self._decode = decode
        self._opened = opener(bootstrap_servers) or list
        # By key, so that it never is larger than the table.
        self._changes: dict[str, DefinitionT | None] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._loaded = threading.Event()
        self._unread: set[int] | None = None
        self._forbidden: LogUnreachable | None = None
        self._consumer = Consumer(
            consumer_config(
                bootstrap_servers,
                f"waylog-table-{topic}",
                f"waylog-table-{topic}",
                enable_partition_eof=True,
                fetch_wait_max_ms=500,
                queued_max_messages_kbytes=4 * 1024,
            )
        )
        self._thread = start_thread(self._follow, f"table {topic}", may_end=self._stopping.is_set)

    def wait(self, stopping: threading.Event, timeout_s: float = _SILENCE_MAX_S) -> None:
        """Wait until the topic was read to its end, or `stopping` is set; raises LogUnreachable."""
        deadline = time.monotonic() + timeout_s
        while not self._loaded.wait(_STEP_S) and not stopping.is_set():
            if self._forbidden is not None:
                raise self._forbidden
            if time.monotonic() > deadline:
                raise LogUnreachable(f"topic {self._topic} did not answer for {timeout_s:.0f} s")

    def load(
        self, stopping: threading.Event, put: Callable[[str, DefinitionT | None], object]
    ) -> None:
        """Wait as `wait` does, then hand all that there is to `put`; raises LogUnreachable."""
        self.wait(stopping)
        while not stopping.is_set() and (changes := self.take_changes()):
            for key, definition in changes:
                put(key, definition)

    def take_changes(self, most: int = _CHANGES) -> list[tuple[str, DefinitionT | None]]:
        """Return keys and definitions that are new since the last call, None for removed ones.

        What is no definition of ours removes its key, too. The rest of more than `most` comes next.
        """
        if not self._changes:
            return []
        with self._lock:
            taken = list(islice(self._changes.items(), most))
            for key, _ in taken:
                del self._changes[key]
        return taken

    def close(self) -> None:
        """Stop following."""
        self._stopping.set()
        self._thread.join(5.0)

    # ---- in the thread ----

    def _follow(self) -> None:
        rounds = Rounds(f"reading topic {self._topic}", (KafkaException, LogUnreachable))
        try:
            while not self._stopping.is_set():
                if not rounds.once(self._follow_once):
                    self._stopping.wait(_RETRY_S)
        finally:
            self._consumer.close()

    def _follow_once(self) -> None:
        if self._unread is None:
            self._unread = self._assign()
        records = []
        for message in next_messages(self._consumer, _MESSAGES, _POLL_S):
            error = message.error()
            if error is None:
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._take_all(records)
                records = []
                self._unread.discard(message.partition() or 0)
            else:
                self._check(error)
        self._take_all(records)
        if not self._unread:
            self._loaded.set()

    def _take_all(self, records: list[Message]) -> None:
        for record in self._opened(records):
            key, value = record.key(), record.value()
            if key is None:
                continue
            try:
                name = key.decode()
            except UnicodeDecodeError:
                logger.warning("a record of topic %s has no text for a key", self._topic)
                continue
            definition = None
            if value is not None:
                try:
                    definition = self._decode(name, value)
                except MALFORMED:
                    logger.warning("a record of topic %s is no definition of ours", self._topic)
            with self._lock:
                self._changes[name] = definition

    def _assign(self) -> set[int]:
        try:
            found = self._consumer.list_topics(self._topic, timeout=2.0).topics[self._topic]
        except KafkaException as error:
            raise LogUnreachable(f"topic {self._topic}: {error_text(error)}") from error
        if found.error is not None:
            self._check(found.error)
        partitions = set(found.partitions)
        self._consumer.assign(
            [TopicPartition(self._topic, each, OFFSET_BEGINNING) for each in sorted(partitions)]
        )
        return partitions

    def _check(self, error: KafkaError) -> None:
        try:
            check_allowed(error, f"topic {self._topic}")
        except LogUnreachable as forbidden:
            self._forbidden = forbidden
            raise
        raise KafkaException(error)
