"""confluent_kafka's producer, with fatal errors that can be caught."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from waylog.kafka.clients import LogUnreachable, producer_config
from waylog.kafka.errors import not_stored_text

_FORBIDDEN: Final = "authorization failed"
_FATAL: Final = "Fatal error: "


class _FatalErrors(logging.Logger):
    """Keeps the fatal error that librdkafka logs.

    It does not know its producer: confluent_kafka hides loggers from Python's cycle collector, so
    that a producer which its logger referred to would keep its threads and connections for ever.
    """

    def __init__(self) -> None:
        super().__init__("librdkafka")
        self.text: str | None = None
        self.addFilter(self._keep)

    def _keep(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if _FATAL in text:
            self.text = text.partition(_FATAL)[2]
        return False  # what arrives as an error need not be logged


class LibrdkafkaProducer(confluent_kafka.Producer):
    """A producer whose fatal error always is a KafkaException that says which one it is.

    confluent_kafka sets an exception for it amid the callbacks of `poll` and `flush`, and calls the
    others nevertheless. The first one that calls a function of C ends in a SystemError, in which
    the reason may be lost. librdkafka also logs it, whatever `log_level` is, before that.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Raises KafkaException for a wrong configuration."""
        self._log: Final = _FatalErrors()
        super().__init__({**config, "logger": self._log})

    @property
    def has_failed(self) -> bool:
        """Tell whether a fatal error has ended the producer."""
        return self._log.text is not None

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks, see confluent_kafka.Producer; raises KafkaException."""
        try:
            return super().poll(timeout)
        except SystemError as error:
            raise self._fatal_error(error) from error

    def flush(self, timeout: float = -1) -> int:
        """Wait for deliveries, see confluent_kafka.Producer; raises KafkaException."""
        try:
            return super().flush(timeout)
        except SystemError as error:
            raise self._fatal_error(error) from error

    def finish(self, timeout_s: float, topic: str) -> str | None:
        """Wait until all records have been delivered or have failed; return why some still wait.

        `topic` is the one that is named if it is forbidden.
        """
        try:
            return "no answer" if self.flush(timeout_s) else None
        except KafkaException as error:
            return not_stored_text(error, topic)

    def _fatal_error(self, raised: BaseException) -> KafkaException:
        cause: BaseException | None = raised
        while cause is not None:
            if isinstance(cause, KafkaException):
                return cause
            if isinstance(cause, KafkaError):
                return KafkaException(cause)
            cause = cause.__cause__ or cause.__context__
        text = self._log.text or "the producer has failed"
        forbidden = _FORBIDDEN in text
        code = KafkaError.CLUSTER_AUTHORIZATION_FAILED if forbidden else KafkaError._FATAL
        return KafkaException(KafkaError(code, text, fatal=True))


def append_records(
    bootstrap_servers: str,
    records: Sequence[tuple[str, bytes, bytes | None]],
    what: str = "records",
    *,
    client_id: str = "waylog-append",
) -> None:
    """Append (topic, key, value) records and wait until all are stored.

    Raises LogUnreachable, whose message says `what` they are.
    """
    producer = LibrdkafkaProducer(producer_config(bootstrap_servers, client_id))
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(not_stored_text(error, message.topic() or ""))

    for topic, key, value in records:
        while True:
            try:
                producer.produce(topic, value, key, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                failures.append(not_stored_text(error, topic))
                break
    waiting = producer.finish(30.0, records[0][0] if records else what)
    if waiting or failures:
        raise LogUnreachable(f"{what}: {waiting or failures[0]}")
