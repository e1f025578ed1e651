"""Restores the state of assigned partitions, in a thread beside the worker.

A partition of the state topic is read from its beginning to its end at the time reading began.
Meanwhile the worker goes on with other partitions. One that cannot be read yet lets those behind it
go first.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message

from consumers.worker.partitions import PartitionReader
from consumers.worker.records import StateRecord
from waylog.config import ConfigError
from waylog.process.process_status import ProcessStatus
from waylog.process.threads import start_thread

logger = logging.getLogger(__name__)

#: Seconds of one step: to wait for the log a moment, or to take some records.
_STEP_MAX_S: Final = 120.0
#: Attempts to find a partition before those behind it have their turn, and seconds between two.
_ATTEMPTS: Final = 5
_RETRY_S: Final = 0.2
#: Seconds for which a partition that cannot be restored counts as a trouble.
_TROUBLE_S: Final = 30.0
_MISSING: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)


class _Request(NamedTuple):
    partition: int
    restore: Callable[[Sequence[StateRecord]], None]
    done: Callable[[], None]
    cancelled: threading.Event


class Restorer:
    """Reads one partition of the state topic after the other."""

    def __init__(
        self,
        config: dict[str, Any],
        state_topic: str,
        status: ProcessStatus,
        opened: Callable[[Sequence[Message]], list[Message]] = list,
    ) -> None:
        """`config` is a client's; the consumer joins no group. `opened` opens sealed records."""
        self._opened = opened
        self.failed: Exception | None = None  # the error for which the thread has ended
        self._config = config
        self._topic = state_topic
        self._status = status
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        # Monotonic time of the last step of a request; None between requests.
        self._stepped_at: float | None = None

    @property
    def hangs(self) -> bool:
        """Tell whether a request has made no step for two minutes."""
        at = self._stepped_at
        return at is not None and time.monotonic() - at > _STEP_MAX_S

    def restore(
        self,
        partition: int,
        restore: Callable[[Sequence[StateRecord]], None],
        done: Callable[[], None],
        cancelled: threading.Event,
    ) -> None:
        """Hand all records of a partition to `restore`, then call `done`; both in the thread."""
        self._requests.put(_Request(partition, restore, done, cancelled))
        if self._thread is None:
            self._thread = start_thread(self._run, "restore", may_end=self._has_ended)

    def close(self) -> None:
        """Stop, also in the middle of a partition."""
        self._stopping.set()
        self._requests.put(None)
        if self._thread is not None:
            self._thread.join(5.0)

    def _has_ended(self) -> bool:
        # The session looks at `failed` between two polls.
        return self._stopping.is_set() or self.failed is not None

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and (request := self._requests.get()) is not None:
                self._stepped_at = time.monotonic()
                self._restore_one(request)
                self._stepped_at = None
        except ConfigError as error:
            self.failed = error
        except Exception as error:
            self.failed = error
            logger.exception("a state could not be restored")

    def _restore_one(self, request: _Request) -> None:
        started = time.monotonic()
        # A consumer for each request: one takes memory and threads, and is rarely needed. It
        # commits nothing for its group.
        reader = PartitionReader(self._config, f"{self._config['client.id']}-none")
        try:
            bounds = self._bounds(reader, request)
            if bounds is None:
                if not self._given_up(request):
                    self._requests.put(request)
                return
            self._status.over(_trouble(request))
            count = 0
            for records in reader.batches(
                self._topic, request.partition, *bounds, stopped=lambda: self._given_up(request)
            ):
                request.restore(
                    [StateRecord(each.key(), each.value()) for each in self._opened(records)]
                )
                count += len(records)
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
            reader.close()

    def _bounds(self, reader: PartitionReader, request: _Request) -> tuple[int, int] | None:
        """Return the first offset and the end; None if they are not to be had for now."""
        reason = ""
        for _ in range(_ATTEMPTS):
            if self._given_up(request):
                return None
            try:
                return reader.bounds(self._topic, request.partition)
            except KafkaException as error:
                reason = error.args[0].str()
                if error.args[0].code() in _MISSING:
                    reason = (
                        f"topic {self._topic} has no partition {request.partition}: "
                        "it needs as many as the topic that is consumed"
                    )
                self._stopping.wait(_RETRY_S)
        self._status.trouble(_trouble(request), f"restoring waits: {reason}", _TROUBLE_S)
        return None

    def _given_up(self, request: _Request) -> bool:
        self._stepped_at = time.monotonic()
        return self._stopping.is_set() or request.cancelled.is_set()


def _trouble(request: _Request) -> str:
    return f"restoring {request.partition}"
