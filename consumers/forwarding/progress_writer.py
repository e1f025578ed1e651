"""Writes how far forwardings are, and the group's offsets, in transactions.

A transaction counts only if the group accepts its offsets from this process as the owner of its
partitions (KIP-447). So a former owner writes nothing more, however long its requests were on their
way, or it was frozen: what it has written already stays invisible. Whoever takes a partition over
waits for its offset until such a transaction is decided.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from waylog.kafka.clients import producer_config
from waylog.kafka.errors import error_text, forbidden_kind, forbidden_text, not_stored_text
from waylog.kafka.group_membership import Generation
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.kafka.topics import FORWARDING_PROGRESS, LOCATION

logger = logging.getLogger(__name__)

#: Time after which the log aborts what a killed process has begun; until then readers of progress
#: see nothing newer, and nobody gets its partitions. The group waits as long for a silent member,
#: and a broker takes less to start again.
_TRANSACTION_MS: Final = 10_000
_ABORT_S: Final = 1.0
_POLL_S: Final = 0.05

#: A key, and a value that is sealed already; None removes what the log has of the key.
Record = tuple[bytes, bytes | None]


class NotWritten(Exception):
    """The log may have all of a transaction or nothing of it; the message says why."""


class ProgressWriter:
    """Used in the thread of the consumer, while its partitions do not change."""

    def __init__(
        self, bootstrap_servers: str, client_id: str, group: str, consumer: Consumer
    ) -> None:
        """`consumer`, which reads for the group, has not subscribed yet."""
        self._consumer: Final = consumer
        self._generation: Final = Generation(consumer)
        #: Of this process alone, for all its producers: each one ends what the one before has left.
        self._transactional_id: Final = f"{group}-{uuid.uuid4()}"
        self._properties: Final[dict[str, Any]] = producer_config(
            bootstrap_servers,
            f"{client_id}-progress",
            transactional_id=self._transactional_id,
            transaction_timeout_ms=_TRANSACTION_MS,
            delivery_timeout_ms=_TRANSACTION_MS,
            # See consumers.worker.exactly_once: a coordinator that is gone is noticed by it.
            connections_max_idle_ms=3000,
        )
        self._producer: LibrdkafkaProducer | None = None

    def write(
        self, offsets: Mapping[int, int], records: Sequence[Record], patience_s: float
    ) -> None:
        """Write progress, and the group's offsets by partition; raises NotWritten.

        `offsets` names all partitions to which the records belong. Blocks for `patience_s`, and a
        second more if that is too short.
        """
        deadline = time.monotonic() + patience_s
        metadata = self._consumer.consumer_group_metadata()
        if not self._generation.is_in(metadata):
            raise NotWritten("the group has put this process out")
        places = [TopicPartition(LOCATION, *each) for each in offsets.items()]
        try:
            producer = self._ready(deadline)
            producer.begin_transaction()
            for key, value in records:
                self._produce(producer, key, value, deadline)
            # Before the offsets: what the group accepts is in the log as a whole.
            while producer.flush(_POLL_S):
                _check(deadline)
            _call(
                lambda left_s: producer.send_offsets_to_transaction(places, metadata, left_s),
                deadline,
            )
            _call(producer.commit_transaction, deadline)
        except (KafkaException, NotWritten) as error:
            self._abort()
            raise NotWritten(self._text(error)) from error

    def close(self) -> None:
        """End the producer."""
        self._drop()

    def _ready(self, deadline: float) -> LibrdkafkaProducer:
        if self._producer is None:
            self._producer = LibrdkafkaProducer(self._properties)
            _call(self._producer.init_transactions, deadline)
        return self._producer

    def _produce(
        self, producer: LibrdkafkaProducer, key: bytes, value: bytes | None, deadline: float
    ) -> None:
        while True:
            try:
                return producer.produce(FORWARDING_PROGRESS, value, key)
            except BufferError:
                producer.poll(_POLL_S)
                _check(deadline)

    def _abort(self) -> None:
        """Abort what is open; otherwise the next producer does, before it writes anything."""
        if self._producer is None:
            return
        try:
            self._producer.abort_transaction(_ABORT_S)
        except KafkaException as error:
            logger.debug("a transaction is not aborted: %s", error_text(error))
            self._drop()

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        producer.purge()
        try:
            producer.flush(_POLL_S)
        except KafkaException as error:
            logger.debug("the producer of progress ends: %s", error_text(error))

    def _text(self, error: KafkaException | NotWritten) -> str:
        if not isinstance(error, KafkaException):
            return str(error)
        if forbidden_kind(error) == "transactional id":
            return forbidden_text(f"transactional id {self._transactional_id}", "WRITE")
        if forbidden_kind(error) == "group":
            return error_text(error)
        return not_stored_text(error, FORWARDING_PROGRESS)


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise NotWritten("the log does not answer in time")


def _call(function: Callable[[float], object], deadline: float) -> None:
    """Call the log with the seconds that are left, again while that is worth it."""
    while True:
        try:
            function(max(deadline - time.monotonic(), _POLL_S))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        else:
            return
