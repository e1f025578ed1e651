"""A stretch of the log, for a viewer that comes back and wants what it missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
)

from gateway.viewers import Cursor
from gateway.views import ViewEvent
from waylog.kafka import consumer_config
from waylog.sealing import opener

#: Records read for one viewer, whether they are for it or not; what is older is left out.
RECORDS_MAX: Final = 200_000
_BATCH_RECORDS: Final = 2_000
_SILENCE_S: Final = 5.0
#: Viewers that are served at the same time.
_READERS_MAX: Final = 4


class _Place(msgspec.Struct):
    lat: float
    lon: float


_place = msgspec.json.Decoder(_Place)


class LogRanges:
    """Reads stretches of the log."""

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client_id = client_id
        self._readers = asyncio.Semaphore(_READERS_MAX)
        self._opened = opener(bootstrap_servers) or list

    async def read(self, start: Cursor, end: Cursor) -> AsyncIterator[list[ViewEvent]]:
        """Batches of records from `start` to `end` (exclusive), each partition in order.

        A partition that `start` does not name is read from its beginning. When there is more than
        RECORDS_MAX, the oldest is left out. A log that stays silent ends the range early.
        """
        share = max(1, RECORDS_MAX // max(1, len(end)))
        begin = {
            partition: max(start.get(partition, 0), offset - share)
            for partition, offset in end.items()
        }
        begin = {each: offset for each, offset in begin.items() if offset < end[each]}
        if not begin:
            return
        async with self._readers:
            loop = asyncio.get_running_loop()
            consumer = Consumer(
                consumer_config(
                    self._bootstrap_servers,
                    f"{self._client_id}-range",
                    f"{self._client_id}-range",
                    auto_offset_reset="earliest",
                )
            )
            try:
                consumer.assign(
                    [
                        TopicPartition(topic, partition, offset or OFFSET_BEGINNING)
                        for (topic, partition), offset in begin.items()
                    ]
                )
                remaining = dict.fromkeys(begin)
                silent_until = loop.time() + _SILENCE_S
                while remaining and loop.time() < silent_until:
                    messages = await loop.run_in_executor(
                        None, consumer.consume, _BATCH_RECORDS, 0.2
                    )
                    if messages:
                        silent_until = loop.time() + _SILENCE_S
                    events = _events(await loop.run_in_executor(None, self._opened, messages), end)
                    if events:
                        yield events
                    _tick_off(consumer, remaining, end)
            except KafkaException:
                return
            finally:
                await asyncio.shield(loop.run_in_executor(None, consumer.close))


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


def _tick_off(consumer: Consumer, remaining: dict[tuple[str, int], None], end: Cursor) -> None:
    asked = [TopicPartition(topic, partition) for topic, partition in remaining]
    for position in consumer.position(asked):
        # Compaction leaves holes: only the position tells that the end has been reached.
        if position.offset >= end[(position.topic, position.partition)]:
            del remaining[(position.topic, position.partition)]
