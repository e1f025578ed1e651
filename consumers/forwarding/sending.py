"""Gives forwardings their turns to send, and takes note of what came of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from consumers.connect.data.exceptions import kafka_name_of
from consumers.connect.data.records import SinkRecord
from consumers.connect.http.delivery import Refusal
from consumers.forwarding.delivery import Delivery, Result
from consumers.forwarding.ledger import Ledger
from consumers.forwarding.route import Route
from consumers.forwarding.schedule import Failure, Schedule
from waylog.forwarding.definition import letter_source
from waylog.history.erasures import Erasures
from waylog.kafka.clients import AppendError
from waylog.kafka.dead_letters import CONNECT_PREFIX
from waylog.kafka.topics import FORWARDING_DEAD_LETTER
from waylog.process.background import TaskSet
from waylog.process.log_throttle import LogThrottle
from waylog.sealing.sealing import LogProducer

logger = logging.getLogger(__name__)

#: Records of one turn of a forwarding.
_TURN_RECORDS: Final = 100
_PAUSE_S: Final = 1.0
#: Seconds for which a stop waits for requests that are under way.
_FINISH_S: Final = 3.0


class Sending:
    """Used on one event loop."""

    def __init__(
        self,
        ledger: Ledger,
        schedule: Schedule,
        usual: Delivery,
        deliveries: Mapping[str, Delivery],
        letters: LogProducer,
        erasures: Erasures,
    ) -> None:
        """`deliveries` are those of kinds that the usual one does not send."""
        self._ledger: Final = ledger
        self._schedule: Final = schedule
        self._usual: Final = usual
        self._deliveries: Final = deliveries
        self._letters: Final = letters
        self._erasures: Final = erasures
        self._sending: Final = TaskSet("forwarding")
        self._said: Final = LogThrottle()
        self.counts: Final = {"forwarded": 0, "refused": 0, "failed": 0}
        #: Set when something may have its turn.
        self.work: Final = asyncio.Event()

    async def finish(self) -> None:
        """Wait for what is under way, for a time: what is answered does not come again."""
        try:
            async with asyncio.timeout(_FINISH_S):
                await self._sending.wait()
        except TimeoutError:
            logger.info("some forwardings are not answered yet; their records come again")

    async def close(self) -> None:
        """End what is under way."""
        await self._sending.close()

    async def run(self) -> None:
        """Start the requests that have their turn."""
        while True:
            now = time.monotonic()
            for route in self._schedule.next(now):
                self._sending.start(self._send_turn(route), partial(self._has_failed, route))
            due = self._schedule.due()
            wait_s = _PAUSE_S if due is None else min(max(due - time.monotonic(), 0.01), _PAUSE_S)
            try:
                async with asyncio.timeout(wait_s):
                    await self.work.wait()
            except TimeoutError:
                continue
            self.work.clear()

    async def _send_turn(self, route: Route) -> None:
        began = time.monotonic()
        revision = route.forwarding.revision
        records: list[SinkRecord] = []
        erased: list[SinkRecord] = []
        for record in route.batch(_TURN_RECORDS):
            is_gone = self._erasures.covers(record.key, record.timestamp or 0)
            (erased if is_gone else records).append(record)
        self._ledger.done(route, erased, began)
        result = Result()
        if records:
            delivery = self._deliveries.get(route.forwarding.kind, self._usual)
            result = await delivery.deliver(route, records)
        now = time.monotonic()
        self._ledger.done(route, result.done, now)
        for refusal in result.refused:
            self._note_refusal(route, refusal)
        self.counts["forwarded"] += len(result.done) - len(result.refused)
        failure = result.failure
        if failure is not None and revision == route.forwarding.revision:
            self.counts["failed"] += 1
            if route.error != failure.reason:
                route.error, route.error_time = failure.reason, _now_ms()
        elif result.done:
            route.error = route.error_time = None
        self._schedule.end(route, failure, now, now - began)
        self.work.set()

    def _has_failed(self, route: Route, _error: Exception) -> None:
        """Go on after an error of ours, which is in the log, as after one of the server's."""
        route.error, route.error_time = "an error of the platform; its log says more", _now_ms()
        self._schedule.end(route, Failure(route.error), time.monotonic(), 0.0)

    def _note_refusal(self, route: Route, refusal: Refusal) -> None:
        self.counts["refused"] += 1
        record = refusal.record
        self._ledger.refused(route, record, str(refusal.error))
        told = {
            "topic": record.original_topic,
            "partition": str(record.original_partition),
            "offset": str(record.original_offset),
            "connector.name": letter_source(route.user, route.id),
            "exception.class.name": kafka_name_of(refusal.error),
            "exception.message": str(refusal.error),
        }
        headers: list[tuple[str, str | bytes | None]] = [
            (CONNECT_PREFIX + name, text.encode("utf-8", "replace")) for name, text in told.items()
        ]
        key = str(record.key).encode()
        try:
            self._letters.send(FORWARDING_DEAD_LETTER, record.value, key, headers, _ignore)
        except AppendError as error:
            # The fix itself is in `location`, and the owner sees that something was refused.
            if self._said.count(time.monotonic()) is not None:
                logger.warning("a dead letter of a forwarding is not stored: %s", error)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ignore(_error: AppendError | None, _position: Any) -> None:
    """Take no note of what became of a record."""
