"""Writes refused records to topic `error`, without which other results can go on.

A producer of its own: what it cannot write must neither fail nor hold up the addresses. It is not
idempotent, so that a missing right on the topic is an error of a record, not the producer's end; a
record may come twice. A record that the topic refuses for good is shortened, and left out if it is
refused again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from consumers.worker.records import OutputRecord
from waylog.kafka.clients import producer_config
from waylog.kafka.errors import is_purged, not_stored_text
from waylog.kafka.librdkafka_producer import LibrdkafkaProducer
from waylog.malformed import MALFORMED
from waylog.messages import decode_rejected, encode, shortened
from waylog.process.log_throttle import LogThrottle, since_last_line
from waylog.process.process_status import ProcessStatus
from waylog.sealing.sealing import shared_key_ring

logger = logging.getLogger(__name__)

_KIND: Final = "dead letters"
#: Seconds for which a refusal counts, unless a record is stored before.
_REFUSED_FOR_S: Final = 600.0


class DeadLetters:
    """The records on their way to topic `error`. Used in one thread."""

    def __init__(self, bootstrap_servers: str, client_id: str, status: ProcessStatus) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._status = status
        self._producer: LibrdkafkaProducer | None = None
        # Records that were refused, and whether they had been shortened.
        self._refused: deque[tuple[OutputRecord, bool, KafkaError]] = deque()
        self._said = LogThrottle()

    def send(self, letter: OutputRecord) -> None:
        """Queue a record; raises BufferError if the log does not keep up, and LogUnreachable."""
        self._send(letter, is_short=False)

    def send_all(self, letters: Iterable[OutputRecord], wait: Callable[[], None]) -> None:
        """Queue records; calls `wait` while the log does not keep up, which may raise."""
        for letter in letters:
            while True:
                try:
                    self.send(letter)
                    break
                except BufferError:
                    self.flush(0.05)
                    wait()

    def flush(self, timeout_s: float) -> int:
        """Wait for acknowledgements, and return how many are still missing."""
        if self._producer is None:
            return 0
        waiting = self._producer.flush(timeout_s)
        while self._refused:
            letter, is_short, error = self._refused[0]
            if is_short or error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                self._leave_out(letter, error)
            else:
                try:
                    self._send(_shortened(letter), is_short=True)
                except BufferError:
                    return waiting
            self._refused.popleft()
        return max(waiting, len(self._producer))

    def purge(self) -> None:
        """Forget what is on its way: its records were not committed, so they come again."""
        self._refused.clear()
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(1.0)

    def _send(self, letter: OutputRecord, *, is_short: bool) -> None:
        if self._producer is None:
            self._producer = LibrdkafkaProducer(
                producer_config(
                    self._bootstrap_servers,
                    f"{self._client_id}-errors",
                    enable_idempotence=False,
                    delivery_timeout_ms=0,  # waits for the broker, however long that is away
                    # Of several records in one request none is stored if one is too large.
                    batch_num_messages=1,
                    linger_ms=0,
                    queue_buffering_max_messages=8_000,
                    queue_buffering_max_kbytes=8 * 1024,
                )
            )
        value, headers = letter.value, letter.headers
        keys = shared_key_ring(self._bootstrap_servers)
        if keys is not None:
            value = keys.seal_value(letter.topic, value, letter.key)
        more: dict[str, Any] = {} if headers is None else {"headers": dict(headers)}
        answered = partial(self._answered, letter, is_short)
        try:
            self._producer.produce(letter.topic, value, letter.key, on_delivery=answered, **more)
        except KafkaException as error:
            self._refused.append((letter, is_short, error.args[0]))

    def _answered(
        self, letter: OutputRecord, is_short: bool, error: KafkaError | None, _: Message
    ) -> None:
        if error is None:
            self._status.over(_KIND)
        elif not is_purged(error):
            self._refused.append((letter, is_short, error))

    def _leave_out(self, letter: OutputRecord, error: KafkaError) -> None:
        why = not_stored_text(error, letter.topic)
        unsaid = self._said.count(time.monotonic())
        if unsaid is not None:
            more = since_last_line(unsaid)
            logger.error(
                "%s is left out: topic %s does not take it: %s%s",
                *(_source(letter), letter.topic, why, more),
            )
        self._status.trouble(_KIND, f"topic {letter.topic} refuses records: {why}", _REFUSED_FOR_S)


def _source(letter: OutputRecord) -> str:
    try:
        source = decode_rejected(letter.value).headers or {}
    except MALFORMED:
        source = {}
    return "the refused record {}-{} at {}".format(
        *(source.get(name, "?") for name in ("topic", "partition", "offset"))
    )


def _shortened(letter: OutputRecord) -> OutputRecord:
    """Return a record without what was refused, which says where that is."""
    short = shortened(decode_rejected(letter.value))
    return msgspec.structs.replace(letter, key=None, value=encode(short), headers=None)
