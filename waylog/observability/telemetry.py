"""Writes interceptor records and log messages into their topics.

Telemetry must never slow a program down or stop it: the queue is bounded, records that do not fit
are counted and dropped, and only the leader's acknowledgement is asked for.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer

from waylog.kafka.clients import client_config
from waylog.kafka.topics import LOG
from waylog.observability.log_lines import exception_of, message_of


class KafkaTelemetry:
    """Sends records of the topics `performance`, `parameter` and `log`; implements Telemetry."""

    QUEUE_RECORDS: Final = 10_000

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self.client_id = client_id
        self.dropped = 0
        self._producer = LibrdkafkaProducer(
            client_config(
                bootstrap_servers,
                f"{client_id}-telemetry",
                acks=1,
                linger_ms=250,
                compression_type="lz4",
                queue_buffering_max_messages=self.QUEUE_RECORDS,
                message_timeout_ms=30_000,
                # Nobody reads the reports of successful deliveries.
                delivery_report_only_error=True,
            )
            | {"logger": logging.getLogger("waylog.observability.telemetry.librdkafka")}
        )

    def record(self, topic: str, value: bytes, key: bytes | None = None) -> None:
        """Queue one record, or drop and count it."""
        try:
            self._producer.produce(topic, value, key)
            self._producer.poll(0)
        except (BufferError, KafkaException):
            self.dropped += 1

    def close(self, timeout_s: float = 2.0) -> None:
        """Send the queued records, for at most `timeout_s`."""
        self._producer.flush(timeout_s)


class KafkaLogHandler(logging.Handler):
    """A handler of Python's logging that feeds the topic `log`."""

    def __init__(self, telemetry: KafkaTelemetry, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._telemetry = telemetry
        # Messages about sending messages would cause more of them.
        self.addFilter(lambda record: not record.name.startswith("waylog.observability.telemetry"))

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one message; never raises."""
        try:
            line: dict[str, Any] = {
                "time": int(record.created * 1000),
                "level": record.levelname,
                "logger": record.name,
                "message": message_of(record),
                "process": self._telemetry.client_id,
                "pid": record.process,
            }
            if record.exc_info:
                line["exception"] = exception_of(record.exc_info)
            self._telemetry.record(LOG, msgspec.json.encode(line))
        except Exception:
            self.handleError(record)


def now_ms() -> int:
    """Return milliseconds since 1970-01-01 UTC, the unit of all times in messages."""
    return time.time_ns() // 1_000_000
