"""Writes configurations as the leader of workers with exactly-once sources (KIP-618).

Whoever leads takes over the transactional id of the group: a former leader that does not know yet
that it leads no more can write nothing from then on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.storage.config_records import Record
from waylog.kafka.clients import client_config
from waylog.kafka.errors import error_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.process.threads import start_thread

logger = logging.getLogger(__name__)

_CALL_S: Final = 20.0
_PURGE_S: Final = 1.0


class LeaderWriter:
    """The producer; methods may be called in any thread."""

    def __init__(self, topic: str, properties: Mapping[str, Any]) -> None:
        """`properties` are the producer's, with the transactional id of the group's leader."""
        self._topic: Final = topic
        self._properties: Final = properties
        self._lock: Final = threading.Lock()
        self._producer: LibrdkafkaProducer | None = None

    def write(self, records: Sequence[Record]) -> Future[None]:
        """Write records in a transaction; ConnectException: none is written."""
        return self._later(lambda: self._write(records))

    def claim(self) -> Future[None]:
        """Fence other leaders, since this worker leads now; ConnectException if that fails.

        The next write tries it again then.
        """
        return self._later(self._claim)

    def _later(self, work: Callable[[], None]) -> Future[None]:
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()

        def run() -> None:
            try:
                work()
            except ConnectException as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        start_thread(run, "write-configurations", may_end=lambda: True)
        return done

    def _claim(self) -> None:
        with self._lock:
            self._give_up()
            try:
                self._claimed()
            except KafkaException as error:
                raise ConnectException(error_text(error)) from error

    def _write(self, records: Sequence[Record]) -> None:
        with self._lock:
            try:
                producer = self._claimed()
                producer.begin_transaction()
                for each in records:
                    producer.produce(self._topic, each.value, each.key.encode())
                producer.commit_transaction(_CALL_S)
            except KafkaException as error:
                # The next write takes the right over again, if this worker still leads then.
                self._give_up()
                raise ConnectException(error_text(error)) from error

    def _claimed(self) -> LibrdkafkaProducer:
        producer = self._producer
        if producer is None:
            producer = LibrdkafkaProducer(self._properties)
            producer.init_transactions(_CALL_S)
            self._producer = producer
            logger.info("this worker has the right to write configurations")
        return producer

    def _give_up(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            try:
                producer.flush(_PURGE_S)
            except KafkaException as error:
                logger.debug("giving up the right to write: %s", error_text(error))


def leader_properties(bootstrap_servers: str, transactional_id: str) -> dict[str, Any]:
    """Return the properties of the producer of whoever leads."""
    return client_config(
        bootstrap_servers,
        transactional_id,
        transactional_id=transactional_id,
        enable_idempotence=True,
        acks="all",
        linger_ms=0,
        compression_type="none",
        partitioner="murmur2_random",
    )
