"""Reads for the forwardings that are behind, from their own offsets on, until they are live."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from confluent_kafka import KafkaException

from consumers.forwarding.arrivals import arrived, user_of
from consumers.forwarding.ledger import Ledger
from consumers.forwarding.route import Entry, Route
from consumers.forwarding.schedule import Schedule
from waylog.history.erasures import Erasures
from waylog.kafka.errors import error_text
from waylog.kafka.partition_fetcher import NotFetched, PartitionFetcher
from waylog.kafka.protocol.requests import MalformedAnswer
from waylog.kafka.topics import LOCATION
from waylog.process.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

#: A fetch is not bounded by it, but by the bytes of one answer.
_FAR: Final = 1_000_000
_LOOK_S: Final = 0.2
_PAUSE_S: Final = 1.0


class ReadingAgain:
    """All that are behind in a partition share the chunks that are read; used on one event loop.

    Each chunk begins where the one is whose turn was longest ago. Those that are in the same chunk
    go on together from then on, so reading costs no more than the log, however many are behind.
    """

    def __init__(
        self,
        ledger: Ledger,
        schedule: Schedule,
        fetcher: PartitionFetcher,
        erasures: Erasures,
        opened: Callable[[list[Any]], list[Any]],
        first_offset: Callable[[int], Awaitable[int]],
        work: asyncio.Event,
    ) -> None:
        """`first_offset` tells what retention has left of a partition; `work` is set when something
        waits.
        """
        self._ledger: Final = ledger
        self._schedule: Final = schedule
        self._fetcher: Final = fetcher
        self._erasures: Final = erasures
        self._opened: Final = opened
        self._first_offset: Final = first_offset
        self._work: Final = work
        self._said: Final = LogThrottle()

    async def run(self, partition: int) -> None:
        """Read a partition for the forwardings that are behind, chunk by chunk."""
        while True:
            began = time.monotonic()
            chosen = self._chosen(partition)
            if not chosen:
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                await self._read_chunk(partition, chosen)
            except (NotFetched, MalformedAnswer, KafkaException) as error:
                if self._said.count(time.monotonic()) is not None:
                    logger.warning("%s-%d cannot be read: %s", LOCATION, partition, _text(error))
                await asyncio.sleep(_PAUSE_S)
            # At most half of the time is spent on this: the live ones go first.
            await asyncio.sleep(min(time.monotonic() - began, _LOOK_S))

    def _chosen(self, partition: int) -> list[tuple[Route, Entry]]:
        """Return whom to read for: of a server that is down only one forwarding."""
        now = time.monotonic()
        down: set[str] = set()
        chosen = []
        for route, entry in self._ledger.eligible(partition):
            if not self._schedule.may_try(route, now):
                continue
            if self._schedule.is_failing(route):
                if route.origin in down:
                    continue
                down.add(route.origin)
            chosen.append((route, entry))
        return chosen

    async def _read_chunk(self, partition: int, chosen: list[tuple[Route, Entry]]) -> None:
        entry = chosen[0][1]
        start, place = entry.offset, (LOCATION, partition)
        assert start is not None
        self._ledger.had_turn(entry)
        records, left = await self._fetcher.fetch({place: start}, {place: start + _FAR})
        end = left.get(place)
        if end is None:
            # The log ends before: it is another one than it was.
            end = start
        elif not records and end > start:
            first = await self._first_offset(partition)
            if first > start:
                self._ledger.skip_deleted(partition, start, first)
                return
        users = {route.user for route, _ in chosen}
        wanted: list[Any] = [each for each in records if user_of(each.key()) in users]
        if wanted:
            wanted = await asyncio.to_thread(self._opened, wanted)
        now = time.monotonic()
        touched = self._ledger.take_behind(
            *(partition, start, end, arrived(wanted, self._erasures), chosen, now)
        )
        for route in touched:
            self._schedule.offer(route, now)
        if touched:
            self._work.set()


def _text(error: Exception) -> str:
    return error_text(error) if isinstance(error, KafkaException) else str(error)
