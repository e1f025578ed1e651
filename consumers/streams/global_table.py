"""A compacted topic that every worker reads whole and follows: Kafka Streams' GlobalKTable.

For definitions that apply to the records of all partitions. Reading goes on in a thread; the
processor takes what is new before each batch, and once a second while none comes. So a batch is
processed with one state of the table, but which batch is the first one with a new definition is not
determined.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import islice
from typing import Final, Generic, TypeVar

from confluent_kafka import Message

from waylog.config import ConfigError
from waylog.kafka.topic_follower import TopicFollower
from waylog.malformed import MALFORMED
from waylog.sealing.sealing import opener

logger = logging.getLogger(__name__)

DefinitionT = TypeVar("DefinitionT")

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
        self._opened = opener(bootstrap_servers)
        # By key, so that it never is larger than the table.
        self._changes: dict[str, DefinitionT | None] = {}
        self._lock = threading.Lock()
        #: The error of a definition that cannot be opened: nothing can go on without it.
        self._wrong: ConfigError | None = None
        self._follower = TopicFollower(
            bootstrap_servers,
            topic,
            self._take,
            client_id=f"waylog-table-{topic}",
            queued_kbytes=4 * 1024,
        )

    def wait(self, stopping: threading.Event) -> None:
        """Wait until the topic was read to its end, or `stopping` is set.

        Raises LogUnreachable, and as `take_changes` does.
        """
        self._follower.wait(stopping=stopping, alive=self._check)

    def load(
        self, stopping: threading.Event, put: Callable[[str, DefinitionT | None], object]
    ) -> None:
        """Wait as `wait` does, then hand all that there is to `put`; raises LogUnreachable."""
        self.wait(stopping)
        while not stopping.is_set() and (changes := self.take_changes()):
            for key, definition in changes:
                put(key, definition)

    def follow(self, put: Callable[[str, DefinitionT | None], object]) -> None:
        """Hand all to `put` that was read until now: before records, and as time passes.

        What is left for the next records would apply to none of those of a device that comes once.
        """
        for key, definition in self.take_changes(len(self._changes)):
            put(key, definition)

    def take_changes(self, most: int = _CHANGES) -> list[tuple[str, DefinitionT | None]]:
        """Return keys and definitions that are new since the last call, None for removed ones.

        What is no definition of ours removes its key, too. The rest of more than `most` comes next.
        Raises ConfigError if a definition needs the master key and there is none, or another.
        """
        self._check()
        if not self._changes:
            return []
        with self._lock:
            taken = list(islice(self._changes.items(), most))
            for key, _ in taken:
                del self._changes[key]
        return taken

    def close(self) -> None:
        """Stop following."""
        self._follower.close()

    def _check(self) -> None:
        if self._wrong is not None:
            raise self._wrong

    def _take(self, message: Message) -> None:
        try:
            records = self._opened([message])
        except ConfigError as error:
            self._wrong = error
            return
        for record in records:
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
                except MALFORMED as error:
                    logger.warning(
                        "a record of topic %s is no definition: key %r: %s",
                        self._topic,
                        name,
                        error,
                    )
            with self._lock:
                self._changes[name] = definition
