"""Appends the journal's records until the log has them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from gateway.mqtt.journal.journal import Record
from waylog.kafka.clients import AppendError, AppendQueueFull
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

#: Seconds before records that the log has not taken are appended again; they double up to the
#: second figure while it takes none.
_AGAIN_S: Final = 1.0
_AGAIN_MAX_S: Final = 30.0
#: Records that are appended again in one turn of the loop.
_AGAIN_MAX: Final = 200

Delivered = Callable[[AppendError | None, Any], None]


class _Refused(NamedTuple):
    value: bytes | None
    at_ms: int  # Unix time at which it was appended first


class RepeatedRecords:
    """Appends records of a compacted topic until they are stored; of each key the newest alone.

    What clients were promised of their sessions and retained messages depends on it: the journal
    takes a record for written as soon as it is appended.
    """

    def __init__(
        self,
        send: Callable[[bytes, bytes | None, Delivered], None],
        wall_ms: Callable[[], int],
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`send(key, value, on_delivery)` raises AppendError; `later` calls back after seconds."""
        self._send_record = send
        self._wall_ms = wall_ms
        self._clock = clock
        self._later = later
        self._is_due = False
        self._pause_s = _AGAIN_S
        self._is_over = False
        self._count = 0
        # Of keys with a record under way: the number of the newest.
        self._newest: dict[bytes, int] = {}
        self._refused: dict[bytes, _Refused] = {}
        self._said = LogThrottle()

    def __len__(self) -> int:
        """The number of keys whose newest record the log has not taken."""
        return len(self._refused)

    def append(self, key: bytes, value: bytes | None) -> None:
        """Append a record, which replaces earlier ones of its key."""
        self._refused.pop(key, None)
        self._send(key, _Refused(value, self._wall_ms()))

    def read(self, records: Iterable[Record]) -> None:
        """Forget what other processes have replaced in the log meanwhile."""
        if not self._refused:
            return
        for record in records:
            refused = self._refused.get(record.key() or b"")
            if refused is not None and record.timestamp()[1] > refused.at_ms:
                del self._refused[record.key() or b""]

    def left(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the records that the log has not taken, as (key, value), and forget them.

        Nothing is appended again from now on: records that follow in another way are newer.
        """
        self._is_over = True
        while self._refused:
            key, refused = self._refused.popitem()
            yield key, refused.value

    def _send(self, key: bytes, record: _Refused) -> None:
        self._count += 1
        number = self._newest[key] = self._count
        try:
            self._send_record(key, record.value, partial(self._delivered, key, record, number))
        except AppendQueueFull as error:
            self._delivered(key, record, number, error, None)
        except AppendError as error:
            # It is too large, or nothing can be appended any more and the process ends.
            del self._newest[key]
            logger.error("a record of an MQTT session or retained message is lost: %s", error)

    def _delivered(
        self, key: bytes, record: _Refused, number: int, error: AppendError | None, _: Any
    ) -> None:
        if self._newest.get(key) != number:
            return  # a newer one is on its way
        del self._newest[key]
        if error is None:
            self._pause_s = _AGAIN_S
            return
        if self._is_over:
            logger.error("a record of an MQTT session or retained message is lost: %s", error)
            return
        self._refused[key] = record
        if self._said.count(self._clock()) is not None:
            logger.warning(
                "%d records of MQTT sessions and retained messages are not stored, and are "
                "appended again: %s",
                *(len(self._refused), error),
            )
        self._repeat_later()

    def _repeat_later(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._later(self._pause_s, self._repeat)
            self._pause_s = min(2 * self._pause_s, _AGAIN_MAX_S)

    def _repeat(self) -> None:
        self._is_due = False
        for key in list(islice(self._refused, _AGAIN_MAX)):
            self._send(key, self._refused.pop(key))
        if self._refused:
            self._repeat_later()
