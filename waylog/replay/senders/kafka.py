"""Writes directly into topic `location`, without the gateway: fastest for large archives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from waylog.kafka.batch_producer import BatchProducer
from waylog.kafka.clients import AppendError, AppendQueueFull, RecordPosition
from waylog.kafka.topics import LOCATION
from waylog.messages import encode
from waylog.observability.telemetry import now_ms
from waylog.replay.senders import wire
from waylog.replay.senders.tally import Tally
from waylog.replay.senders.wire import Outgoing
from waylog.sealing.sealing import LogProducer, sealed_if_configured

_WINDOW: Final = 20_000
_DELIVERY_TIMEOUT_MS: Final = 120_000
_FULL_S: Final = 0.05
_BACKOFF_S: Final = 0.5


class KafkaSender:
    """Appends records, and repeats each until the log has acknowledged it."""

    def __init__(self, bootstrap_servers: str, tally: Tally) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._tally = tally
        self._window = asyncio.Semaphore(_WINDOW)
        self._again: set[asyncio.Task[None]] = set()

    async def run(self, fixes: AsyncIterator[Outgoing]) -> None:
        """Append all; returns when all are acknowledged."""
        loop = asyncio.get_running_loop()
        producer = sealed_if_configured(
            BatchProducer(
                self._bootstrap_servers,
                "waylog-replay",
                loop,
                delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
            ),
            self._bootstrap_servers,
            loop,
        )
        try:
            async for fix in fixes:
                await self._window.acquire()
                self._tally.fix_sent(fix)
                await self._append(producer, fix)
            for _ in range(_WINDOW):
                await self._window.acquire()
        finally:
            for task in self._again:
                task.cancel()
            await producer.close()

    async def _append(self, producer: LogProducer, fix: Outgoing) -> None:
        value, key = encode(wire.message(fix, now_ms())), fix.device.encode()
        while True:
            try:
                future = producer.append(LOCATION, value, key)
                break
            except AppendQueueFull:
                await asyncio.sleep(_FULL_S)

        def answered(position: asyncio.Future[RecordPosition]) -> None:
            if position.cancelled():
                return
            error = position.exception()
            if error is None:
                self._tally.fix_acknowledged(fix)
                self._window.release()
            else:
                self._tally.attempt_failed(str(error))
                task = asyncio.ensure_future(self._append_later(producer, fix))
                self._again.add(task)
                task.add_done_callback(self._again.discard)

        future.add_done_callback(answered)

    async def _append_later(self, producer: LogProducer, fix: Outgoing) -> None:
        # A producer that failed for good gives no more answers: `Tally.watch` notices the silence.
        while producer.fatal is None:
            await asyncio.sleep(_BACKOFF_S)
            try:
                await self._append(producer, fix)
                return
            except AppendError as error:
                self._tally.attempt_failed(str(error))
