"""Writes dead letters to their topic (KIP-298)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from consumers.connect.data.exceptions import ConnectException
from consumers.connect.errors.dead_letters import DeadLetter
from waylog.kafka.errors import error_text, not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer

logger = logging.getLogger(__name__)

_REQUEST_S: Final = 30.0
_POLL_S: Final = 0.1


class _Stored(Future[None]):
    """Is done when a letter is stored. Who waits for it takes acknowledgements meanwhile, since no
    other thread does.
    """

    def __init__(self, writer: DeadLetterWriter) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self._writer: Final = writer

    def result(self, timeout: float | None = None) -> None:
        """See Future."""
        self._writer.wait_for(self, timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See Future."""
        self._writer.wait_for(self, timeout)
        return super().exception(0)


class DeadLetterWriter:
    """The producer of one task's dead letters. All methods are called in the task's thread."""

    def __init__(
        self,
        topic: str,
        replication_factor: int,
        producer: Mapping[str, Any],
        admin: Mapping[str, Any],
    ) -> None:
        """Create the topic if it does not exist; raises ConnectException.

        `producer` and `admin` are properties of clients.
        """
        self._topic: Final = topic
        try:
            _ensure_topic(AdminClient(dict(admin)), topic, replication_factor)
            self._producer: Final = LibrdkafkaProducer(producer)
        except KafkaException as error:
            raise ConnectException(
                f"Could not initialize dead letter queue with topic={topic}: {error_text(error)}"
            ) from error
        self._waiting: Final[set[Future[None]]] = set()

    def write(self, letter: DeadLetter) -> Future[None]:
        """Write a letter; the future is done when the log has it, or has refused it."""
        future = _Stored(self)
        self._waiting.add(future)
        self._produce(future, letter)
        return future

    def _produce(self, future: Future[None], letter: DeadLetter) -> None:
        try:
            while True:
                try:
                    self._producer.produce(
                        letter.topic,
                        letter.value,
                        letter.key,
                        headers=list(letter.headers),
                        timestamp=letter.timestamp or 0,
                        on_delivery=partial(self._delivered, future, letter),
                    )
                    break
                except BufferError:
                    self._producer.poll(_POLL_S)
            self._producer.poll(0)
        except KafkaException as error:
            self._refused(future, letter, error)

    def wait_for(self, future: Future[None], timeout_s: float | None) -> None:
        """Wait until a letter is stored or refused, at most for a time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not future.done() and (deadline is None or time.monotonic() < deadline):
            self._producer.poll(_POLL_S)

    def wait(self, timeout_s: float) -> bool:
        """Wait for all letters that are on their way; return whether none is left.

        Raises ConnectException if the producer has failed.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while self._waiting and (left_s := deadline - time.monotonic()) > 0:
                self._producer.flush(min(left_s, _POLL_S))
        except KafkaException as error:
            raise ConnectException(f"dead letters: {error_text(error)}") from error
        return not self._waiting

    def close(self, timeout_s: float) -> None:
        """Wait for letters that are on their way, and give up those that are not there in time."""
        try:
            if not self.wait(timeout_s):
                logger.warning("%d dead letters were not written", len(self._waiting))
                self._producer.purge()
                self._producer.flush(1.0)
        except (KafkaException, ConnectException) as error:
            logger.warning("dead letters: %s", error_text(error))
        finally:
            # Its threads and connections would otherwise live until a garbage collection.
            self._producer.close()

    def _delivered(
        self, future: Future[None], letter: DeadLetter, error: KafkaError | None, _message: Message
    ) -> None:
        if error is not None:
            self._refused(future, letter, KafkaException(error))
            return
        self._waiting.discard(future)
        future.set_result(None)

    def _refused(self, future: Future[None], letter: DeadLetter, error: KafkaException) -> None:
        if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE and letter.value is not None:
            logger.warning(
                "A record is too large for dead letter topic %s, which gets its place only: %s",
                self._topic,
                error_text(error),
            )
            self._produce(future, letter.without_content())
            return
        self._waiting.discard(future)
        text = not_stored_text(error, self._topic)
        logger.error(
            "Could not produce message to dead letter queue. topic=%s: %s", self._topic, text
        )
        future.set_exception(ConnectException(f"dead letter for topic {self._topic}: {text}"))


def _ensure_topic(admin: AdminClient, topic: str, replication_factor: int) -> None:
    found = admin.list_topics(timeout=_REQUEST_S).topics.get(topic)
    if found is not None and found.error is None:
        return
    logger.info("topic %s for dead letters does not exist and is created", topic)
    new = NewTopic(topic, num_partitions=1, replication_factor=replication_factor)
    try:
        admin.create_topics([new], request_timeout=_REQUEST_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
