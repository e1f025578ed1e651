"""The answers of a fallback in a Kafka topic, so that no place is requested twice.

All processes and all services share one compacted topic. A process reads it from the beginning and
keeps reading, so that it also learns the answers that other processes get. The key is the service
and the cell, some 100 m wide; a newer answer replaces an older one. Answers expire after 30 days,
which is as long as the terms of most services allow to keep them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from geoservice.reverse.geocoder import Place
from waylog.kafka.clients import LogUnreachable, consumer_config, ensure_topics, producer_config
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.polling import next_messages
from waylog.kafka.topics import Topic
from waylog.malformed import MALFORMED
from waylog.observability.telemetry import now_ms
from waylog.process.threads import Rounds, start_thread

logger = logging.getLogger(__name__)

GEOCODED: Final = "geocoded"
RETENTION_MS: Final = 30 * 24 * 60 * 60 * 1000

_TOPIC: Final = Topic(
    GEOCODED,
    1,
    {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(RETENTION_MS),
        "segment.bytes": str(16 * 1024 * 1024),
    },
)
_BATCH_RECORDS: Final = 1000
_WAIT_S: Final = 0.2
_QUEUED_MAX: Final = 1000
_CLOSE_S: Final = 2.0
_RETRY_S: Final = 1.0

Cell = tuple[int, int]


class Answer(msgspec.Struct, omit_defaults=True):
    """A record of topic `geocoded`."""

    service: str
    row: int  # of the cell, see fallback.py
    column: int
    time: int  # of the answer, ms since 1970
    place: Place | None = None  # None: the service has no answer either


_decode = msgspec.json.Decoder(Answer).decode
_encode = msgspec.json.Encoder().encode


class AnswerLog:
    """The answers of one service, read from and written to the topic."""

    def __init__(self, bootstrap_servers: str, service: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._service = service
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._producer = LibrdkafkaProducer(
            producer_config(
                bootstrap_servers,
                "geocoded",
                # If an answer does not fit the queue, it is lost and will be requested again.
                queue_buffering_max_messages=_QUEUED_MAX,
            )
        )

    def start(self, learn: Callable[[Cell, Place | None], None], loaded: threading.Event) -> None:
        """Start a thread that reads the topic and calls `learn`."""
        self._thread = start_thread(
            partial(self._run, learn, loaded), "geocoded", may_end=self._stopping.is_set
        )

    def put(self, cell: Cell, place: Place | None) -> None:
        """Queue an answer to be written to the topic."""
        answer = Answer(self._service, *cell, now_ms(), place)
        key = f"{self._service}:{cell[0]}:{cell[1]}".encode()
        try:
            self._producer.produce(GEOCODED, _encode(answer), key, partition=0)
            self._producer.poll(0)
        except (BufferError, KafkaException):
            logger.info("an answer of %s is not kept: the log does not keep up", self._service)

    def close(self) -> None:
        """Stop reading; wait up to two seconds for queued answers and for the thread."""
        self._stopping.set()
        self._producer.finish(_CLOSE_S, GEOCODED)
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self, learn: Callable[[Cell, Place | None], None], loaded: threading.Event) -> None:
        rounds = Rounds(f"reading the answers of {self._service} from the log")
        while not self._stopping.is_set():
            is_read = rounds.once(partial(self._read, learn, loaded))
            # Threads that wait for the answers continue without them.
            loaded.set()
            if not is_read:
                self._stopping.wait(_RETRY_S)

    def _await_topic(self) -> bool:
        while not self._stopping.is_set():
            try:
                ensure_topics(self._bootstrap_servers, [_TOPIC], timeout_s=2.0)
                return True
            except (LogUnreachable, KafkaException):
                self._stopping.wait(1.0)
        return False

    def _read(self, learn: Callable[[Cell, Place | None], None], loaded: threading.Event) -> None:
        """Read the topic from its beginning, until a stop."""
        if not self._await_topic():
            return
        consumer = Consumer(
            consumer_config(
                self._bootstrap_servers,
                "geocoded",
                "geocoded-none",
                enable_partition_eof=True,
                queued_max_messages_kbytes=1024,
            )
        )
        try:
            consumer.assign([TopicPartition(GEOCODED, 0, 0)])
            while not self._stopping.is_set():
                for message in next_messages(consumer, _BATCH_RECORDS, _WAIT_S):
                    self._take(message, learn, loaded)
        finally:
            consumer.close()

    def _take(
        self,
        message: Message,
        learn: Callable[[Cell, Place | None], None],
        loaded: threading.Event,
    ) -> None:
        error: Any = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF and not loaded.is_set():
                loaded.set()
            return
        value = message.value()
        if value is None:
            return
        try:
            answer = _decode(value)
        except MALFORMED:
            return
        if answer.service == self._service and answer.time > now_ms() - RETENTION_MS:
            learn((answer.row, answer.column), answer.place)
