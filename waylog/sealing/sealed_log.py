"""A producer that encrypts ("seals") the values of all topics that may hold positions.

The first value of a device waits until the log has stored the device's new key, so that any value
that is acknowledged can be read. If the key cannot be stored, the values that wait for it fail with
it, as soon as the producer gives the key up; the next value of the device brings another key. They
fail as well if an error in this program keeps them from being sealed. All
methods are called on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any, Final

from waylog.kafka.clients import (
    AppendError,
    AppendQueueFull,
    DeliveryCallback,
    Headers,
    RecordHeaders,
    RecordPosition,
    append_with,
)
from waylog.kafka.topics import VALUE_KEY
from waylog.observability.telemetry import now_ms
from waylog.process.log_throttle import LogThrottle
from waylog.sealing.sealing import LogProducer, is_sealed_topic, owner_of_record
from waylog.sealing.value_encryption import ValueKey, record_key, seal, wrap
from waylog.sealing.value_keys import KeyRing

logger = logging.getLogger(__name__)

#: The number of records that may wait for a key.
_WAITING_MAX: Final = 10_000

_Waiting = tuple[str, bytes | None, bytes | None, RecordHeaders | None, DeliveryCallback]


class SealedLog:
    """A producer that seals values and passes them on to another producer."""

    def __init__(
        self, producer: LogProducer, ring: KeyRing, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._producer = producer
        self._ring = ring
        self._loop = loop
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._waiting_count = 0
        self._said = LogThrottle()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: RecordHeaders | None,
        on_delivery: DeliveryCallback,
    ) -> None:
        """Queue a record as waylog.kafka.batch_producer.BatchProducer.send does."""
        if not is_sealed_topic(topic):
            self._producer.send(topic, value, key, headers, on_delivery)
            return
        owner = owner_of_record(topic, key, headers)
        waiting = self._waiting.get(owner)
        if waiting is None:
            if value is None:
                self._producer.send(topic, None, key, headers, on_delivery)
                return
            own = self._ring.newest_of(owner)
            if own is not None:
                self._producer.send(topic, seal(value, own, key), key, headers, on_delivery)
                return
        if self._waiting_count >= _WAITING_MAX:
            raise AppendQueueFull("the log does not keep up: too many devices wait for a key")
        if waiting is None:
            self._make_key(owner)
            waiting = self._waiting[owner] = deque()
        waiting.append((topic, value, key, headers, on_delivery))
        self._waiting_count += 1

    def append(
        self,
        topic: str,
        value: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> asyncio.Future[RecordPosition]:
        """Queue a record as waylog.kafka.batch_producer.BatchProducer.append does."""
        return append_with(self.send, self._loop, topic, value, key, headers)

    def __len__(self) -> int:
        """Return the number of records that wait for an acknowledgement or for a key."""
        return len(self._producer) + self._waiting_count

    @property
    def fatal(self) -> str | None:
        """The reason why nothing can ever be appended again; None while it can."""
        return self._producer.fatal

    @property
    def trouble(self) -> str | None:
        """The reason why nothing can be appended now, if one is known; see BatchProducer."""
        return self._producer.trouble

    @property
    def acknowledged_at(self) -> float:
        """The loop's time of the last acknowledgement."""
        return self._producer.acknowledged_at

    async def close(self, timeout_s: float = 10.0) -> int:
        """Wait up to `timeout_s` for all acknowledgements; return how many are missing."""
        deadline = self._loop.time() + timeout_s
        while self._waiting_count and self._loop.time() < deadline:
            await asyncio.sleep(0.01)
        left = max(0.0, deadline - self._loop.time())
        return await self._producer.close(left) + self._waiting_count

    def _make_key(self, owner: str) -> None:
        """Send a new key to the log; raises AppendError as `send` does."""
        key = ValueKey.new(owner)
        record = wrap(key, self._ring.master, now_ms())
        self._producer.send(
            VALUE_KEY, record, record_key(key), None, partial(self._key_answered, key)
        )

    def _key_answered(self, key: ValueKey, error: AppendError | None, _position: Any) -> None:
        if error is not None:
            self._fail_waiting(key.owner, f"cannot be stored: {self._producer.trouble or error}")
            return
        try:
            self._ring.add(key)
            self._send_waiting(key.owner)
        except Exception as failure:
            # Values that went on waiting would keep all later ones of their owner waiting, too.
            logger.exception("values that waited for their key could not be sealed")
            self._fail_waiting(key.owner, f"could not be used ({type(failure).__name__})")

    def _send_waiting(self, owner: str) -> None:
        waiting = self._waiting[owner]
        # Callbacks may send more, which has to stay behind.
        while waiting:
            topic, value, record, headers, on_delivery = waiting[0]
            key = self._ring.newest_of(owner)
            if key is None:
                # It was destroyed since it was stored.
                self._make_key_again(owner)
                return
            # A tombstone has waited too, to stay behind the value that it deletes.
            sealed = None if value is None else seal(value, key, record)
            failed = None
            try:
                self._producer.send(topic, sealed, record, headers, on_delivery)
            except AppendError as error:
                failed = error
            waiting.popleft()
            self._waiting_count -= 1
            if failed is not None:
                _tell(on_delivery, failed)
        del self._waiting[owner]

    def _make_key_again(self, owner: str) -> None:
        try:
            self._make_key(owner)
        except AppendError as error:
            self._fail_waiting(owner, f"cannot be stored: {self._producer.trouble or error}")

    def _fail_waiting(self, owner: str, problem: str) -> None:
        """Fail the values that wait for a key.

        They were not sent, so nothing of them is in the log; whoever sent them may repeat them.
        """
        waiting = self._waiting.pop(owner)
        self._waiting_count -= len(waiting)
        why = AppendError(f"the key that seals the values {problem}")
        unsaid = self._said.count(self._loop.time())
        if unsaid is not None:
            logger.warning("%s (%d more devices since the last such line)", why, unsaid)
        for *_, on_delivery in waiting:
            _tell(on_delivery, why)


def _tell(on_delivery: DeliveryCallback, error: AppendError) -> None:
    try:
        on_delivery(error, None)
    except Exception:
        # An error in one callback must not keep the others from being called.
        logger.exception("a callback of a delivery failed")
