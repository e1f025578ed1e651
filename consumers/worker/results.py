"""How results get into the log, and the offsets of their records into the group.

A session has one of two ways, by the processing guarantee (`processing.guarantee` of Kafka
Streams): AtLeastOnceResults, or ExactlyOnceResults, which writes both in transactions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from confluent_kafka import KafkaError, Message, TopicPartition

from consumers.worker.assignment import Assignment, Ends
from consumers.worker.erasure_filter import ErasureFilter
from consumers.worker.membership import Membership
from consumers.worker.processor import StateT
from consumers.worker.records import OutputRecord, StateRecord
from waylog.kafka.clients import producer_config
from waylog.kafka.errors import is_purged, not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.sealing.sealing import shared_key_ring

logger = logging.getLogger(__name__)

#: Records of the state topic, by partition.
Changes: TypeAlias = Mapping[int, Sequence[StateRecord]]

#: Lets librdkafka choose the partition by the key.
_BY_KEY: Final = -1
_NOTHING_MORE: Final[dict[str, Any]] = {}


class SessionFailed(Exception):
    """The clients of this session cannot go on; new ones can."""


class TransactionAborted(Exception):
    """What was written since the last commit is void; the message says why.

    The session can go on from the offsets that are committed, with states as they were then.
    """


class Results(Protocol[StateT]):
    """What a session does with results and offsets. Used in the session's thread.

    All methods but `close` may raise SessionFailed, KafkaException and TransactionAborted.
    """

    def start(self) -> bool:
        """Prepare to write, before partitions are assigned; False if the worker stops before."""

    def write(self, outputs: Sequence[OutputRecord], changes: Changes, ends: Ends[StateT]) -> None:
        """Queue the results of records up to the offsets `ends`, or results of no new records.

        `changes` of states are not stored before the results.
        """

    def settle(self) -> None:
        """Store what is queued and commit offsets, as far as that is due after a batch."""

    def hand_over(self, leaving: Sequence[Assignment[StateT]]) -> None:
        """Store all results and commit the offsets of these partitions, as far as time allows."""

    def give_up(self) -> None:
        """Note that results may be incomplete: no offset of their records may be committed."""

    def abandon(self) -> None:
        """Note that partitions were lost: what is not committed belongs to their new owner."""

    def on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Take the answer to a commit of the consumer's."""

    def close(self) -> None:
        """Forget what is not stored; its records were not committed, so they come again."""


class ResultProducer:
    """A producer of results: sealed, and without those of erased devices."""

    def __init__(
        self, membership: Membership[Any], erased: ErasureFilter, more: dict[str, Any]
    ) -> None:
        """`more` has properties beside those of both processing guarantees."""
        self._erased = erased
        self._keys = shared_key_ring(membership.bootstrap_servers)
        self._state_topic = membership.processor.state_topic
        self._fatal: KafkaError | None = None
        #: The first result that was not stored: its topic, and why. One that was given up because
        #: of another counts only until that is known.
        self.failed: tuple[str, KafkaError] | None = None
        self.client: Final = LibrdkafkaProducer(
            producer_config(
                membership.bootstrap_servers,
                membership.client_id,
                # Longer than a batch takes; a flush ends it.
                linger_ms=100,
                queue_buffering_max_messages=8_000,
                queue_buffering_max_kbytes=8 * 1024,
            )
            | {
                "error_cb": self._on_error,
                # Success is known from the flush that ends a batch.
                "delivery.report.only.error": True,
                "on_delivery": self._on_delivery,
            }
            | more
        )

    def produce(self, outputs: Iterable[OutputRecord], wait: Callable[[], None]) -> None:
        """Queue results; calls `wait` while the queue is full, which may raise what it likes.

        Raises KafkaException for a result that no topic could take.
        """
        produce, keys = self.client.produce, self._keys
        for output in self._erased.without_results(outputs):
            topic, key, value, partition = output.topic, output.key, output.value, output.partition
            if keys is not None and value is not None:
                value = keys.seal_value(topic, value, key)
            if partition is None:
                partition = _BY_KEY
            more = _NOTHING_MORE
            if output.headers is not None or output.timestamp is not None:
                more = _more(output)
            try:
                produce(topic, value, key, partition, **more)
            except BufferError:
                self._produce_later(wait, topic, value, key, partition, **more)

    def produce_changes(self, changes: Changes, wait: Callable[[], None]) -> None:
        """Queue changes of states, as `produce` does."""
        topic = self._state_topic
        for partition, records in changes.items():
            for key, value in records:
                sealed = value
                if self._keys is not None and value is not None:
                    sealed = self._keys.seal_value(topic, value, key)
                try:
                    self.client.produce(topic, sealed, key, partition)
                except BufferError:
                    self._produce_later(wait, topic, sealed, key, partition)

    def _produce_later(self, wait: Callable[[], None], *record: Any, **more: Any) -> None:
        """Queue a record once there is room for it: the log does not keep up."""
        while True:
            self.client.poll(0.05)
            wait()
            try:
                return self.client.produce(*record, **more)
            except BufferError:
                continue

    def check(self) -> None:
        """Raise SessionFailed after a fatal error."""
        if self._fatal is not None:
            raise SessionFailed(not_stored_text(self._fatal, self._state_topic))

    def close(self) -> None:
        """Forget what is queued; raises KafkaException if the producer has failed."""
        self.client.purge()
        self.client.flush(1.0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and (self.failed is None or is_purged(self.failed[1])):
            self.failed = (message.topic() or "", error)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error


def _more(output: OutputRecord) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if output.headers is not None:
        more["headers"] = output.headers
    if output.timestamp is not None:
        more["timestamp"] = output.timestamp
    return more
