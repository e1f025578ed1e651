"""Restores the state of assigned partitions, in a thread beside the worker.

A partition of the state topic is read from its beginning to where it ended when the reading began;
other partitions go on meanwhile.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

logger = logging.getLogger(__name__)

_BATCH_RECORDS: Final = 5000


class _Request(NamedTuple):
    partition: int
    restore: Callable[[Sequence[bytes | None]], None]
    done: Callable[[], None]
    cancelled: threading.Event


class Restorer:
    """Reads the state topic for one partition after the other."""

    def __init__(self, config: dict[str, Any], state_topic: str) -> None:
        """`config` is that of a client; the consumer is in no group."""
        self.failed: str | None = None  # why this restorer has given up
        self._config = config | {
            # Required by the client; nothing is committed in this name.
            "group.id": f"{config['client.id']}-none",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 8 * 1024,
            "fetch.wait.max.ms": 100,
        }
        self._topic = state_topic
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def restore(
        self,
        partition: int,
        restore: Callable[[Sequence[bytes | None]], None],
        done: Callable[[], None],
        cancelled: threading.Event,
    ) -> None:
        """Hand all values of a partition to `restore`, then call `done`; both in our thread."""
        self._requests.put(_Request(partition, restore, done, cancelled))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="restore", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop, also amid a partition."""
        self._stopping.set()
        self._requests.put(None)
        if self._thread is not None:
            self._thread.join(5.0)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and (request := self._requests.get()) is not None:
                self._restore_one(request)
        except Exception as error:
            self.failed = f"{type(error).__name__}: {error}"
            logger.exception("a state could not be restored")

    def _restore_one(self, request: _Request) -> None:
        started = time.monotonic()
        partition = TopicPartition(self._topic, request.partition)
        # A consumer for each: it takes memory and threads, and is rarely needed.
        consumer = Consumer(self._config)
        try:
            end = self._end(consumer, partition, request)
            if end is None:
                return
            low, high = end
            count = 0
            if high > low:
                partition.offset = low
                consumer.assign([partition])
                while not self._given_up(request):
                    messages = consumer.consume(_BATCH_RECORDS, 0.1)
                    values = [each.value() for each in messages if each.error() is None]
                    if values:
                        request.restore(values)
                        count += len(values)
                    # Compaction leaves holes: only the position says that the end is reached.
                    [position] = consumer.position(
                        [TopicPartition(self._topic, partition.partition)]
                    )
                    if position.offset >= high:
                        break
            if self._given_up(request):
                return
            logger.info(
                "restored partition %d from %d records in %.1f s",
                request.partition,
                count,
                time.monotonic() - started,
            )
            request.done()
        finally:
            consumer.close()

    def _end(
        self, consumer: Consumer, partition: TopicPartition, request: _Request
    ) -> tuple[int, int] | None:
        while not self._given_up(request):
            try:
                low, high = consumer.get_watermark_offsets(partition, timeout=5.0)
                return low, high
            except KafkaException as error:
                logger.info("restoring waits: %s", error.args[0].str())
                self._stopping.wait(0.2)
        return None

    def _given_up(self, request: _Request) -> bool:
        return self._stopping.is_set() or request.cancelled.is_set()
