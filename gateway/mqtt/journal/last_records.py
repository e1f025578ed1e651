"""Appends the records of an orderly stop, as fast as the log takes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from gateway.mqtt.journal.stored import LastRecord
from waylog.kafka.clients import AppendError, AppendQueueFull
from waylog.kafka.topics import MQTT_STATE
from waylog.sealing.sealing import LogProducer

logger = logging.getLogger(__name__)

#: Bytes of records in flight: few enough to bound memory, enough to keep the log busy.
_UNDER_WAY_BYTES_MAX: Final = 16 * 1024 * 1024
#: Seconds before another attempt when the producer's queue is full.
_PAUSE_S: Final = 0.01


class LastRecords:
    """Appends the records of one stop within `timeout_s`, and logs how many were written.

    A session counts as written when its own record is, which follows those it refers to.
    """

    def __init__(self, producer: LogProducer, timeout_s: float) -> None:
        self._producer = producer
        self._timeout_s = timeout_s
        self._under_way_bytes = 0
        self._under_way = 0
        self._answered = asyncio.Event()
        self.sessions = 0
        self.messages = 0
        self.sessions_lost = 0
        self.messages_lost = 0

    async def write(self, records: Iterator[LastRecord]) -> None:
        """Append all records, or as many as the time allows."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(self._timeout_s):
                for record in records:
                    await self._append(record)
                while self._under_way:
                    await self._next_answer()
        except TimeoutError:
            # Records in flight may still arrive, but do not count as written.
            self.sessions_lost += self._under_way
            for record in records:
                self._lost(record)
        took_s = loop.time() - started
        if self.sessions_lost or self.messages_lost:
            logger.error(
                "%d MQTT sessions, with %d messages that wait for clients, could not be written "
                "in %.1f s; %d sessions with %d messages are in the log",
                *(self.sessions_lost, self.messages_lost, took_s, self.sessions, self.messages),
            )
        elif self.messages:
            logger.info(
                "%d MQTT sessions, with %d messages that wait for clients, written in %.1f s",
                *(self.sessions, self.messages, took_s),
            )

    async def _append(self, record: LastRecord) -> None:
        size = len(record.value or b"")
        while self._under_way_bytes and self._under_way_bytes + size > _UNDER_WAY_BYTES_MAX:
            await self._next_answer()
        delivered = partial(self._delivered, record)
        while True:
            try:
                self._producer.send(MQTT_STATE, record.value, record.key, None, delivered)
            except AppendQueueFull:
                await asyncio.sleep(_PAUSE_S)
            except AppendError:
                self._lost(record)
                return
            else:
                break
        self._under_way += 1
        self._under_way_bytes += size

    async def _next_answer(self) -> None:
        self._answered.clear()
        await self._answered.wait()

    def _delivered(self, record: LastRecord, error: Any, _message: Any) -> None:
        self._under_way -= 1
        self._under_way_bytes -= len(record.value or b"")
        self._answered.set()
        if error is not None:
            self._lost(record)
            return
        self.messages += record.messages
        self.sessions += record.is_session

    def _lost(self, record: LastRecord) -> None:
        self.messages_lost += record.messages
        self.sessions_lost += record.is_session
