"""Ordinary Kafka clients, configured for this platform.

Nothing here depends on which broker it talks to. Logic that produces or consumes on an asyncio
event loop uses `Producer` and `LogReader`; a consumer group uses `consumer_config` with
confluent_kafka's own Consumer.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from waylog.kafka.librdkafka import Delivery, RecordProducer
from waylog.kafka.properties import configured_properties
from waylog.kafka.topic_settings import update_topic_settings
from waylog.kafka.topics import TOPICS, Topic
from waylog.process.background import BACKGROUND

logger = logging.getLogger(__name__)

#: Waiting this long lets one request carry many records. The time budget of an acknowledgement
#: allows it, and a broker's cost depends on requests more than on records.
LINGER_MS: Final = 20

_SAY_AGAIN_S: Final = 10.0
#: While earlier records are unacknowledged, gathered records wait up to this instead of LINGER_MS.
_HOLD_S: Final = 0.1
_GATHERED_MAX: Final = 10_000
#: librdkafka's own linger, while all gathered records are put into its queues. Its thread measures
#: it in whole milliseconds and spins through the last: with 2 a record cost 2 us more.
_BURST_LINGER_MS: Final = 5
_POLL_S: Final = 0.002  # between two polls for delivery reports while some are missing
_IDLE_POLL_S: Final = 0.5  # while none are missing: only errors can come
#: Wait after the first record of a batch: records of other partitions are on their way too, and
#: more records share the cost of a batch (two threads that compete for the GIL).
_GATHER_S: Final = 0.005
#: Seconds between two questions of a reader without records whether a broker answers, and its
#: wait for the answer.
_ASK_AGAIN_S: Final = 3.0
_ASK_S: Final = 2.0
#: While all brokers are down, librdkafka reports it again within this time.
_DOWN_S: Final = 5.0
#: Time without any acknowledgement after which the log counts as full. librdkafka repeats requests
#: silently that a broker refuses for now, for example because its disk is full. A failed leader is
#: replaced in less time.
_SILENT_S: Final = 1.5
#: A view's fetch waits for this many bytes or for this time; else the log would answer it once for
#: every append to any partition.
FETCH_MIN_BYTES: Final = 16 * 1024
FETCH_WAIT_MS: Final = 25

Headers = Sequence[tuple[str, bytes]]
#: Pairs of name and value, or the value of a `traceparent` header alone.
RecordHeaders = list[tuple[str, str | bytes | None]] | bytes


class RecordPosition(NamedTuple):
    """The place of a record in the log."""

    topic: str
    partition: int
    offset: int


#: Called with an error and None, or with None and the record's position.
DeliveryCallback = Callable[[KafkaError | None, Any], None] | Delivery

_Gathered = tuple[str, bytes | None, bytes | None, RecordHeaders | None, DeliveryCallback]


class AppendError(Exception):
    """The log did not acknowledge a record; it may or may not be stored."""


class AppendQueueFull(AppendError):
    """The producer already holds as many records as it may. Nothing was queued."""


class LogUnreachable(Exception):
    """No broker answered in the given time."""


def client_config(bootstrap_servers: str, client_id: str, **more: Any) -> dict[str, Any]:
    """Return the properties that all clients have; names of `more` have `_` for Kafka's dots.

    The properties for logging in are in the file that `WAYLOG_KAFKA_CONFIG` names
    (waylog.kafka.properties).
    """
    return (
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": client_id,
            # A restarted broker is back within a second, and is found as quickly.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "topic.metadata.refresh.interval.ms": 30_000,
            "allow.auto.create.topics": False,
            "log.connection.close": False,
            # Failures arrive as errors; a log line for every refused connection is of no use.
            "log_level": 2,
        }
        | configured_properties()
        | {name.replace("_", "."): value for name, value in more.items()}
    )


def producer_config(bootstrap_servers: str, client_id: str, **more: Any) -> dict[str, Any]:
    """Return properties of an idempotent producer that waits for all in-sync replicas."""
    return client_config(
        bootstrap_servers,
        client_id,
        **{
            "acks": "all",
            "enable_idempotence": True,
            "linger_ms": LINGER_MS,
            "compression_type": "lz4",
            # Java's default partitioner, so that every client puts a key into the same partition.
            "partitioner": "murmur2_random",
            "delivery_timeout_ms": 30_000,
            "retry_backoff_ms": 50,
            "retry_backoff_max_ms": 500,
            "batch_num_messages": 10_000,
            "queue_buffering_max_messages": 200_000,
            "queue_buffering_max_kbytes": 144 * 1024,
        }
        | more,
    )


def consumer_config(
    bootstrap_servers: str, client_id: str, group_id: str, **more: Any
) -> dict[str, Any]:
    """Return properties of a member of a consumer group that commits its offsets itself."""
    return client_config(
        bootstrap_servers,
        client_id,
        **{
            "group_id": group_id,
            "enable_auto_commit": False,
            "enable_auto_offset_store": False,
            # A group without offsets begins at the oldest record: with `latest`, the time at which
            # it joins would decide which records it gets.
            "auto_offset_reset": "earliest",
            "partition_assignment_strategy": "cooperative-sticky",
            "session_timeout_ms": 10_000,
            "fetch_wait_max_ms": 100,
            "fetch_error_backoff_ms": 50,
            # librdkafka pauses for a second when its queue is full: catching up would be slow.
            "fetch_queue_backoff_ms": 10,
            "queued_max_messages_kbytes": 16 * 1024,
            "isolation_level": "read_committed",
        }
        | more,
    )


def ensure_topics(
    bootstrap_servers: str,
    topics: Iterable[Topic] = TOPICS,
    *,
    replication_factor: int = -1,
    timeout_s: float = 60.0,
    security: Mapping[str, str] | None = None,
) -> list[str]:
    """Create those of `topics` that are missing; return the names of those that were created.

    Existing topics get the settings that an earlier version did not give them.

    Waits until the log can be reached. Raises LogUnreachable after `timeout_s`, KafkaException
    if the log refuses. `replication_factor` -1 is the broker's default; `security` has the
    properties with which a client logs in.
    """
    admin = AdminClient(client_config(bootstrap_servers, "waylog-topics") | dict(security or {}))
    deadline = time.monotonic() + timeout_s
    wanted = {topic.name: topic for topic in topics}
    while True:
        try:
            existing = admin.list_topics(timeout=2.0).topics
            break
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise LogUnreachable(
                    f"no Kafka broker answered at {bootstrap_servers} within {timeout_s:.0f} s"
                ) from error
    update_topic_settings(admin, [topic for name, topic in wanted.items() if name in existing])
    missing = [topic for name, topic in wanted.items() if name not in existing]
    if not missing:
        return []
    created: list[str] = []
    results = admin.create_topics(
        [
            NewTopic(
                topic.name,
                num_partitions=topic.partitions,
                replication_factor=replication_factor,
                config=topic.config,
            )
            for topic in missing
        ],
        request_timeout=30.0,
    )
    for name, future in results.items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    return created


class Producer:
    """A producer that reports on one event loop when the log has acknowledged its records.

    `append` returns a future; `send` takes a plain callback, which is cheaper at thousands of
    records a second.

    Records are gathered for `linger_ms` and given to librdkafka together. librdkafka sends one
    request for each partition; if each partition had its own timer, the log would sync, and wake
    every reader, for each of them. While earlier records are unacknowledged, the next ones are
    gathered for longer: with more than five requests in flight librdkafka's thread spins.

    A timer of the event loop polls librdkafka's delivery reports. A thread that waits for them
    would take the GIL from the event loop once for each record, and wait for it up to the switch
    interval (5 ms) each time. All methods are called on the event loop's thread.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        loop: asyncio.AbstractEventLoop,
        **more: Any,
    ) -> None:
        self._loop = loop
        self._fatal: str | None = None
        self._down_said = -_SAY_AGAIN_S
        self._down_since: float | None = None
        self._linger_s = more.pop("linger_ms", LINGER_MS) / 1000
        self._producer = RecordProducer(
            producer_config(bootstrap_servers, client_id, linger_ms=_BURST_LINGER_MS, **more),
            self._on_error,
        )
        # Records that librdkafka does not have yet, and since when the first of them waits.
        self._gathered: deque[_Gathered] = deque()
        self._gathering_since = 0.0
        self._closing = False
        # The last time at which the log acknowledged something, or nothing was missing.
        self._heard_at = loop.time()
        self._acknowledged = 0
        self._idle = True
        self._timer = loop.call_later(_IDLE_POLL_S, self._poll)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: RecordHeaders | None,
        on_delivery: DeliveryCallback,
    ) -> None:
        """Queue one record; `on_delivery` is called when the log has acknowledged or refused it.

        A `value` of None is a tombstone: it deletes the key from a compacted topic.

        Raises AppendQueueFull if too many records wait already, AppendError if this producer can
        never append again.
        """
        if self._fatal is not None:
            raise AppendError(self._fatal)
        gathered = self._gathered
        if not gathered:
            self._gathering_since = self._loop.time()
        elif len(gathered) >= _GATHERED_MAX:
            self._hand_over()
            if len(gathered) >= _GATHERED_MAX:
                raise AppendQueueFull("the log does not keep up: too many records wait")
        gathered.append((topic, value, key, headers, on_delivery))
        if self._idle:
            self._idle = False
            self._heard_at = self._loop.time()
            self._timer.cancel()
            self._timer = self._loop.call_later(_POLL_S, self._poll)

    def append(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordPosition]:
        """Queue one record; the future gets its position or AppendError. Raises as `send` does."""
        return append_with(self.send, self._loop, topic, value, key, headers)

    def __len__(self) -> int:
        """Return the number of records that wait for their acknowledgement."""
        return len(self._gathered) + len(self._producer)

    @property
    def fatal(self) -> str | None:
        """The reason why this producer can never append again; None while it can."""
        return self._fatal

    @property
    def trouble(self) -> str | None:
        """The reason why nothing can be appended now, if one is known; else None.

        librdkafka reports that all brokers are down; missing acknowledgements are noticed here.
        """
        if self._down_since is not None:
            return "no broker can be reached"
        if not self._idle and self._loop.time() - self._heard_at > _SILENT_S:
            return "the log acknowledges nothing: its disk may be full"
        return None

    async def close(self, timeout_s: float = 10.0) -> int:
        """Wait up to `timeout_s` for all acknowledgements; return how many are missing."""
        deadline = self._loop.time() + timeout_s
        self._closing = True
        while len(self) and self._loop.time() < deadline:
            await asyncio.sleep(_POLL_S)
        self._timer.cancel()
        return len(self)

    def _poll(self) -> None:
        try:
            self._producer.poll()
            if self._down_since is not None and time.monotonic() - self._down_since > _DOWN_S:
                self._down_since = None  # librdkafka reports it again for as long as it lasts
            if self._gathered and self._is_due():
                self._hand_over()
        except Exception:
            logger.exception("records could not be given to librdkafka")
        self._idle = not len(self)
        if self._idle or self._producer.acknowledged != self._acknowledged:
            self._acknowledged = self._producer.acknowledged
            self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(_IDLE_POLL_S if self._idle else _POLL_S, self._poll)

    def _is_due(self) -> bool:
        waited_s = self._loop.time() - self._gathering_since
        return self._closing or (
            waited_s >= self._linger_s and (waited_s >= _HOLD_S or not len(self._producer))
        )

    def _hand_over(self) -> None:
        """Give gathered records to librdkafka; those it has no room for go on waiting."""
        self._producer.take(self._gathered)

    def _on_error(self, code: int, text: str) -> None:
        if code == KafkaError._FATAL:
            self._fatal = self._producer.fatal() or text
            logger.critical("the producer cannot go on: %s", self._fatal)
        elif code == KafkaError._ALL_BROKERS_DOWN:
            now = time.monotonic()
            self._down_since = now
            if now - self._down_said > _SAY_AGAIN_S:
                self._down_said = now
                logger.warning("no broker can be reached: %s", text)


def append_with(
    send: Callable[..., None],
    loop: asyncio.AbstractEventLoop,
    topic: str,
    value: bytes,
    key: bytes | None,
    headers: Headers | None,
) -> asyncio.Future[RecordPosition]:
    """Hand a record to a producer's `send`; the future gets its position or AppendError."""
    future: asyncio.Future[RecordPosition] = loop.create_future()
    send(topic, value, key, list(headers) if headers else None, partial(_resolve, future))
    return future


def _resolve(
    future: asyncio.Future[RecordPosition],
    error: KafkaError | None,
    position: tuple[str, int, int] | None,
) -> None:
    if future.done():
        return
    if error is None:
        assert position is not None
        future.set_result(RecordPosition(*position))
    else:
        future.set_exception(AppendError(error.str()))
        # Callers that gave up waiting (a closed connection) do not retrieve the exception.
        future.exception()


class LogReader:
    """Reads all partitions of some topics in order, outside of any group, for views.

    `on_records` gets each batch on the event loop; `on_caught_up` is called once, when all records
    that the log had at the start have been handed over. At most four batches wait, so that a slow
    view slows its reader down instead of filling the memory.

    `tail`: None reads from the beginning, 0 only new records, n also the newest n records of each
    partition. `starts` gives the start offsets instead; a partition that it does not name is read
    from its beginning. With `ends` only the partitions that it names are read, up to those offsets;
    then the reader has caught up, and stops. `opened` decrypts sealed records
    (waylog.sealing.value_keys); records that it leaves out are not handed over.
    """

    BATCH_RECORDS: Final = 5000
    BATCHES_WAITING: Final = 4

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        topics: Sequence[str],
        loop: asyncio.AbstractEventLoop,
        *,
        on_records: Callable[[list[Message]], None],
        on_caught_up: Callable[[], None] | None = None,
        tail: int | None = None,
        starts: Mapping[int, int] | None = None,
        ends: Mapping[int, int] | None = None,
        leisurely: bool = False,
        opened: Callable[[Sequence[Message]], list[Message]] | None = None,
        **more: Any,
    ) -> None:
        self._opened = opened
        self._starts = starts
        self._until = ends
        self._leisurely = leisurely
        self._topics = topics
        self._loop = loop
        self._on_records = on_records
        self._on_caught_up = on_caught_up
        self._tail = tail
        self._slots = threading.Semaphore(self.BATCHES_WAITING)
        self._stopping = threading.Event()
        self._consumer = Consumer(
            consumer_config(
                bootstrap_servers,
                client_id,
                f"{client_id}-view",
                **{"fetch_min_bytes": FETCH_MIN_BYTES, "fetch_wait_max_ms": FETCH_WAIT_MS} | more,
            )
        )
        #: Time of the log's last answer, on the clock of time.monotonic().
        self.heard_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=client_id, daemon=True)

    def start(self) -> None:
        """Start reading, in a thread of its own."""
        self._thread.start()

    async def close(self) -> None:
        """Stop reading; no batch is handed over afterwards."""
        self._stopping.set()
        self._slots.release()
        if self._thread.is_alive():
            await self._loop.run_in_executor(None, self._thread.join, 5.0)

    def _run(self) -> None:
        try:
            waiting_for = self._assign()
            if not waiting_for:
                self._hand_over(self._caught_up)
            while not self._stopping.is_set() and (waiting_for or self._until is None):
                began = time.monotonic()
                records = self._next_records()
                if self._leisurely:
                    self._stopping.wait(time.monotonic() - began)
                if records:
                    self._slots.acquire()
                    if self._stopping.is_set():
                        break
                    self._hand_over(self._deliver, records)
                if waiting_for:
                    self._tick_off(waiting_for)
                    if not waiting_for:
                        self._hand_over(self._caught_up)
        except Exception as error:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._failed, error)
        finally:
            self._consumer.close()

    def _failed(self, error: Exception) -> None:
        # A view that has stopped for good must not go unnoticed.
        name = f"reading {', '.join(self._topics)}"
        self._loop.call_exception_handler(
            {"message": f"{name} has ended", "exception": error, BACKGROUND: name}
        )

    def _next_records(self) -> list[Message]:
        # `consume` alone would wait for its whole timeout unless a batch is full.
        first = self._consumer.poll(0.1)
        if first is None:
            self._look_whether_it_answers()
            return []
        self.heard_at = time.monotonic()
        time.sleep(_GATHER_S)
        messages = [first, *self._consumer.consume(self.BATCH_RECORDS, timeout=0)]
        records = [message for message in messages if message.error() is None]
        return records if self._opened is None else self._open(records, self._opened)

    def _look_whether_it_answers(self) -> None:
        """Ask the log for metadata from time to time: without records, it may be unreachable."""
        if time.monotonic() - self.heard_at < _ASK_AGAIN_S:
            return
        with suppress(KafkaException):
            self._consumer.list_topics(self._topics[0], timeout=_ASK_S)
            self.heard_at = time.monotonic()

    def _open(
        self, records: list[Message], opened: Callable[[Sequence[Message]], list[Message]]
    ) -> list[Message]:
        while not self._stopping.is_set():
            try:
                return opened(records)
            except LogUnreachable as error:
                logger.warning("records wait for their keys: %s", error)
        return []

    def _assign(self) -> dict[tuple[str, int], int]:
        """Assign every partition; return the end offset of each that has records to catch up."""
        waiting_for: dict[tuple[str, int], int] = {}
        assignment: list[TopicPartition] = []
        for topic in self._topics:
            for partition in self._partitions(topic):
                if self._until is not None and partition not in self._until:
                    continue
                low, high = self._watermarks(topic, partition)
                if self._until is not None:
                    high = min(high, self._until[partition])
                if self._starts is not None:
                    start = min(max(low, self._starts.get(partition, low)), high)
                    if self._until is not None and start == high:
                        continue
                elif self._tail is None:
                    start = OFFSET_BEGINNING
                elif self._tail == 0:
                    start = high
                else:
                    start = max(low, high - self._tail)
                assignment.append(TopicPartition(topic, partition, start))
                if high > (low if start == OFFSET_BEGINNING else start):
                    waiting_for[(topic, partition)] = high
        self._consumer.assign(assignment)
        return waiting_for

    def _partitions(self, topic: str) -> list[int]:
        while not self._stopping.is_set():
            try:
                metadata = self._consumer.list_topics(topic, timeout=2.0).topics[topic]
                if metadata.error is None and metadata.partitions:
                    return sorted(metadata.partitions)
            except KafkaException as error:
                logger.debug("no metadata of %s yet: %s", topic, error)
            self._stopping.wait(0.1)
        return []

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        while not self._stopping.is_set():
            try:
                low, high = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=2.0
                )
                return low, high
            except KafkaException as error:
                logger.debug("no offsets of %s-%d yet: %s", topic, partition, error)
            self._stopping.wait(0.1)
        return OFFSET_END, OFFSET_END

    def _tick_off(self, waiting_for: dict[tuple[str, int], int]) -> None:
        positions = self._consumer.position(
            [TopicPartition(topic, partition) for topic, partition in waiting_for]
        )
        for position in positions:
            # Compaction and transactions leave gaps in the offsets: only the position is reliable.
            if position.offset >= waiting_for[(position.topic, position.partition)]:
                del waiting_for[(position.topic, position.partition)]

    def _hand_over(self, callback: Callable[..., None], *arguments: Any) -> None:
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _deliver(self, records: list[Message]) -> None:
        try:
            if not self._stopping.is_set():
                self._on_records(records)
        finally:
            self._slots.release()

    def _caught_up(self) -> None:
        if self._on_caught_up is not None and not self._stopping.is_set():
            self._on_caught_up()
