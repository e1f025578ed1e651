"""Reads and writes topics in which the processes of a service keep what they share.

One consumer reads all of them from their beginnings and goes on; one producer writes. Whoever
decides by what is in a topic reads it to its end first: what other processes have written
before counts then.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from waylog.kafka.clients import LogUnreachable
from waylog.kafka.errors import error_text, not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.polling import next_messages
from waylog.process.log_throttle import RepeatedFailure
from waylog.process.threads import start_thread

logger = logging.getLogger(__name__)

Place = tuple[str, int]
_POLL_S: Final = 0.03
_SERVE_S: Final = 0.2
_MESSAGES: Final = 2_000
_REQUEST_S: Final = 5.0
_START_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.1
_FLUSH_S: Final = 5.0
_QUEUE_FULL_S: Final = 0.05


class TopicLogError(Exception):
    """A record could not be stored, or the log closes."""


class TopicRecord(NamedTuple):
    """A record that was read."""

    key: bytes | None
    value: bytes | None
    offset: int


Handler = Callable[[TopicRecord], None]


class _Reading(NamedTuple):
    """Somebody waits until a topic has been read up to some ends."""

    topic: str
    done: Future[None]
    ends: dict[Place, int]
    isolation: IsolationLevel


class TopicLog:
    """The topics; methods may be called in any thread."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        consumer: Mapping[str, Any],
        producer: Mapping[str, Any],
        admin: Mapping[str, Any],
        name: str,
        error: Callable[[str], Exception] = TopicLogError,
    ) -> None:
        """`handlers` get the records of each topic, in the log's thread.

        `consumer`, `producer` and `admin` are properties, `name` begins the names of threads,
        `error` makes what is raised. Raises KafkaException for properties that librdkafka refuses.
        """
        self._name: Final = name
        self._error: Final = error
        self._handlers: Final = handlers
        self._consumer: Final = Consumer(dict(consumer))
        self._producer: Final = LibrdkafkaProducer(producer)
        self._admin: Final = AdminClient(dict(admin))
        self._wanted: Final[queue.SimpleQueue[_Reading]] = queue.SimpleQueue()
        self._places: Final[dict[str, list[int]]] = {}
        #: The next offset of each partition.
        self._read_to: Final[dict[Place, int]] = {}
        self._closing: Final = threading.Event()
        self._failure: Final = RepeatedFailure()
        self._threads: Final[list[threading.Thread]] = []

    def start(self) -> None:
        """Begin to read all topics; raises LogUnreachable if one is not known after a while."""
        deadline = time.monotonic() + _START_S
        for topic in self._handlers:
            while (reason := self._look_for(topic, self._consumer)) is not None:
                # Not all brokers know at once of a topic that was created just now.
                if time.monotonic() > deadline or self._closing.wait(_LOOK_AGAIN_S):
                    raise LogUnreachable(f"topic {topic}: {reason}")
        places = [(topic, each) for topic, listed in self._places.items() for each in listed]
        self._read_to.update(dict.fromkeys(places, 0))
        self._consumer.assign(
            [confluent_kafka.TopicPartition(*each, confluent_kafka.OFFSET_BEGINNING)
             for each in places]
        )  # fmt: skip
        self._threads.extend(
            (
                start_thread(self._read, f"{self._name}-read", may_end=self._closing.is_set),
                start_thread(self._serve, f"{self._name}-write", may_end=self._closing.is_set),
            )
        )

    def _look_for(self, topic: str, client: Consumer | AdminClient) -> str | None:
        """Learn a topic's partitions and leaders; return why that is not possible now."""
        try:
            found = client.list_topics(topic, timeout=_REQUEST_S).topics[topic]
        except KafkaException as error:
            return error_text(error)
        if found.error is not None:
            return error_text(KafkaException(found.error))
        self._places.setdefault(topic, sorted(found.partitions))
        return None

    def read_to_end(self, topic: str, *, waits: bool = True) -> Future[None]:
        """Return a future that is done when the handler has got all that is in a topic now.

        It `waits` for transactions that are open; otherwise what is behind the first of them is
        left to the next time. While the log is away it waits; the log's error when it closes.
        """
        # What was committed may be beyond a transaction that is still open.
        isolation = IsolationLevel.READ_UNCOMMITTED if waits else IsolationLevel.READ_COMMITTED
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()
        self._wanted.put(_Reading(topic, done, {}, isolation))
        return done

    def write(self, topic: str, key: bytes, value: bytes | None) -> Future[None]:
        """Append a record; the future is done when all replicas have it.

        Raises the log's error, as the future does.
        """
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()
        while True:
            try:
                self._producer.produce(
                    topic, value, key, on_delivery=partial(self._written, topic, done)
                )
                return done
            except BufferError:
                if self._closing.wait(_QUEUE_FULL_S):
                    raise self._stopping() from None
            except KafkaException as error:
                raise self._error(f"{topic}: {not_stored_text(error, topic)}") from error

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was written is stored; return whether it is."""
        deadline = time.monotonic() + timeout_s
        while len(self._producer) and time.monotonic() < deadline:
            time.sleep(0.005)
        return not len(self._producer)

    def close(self) -> None:
        """Wait for what was written, for a time, and end."""
        self.flush(_FLUSH_S)
        self._closing.set()
        for thread in self._threads:
            thread.join(_FLUSH_S)
        while not self._wanted.empty():
            self._wanted.get().done.set_exception(self._stopping())

    # ---- writing, in its thread ----

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                self._producer.poll(_SERVE_S)
            except KafkaException as error:
                if self._failure.is_new(error):
                    logger.error("%s: %s", self._name, error_text(error))
        self._producer.purge()

    # ---- reading, in its thread ----

    def _read(self) -> None:
        waiting: list[_Reading] = []
        try:
            while not self._closing.is_set():
                self._take(next_messages(self._consumer, _MESSAGES, _POLL_S))
                while not self._wanted.empty():
                    waiting.append(self._wanted.get())
                self._find_ends(waiting)
                waiting = [each for each in waiting if not self._is_done(each)]
        finally:
            self._consumer.close()
            for each in waiting:
                each.done.set_exception(self._stopping())

    def _take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            topic, partition = message.topic() or "", message.partition() or 0
            offset, error = message.offset() or 0, message.error()
            if error is None:
                self._read_to[topic, partition] = offset + 1
                self._handlers[topic](TopicRecord(message.key(), message.value(), offset))
                self._failure.succeeded()
            elif error.code() == KafkaError._PARTITION_EOF:
                # Markers of transactions at the end are no messages.
                before = self._read_to[topic, partition]
                self._read_to[topic, partition] = max(before, offset)
            elif self._failure.is_new(KafkaException(error)):
                logger.warning("topic %s: %s", topic, error_text(KafkaException(error)))

    def _find_ends(self, waiting: Sequence[_Reading]) -> None:
        """Ask once for the ends of each topic that somebody waits for."""
        new = [each for each in waiting if not each.ends]
        for asked in {(each.topic, each.isolation) for each in new}:
            ends = self._ends(*asked)
            if ends is None:
                return
            for each in new:
                if (each.topic, each.isolation) == asked:
                    each.ends.update(ends)

    def _is_done(self, reading: _Reading) -> bool:
        if not reading.ends or any(
            self._read_to[place] < end for place, end in reading.ends.items()
        ):
            return False
        reading.done.set_result(None)
        return True

    def _ends(self, topic: str, isolation: IsolationLevel) -> dict[Place, int] | None:
        """Return the ends of a topic's partitions, None while the log does not tell."""
        partitions = [confluent_kafka.TopicPartition(topic, each) for each in self._places[topic]]
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        try:
            answers = self._admin.list_offsets(
                dict.fromkeys(partitions, latest),
                isolation_level=isolation,
                request_timeout=_REQUEST_S,
            )
            return {
                (topic, each.partition): future.result().offset for each, future in answers.items()
            }
        except KafkaException as error:
            if self._failure.is_new(error):
                logger.warning("topic %s: its end is not known: %s", topic, error_text(error))
            # librdkafka asks again as it has asked, with a leader's epoch that is over.
            self._look_for(topic, self._admin)
            return None

    def _written(
        self, topic: str, done: Future[None], error: KafkaError | None, _message: Message
    ) -> None:
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(self._error(f"{topic}: {not_stored_text(error, topic)}"))

    def _stopping(self) -> Exception:
        return self._error("This worker is stopping")
