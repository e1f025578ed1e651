"""Ranges of the log, for viewers that reconnect and want what they missed.

A range is read in steps. Between two steps, while the viewer takes the events, the reader is free
for others, so a viewer that does not read blocks none. Each user has a share of the readers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)

from gateway.limits.pools import Turns
from gateway.viewers.cursors import Cursor
from gateway.views.view import ViewEvent
from waylog.kafka.clients import consumer_config
from waylog.sealing.sealing import opener

#: Records read for one viewer, visible to it or not; older ones are left out.
RECORDS_MAX: Final = 200_000
#: Records per step.
_STEP_RECORDS: Final = 500
_STEP_S: Final = 0.2
_SILENCE_S: Final = 5.0
#: Concurrent steps in total, and of one user.
_READERS_MAX: Final = 4
_READERS_EACH: Final = 2
#: Seconds after which an unused reader is closed.
_IDLE_S: Final = 10.0
#: Records fetched ahead are discarded when another viewer uses the reader.
_FETCHED_AHEAD: Final = {"queued_max_messages_kbytes": 1024, "fetch_message_max_bytes": 256 * 1024}


class _Place(msgspec.Struct):
    lat: float
    lon: float


_place = msgspec.json.Decoder(_Place)


class LogRanges:
    """Reads ranges of the log."""

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self._config = consumer_config(
            bootstrap_servers,
            f"{client_id}-range",
            f"{client_id}-range",
            auto_offset_reset="earliest",
            **_FETCHED_AHEAD,
        )
        self._turns = Turns(_READERS_MAX, _READERS_EACH)
        self._threads = ThreadPoolExecutor(_READERS_MAX, thread_name_prefix="log-range")
        self._opened = opener(bootstrap_servers) or list
        # Unused readers, by the range at which they are positioned; the last used is at the end.
        self._idle: OrderedDict[object, Consumer] = OrderedDict()
        self._readers = 0
        self._closing: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        """Close all readers."""
        if self._closing is not None:
            self._closing.cancel()
        await self._close_idle()
        self._threads.shutdown(wait=False)

    async def read(
        self, start: Cursor, end: Cursor, party: str
    ) -> AsyncGenerator[list[ViewEvent], None]:
        """Yield batches of records from `start` to `end` (exclusive), each partition in order.

        A partition that is not in `start` is read from its beginning. Of more than RECORDS_MAX
        records the oldest are left out. A log that does not answer ends the range early. `party` is
        the user whose share of the readers is used.
        """
        share = max(1, RECORDS_MAX // max(1, len(end)))
        begin = {
            partition: max(start.get(partition, 0), offset - share)
            for partition, offset in end.items()
        }
        remaining = {each: offset for each, offset in begin.items() if offset < end[each]}
        loop = asyncio.get_running_loop()
        token = object()
        silent_s = 0.0
        try:
            while remaining and silent_s < _SILENCE_S:
                async with self._turns.turn(party):
                    began = loop.time()
                    try:
                        events, left = await self._step(token, remaining, end)
                    except KafkaException:
                        return
                    silent_s = 0.0 if left != remaining else silent_s + loop.time() - began
                    remaining = left
                if events:
                    yield events
        finally:
            self._let_go(token)

    async def _step(
        self, token: object, remaining: Cursor, end: Cursor
    ) -> tuple[list[ViewEvent], Cursor]:
        """Read the next records; return them, and the next offsets that remain."""
        reader = self._idle.pop(token, None)
        assigned = reader is not None
        if reader is None and self._readers >= _READERS_MAX and self._idle:
            _, reader = self._idle.popitem(last=False)
        if reader is None:
            self._readers += 1
        future = asyncio.get_running_loop().run_in_executor(
            self._threads, self._read, reader, assigned, remaining, end
        )
        try:
            used, events, remaining = await asyncio.shield(future)
        except asyncio.CancelledError:
            # The reader is not free before its thread has finished.
            future.add_done_callback(self._returned)
            raise
        except Exception:
            self._readers -= 1
            raise
        self._idle[token] = used
        return events, remaining

    def _returned(self, future: asyncio.Future[tuple[Consumer, list[ViewEvent], Cursor]]) -> None:
        if future.cancelled() or future.exception() is not None:
            self._readers -= 1
            return
        self._idle[object()] = future.result()[0]
        self._close_later()

    def _read(
        self, reader: Consumer | None, assigned: bool, remaining: Cursor, end: Cursor
    ) -> tuple[Consumer, list[ViewEvent], Cursor]:
        """Read one step in a thread. Raises KafkaException, after closing the reader."""
        consumer = Consumer(self._config) if reader is None else reader
        try:
            if not assigned:
                consumer.assign(
                    [
                        TopicPartition(topic, partition, offset or OFFSET_BEGINNING)
                        for (topic, partition), offset in remaining.items()
                    ]
                )
            wanted = sum(end[each] - offset for each, offset in remaining.items())
            messages = consumer.consume(min(_STEP_RECORDS, wanted), _STEP_S)
            events = _events(self._opened(messages), end)
            asked = [TopicPartition(topic, partition) for topic, partition in remaining]
            left: Cursor = {}
            for position in consumer.position(asked):
                key = (position.topic, position.partition)
                # Compaction leaves gaps in the offsets: only the position shows that the end is
                # reached.
                offset = max(position.offset, remaining[key])
                if offset < end[key]:
                    left[key] = offset
        except BaseException:
            consumer.close()
            raise
        return consumer, events, left

    def _let_go(self, token: object) -> None:
        """Free the reader of a range that has been read, or is read no further."""
        reader = self._idle.pop(token, None)
        if reader is not None:
            free = object()
            self._idle[free] = reader
            self._idle.move_to_end(free, last=False)  # the first that others will use
            self._close_later()

    def _close_later(self) -> None:
        loop = asyncio.get_running_loop()
        if self._closing is not None:
            self._closing.cancel()
        self._closing = loop.call_later(_IDLE_S, self._close_now)

    def _close_now(self) -> None:
        idle, self._idle = self._idle, OrderedDict()
        self._readers -= len(idle)
        for reader in idle.values():
            self._threads.submit(reader.close)

    async def _close_idle(self) -> None:
        idle, self._idle = self._idle, OrderedDict()
        self._readers -= len(idle)
        loop = asyncio.get_running_loop()
        for reader in idle.values():
            await loop.run_in_executor(self._threads, reader.close)


def _events(messages: list[Message], end: Cursor) -> list[ViewEvent]:
    events: list[ViewEvent] = []
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        key, value = message.key(), message.value()
        if message.error() is not None or key is None or value is None:
            continue
        assert topic is not None and partition is not None and offset is not None
        if offset >= end[(topic, partition)]:
            continue
        try:
            place = _place.decode(value)
            device = key.decode()
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        events.append(ViewEvent(topic, partition, offset, device, place.lat, place.lon, value))
    return events
