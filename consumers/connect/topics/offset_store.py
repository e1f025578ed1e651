"""Offsets of sources in a topic: `offset.storage.topic` (`OffsetStore`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.storage.offset_topic import OffsetTopic
from consumers.connect.storage.offsets import Offset, Partition
from waylog.kafka.errors import not_stored_text
from waylog.kafka.topic_log import TopicLog, TopicRecord

#: Seconds for reading the topic to its end; a task waits for it, and fails after this time.
#: It waits for transactions that are open there, which end by their time-out at the latest.
_READ_S: Final = 90.0
_QUEUE_FULL_S: Final = 0.05


class OffsetTopicStore:
    """Keeps offsets in a topic; methods may be called in any thread, and block."""

    def __init__(self, topic: str, write_timeout_s: float, may_write: Callable[[], bool]) -> None:
        """`write_timeout_s` is `offset.flush.timeout.ms`.

        `may_write` tells whether this worker is still a member of its group: one that was cut off
        would set offsets back that others have stored since.
        """
        self.topic: Final = topic
        self._write_timeout_s: Final = write_timeout_s
        self._may_write: Final = may_write
        self._lock: Final = threading.Lock()
        self._state: Final = OffsetTopic()
        self._log: TopicLog | None = None

    def use(self, log: TopicLog) -> None:
        """Write to a log; call it before anything is asked."""
        self._log = log

    def handle(self, record: TopicRecord) -> None:
        """Take a record, in the log's thread."""
        with self._lock:
            self._state.read(record.key, record.value)

    # ---- OffsetStore ----

    def refresh(self) -> None:
        """See OffsetStore."""
        assert self._log is not None
        self._await(self._log.read_to_end(self.topic), _READ_S, "Failed to read offsets")

    def get(self, connector: str, partition: Partition) -> dict[str, Any] | None:
        """See OffsetStore."""
        with self._lock:
            return self._state.table.get(connector, partition)

    def all(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """See OffsetStore."""
        with self._lock:
            return self._state.table.all(connector)

    def put(self, connector: str, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """See OffsetStore."""
        log = self._log
        assert log is not None
        if not self._may_write():
            raise ConnectException(
                "this worker is no member of its group at present: others may have its tasks"
            )
        with self._lock:
            records = self._state.records(connector, offsets)
        written = [log.write(self.topic, each.key, each.value) for each in records]
        deadline = time.monotonic() + self._write_timeout_s
        for each in written:
            left_s = max(deadline - time.monotonic(), 0.0)
            self._await(each, left_s, "Failed to write offsets")

    def produce(
        self,
        producer: Producer,
        connector: str,
        offsets: Sequence[tuple[Partition, Offset | None]],
    ) -> None:
        """See OffsetStore."""
        with self._lock:
            records = self._state.records(connector, offsets)
        for each in records:
            while True:
                try:
                    producer.produce(self.topic, each.value, each.key)
                    break
                except BufferError:
                    producer.poll(_QUEUE_FULL_S)
                except KafkaException as error:
                    text = not_stored_text(error, self.topic)
                    raise ConnectException(f"Failed to write offsets: {text}") from error

    def _await(self, future: Future[None], timeout_s: float, failure: str) -> None:
        try:
            future.result(timeout_s)
        except TimeoutError:
            raise ConnectException(f"{failure} to Kafka in time") from None
