"""A producer that encrypts ("seals") the values of all topics that may hold positions.

The first value of a device waits until the log has stored the device's new key, so that any value
that is acknowledged can be read. All methods are called on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
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
from waylog.sealing.sealing import LogProducer, is_sealed_topic, owner_of_record
from waylog.sealing.value_encryption import ValueKey, record_key, seal, wrap
from waylog.sealing.value_keys import KeyRing

logger = logging.getLogger(__name__)

#: The number of records that may wait for a key.
_WAITING_MAX: Final = 10_000
_RETRY_S: Final = 0.5

_Waiting = tuple[str, bytes | None, bytes | None, RecordHeaders | None, DeliveryCallback]


class SealedLog:
    """A producer that seals values and passes them on to another producer."""

    def __init__(
        self, producer: LogProducer, ring: KeyRing, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._producer = producer
        self._ring = ring
        self._loop = loop
        self._waiting: dict[str, list[_Waiting]] = {}
        self._waiting_count = 0

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
            waiting = self._waiting[owner] = []
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

    def _key_answered(self, key: ValueKey, error: Any, _position: Any) -> None:
        if error is None:
            self._ring.add(key)
            self._send_waiting(key.owner)
        else:
            logger.warning("a key could not be stored yet: %s", error)
            self._loop.call_later(_RETRY_S, self._make_key_again, key.owner)

    def _make_key_again(self, owner: str) -> None:
        try:
            self._make_key(owner)
        except AppendError:
            if self.fatal is None:
                self._loop.call_later(_RETRY_S, self._make_key_again, owner)

    def _send_waiting(self, owner: str) -> None:
        waiting = self._waiting[owner]
        key = self._ring.newest_of(owner)
        while waiting and key is not None:
            topic, value, record, headers, on_delivery = waiting[0]
            try:
                # A tombstone has waited too, to stay behind the value that it deletes.
                sealed = None if value is None else seal(value, key, record)
                self._producer.send(topic, sealed, record, headers, on_delivery)
            except AppendError:
                if self.fatal is None:
                    self._loop.call_later(_RETRY_S, self._send_waiting, owner)
                return
            waiting.pop(0)
            self._waiting_count -= 1
        if waiting:
            # The key was destroyed since it was stored.
            self._make_key_again(owner)
            return
        del self._waiting[owner]
