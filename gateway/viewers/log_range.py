"""Ranges of the log, for viewers that reconnect and want what they missed.

A range is read in steps. Nothing of it is held between two steps, while the viewer takes the
events, so a viewer that does not read blocks none. Each user has a share of the steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from gateway.limits.pools import Turns
from gateway.viewers.cursors import Cursor
from gateway.views.view import ViewEvent
from waylog.kafka.batch_reader import Opened
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.fetched_records import FetchedRecord
from waylog.kafka.partition_fetcher import NotFetched, PartitionFetcher
from waylog.kafka.protocol.requests import MalformedAnswer
from waylog.malformed import MALFORMED
from waylog.sealing.sealing import opener_if_configured

logger = logging.getLogger(__name__)

#: Records read for one viewer, visible to it or not; older ones are left out.
RECORDS_MAX: Final = 200_000
#: Without any progress for this long a range is cut off.
_SILENCE_S: Final = 5.0
#: Pause before the next step if nothing could be read.
_PAUSE_S: Final = 0.1
#: Concurrent steps in total, and of one user.
_STEPS_MAX: Final = 4
_STEPS_EACH: Final = 2


class RangeCutOff(Exception):
    """The log does not answer, so the rest of a range cannot be read now; the message says why."""


class _Place(msgspec.Struct):
    lat: float
    lon: float


_place = msgspec.json.Decoder(_Place)


class LogRanges:
    """Reads ranges of the log."""

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self._fetcher = PartitionFetcher(
            bootstrap_servers, f"{client_id}-range", answer_timeout_s=_SILENCE_S
        )
        self._turns = Turns(_STEPS_MAX, _STEPS_EACH)
        self._opened: Opened | None = opener_if_configured(bootstrap_servers)
        self._opening = ThreadPoolExecutor(_STEPS_MAX, thread_name_prefix="log-range")

    async def close(self) -> None:
        """Close the connections; ranges that are being read are cut off."""
        await self._fetcher.close()
        self._opening.shutdown(wait=False)

    async def read(
        self, start: Cursor, end: Cursor, party: str
    ) -> AsyncGenerator[list[ViewEvent], None]:
        """Yield batches of records from `start` to `end` (exclusive), each partition in order.

        A partition that is not in `start` is read from its beginning. Of more than RECORDS_MAX
        records the oldest are left out. `party` is the user whose share of the steps is used.
        A damaged log ends the range early. Raises RangeCutOff if the log does not answer.
        """
        share = max(1, RECORDS_MAX // max(1, len(end)))
        begin = {
            partition: max(start.get(partition, 0), offset - share)
            for partition, offset in end.items()
        }
        remaining = {each: offset for each, offset in begin.items() if offset < end[each]}
        loop = asyncio.get_running_loop()
        silent_s = 0.0
        while remaining:
            reason = "it does not have the newest records"
            async with self._turns.turn(party):
                began = loop.time()
                events: list[ViewEvent] = []
                left = remaining
                try:
                    records, left = await self._fetcher.fetch(remaining, end)
                    events = _events(await self._open(records))
                except (NotFetched, LogUnreachable) as error:
                    left, reason = remaining, str(error)
                except MalformedAnswer as error:
                    # Whatever it is, it is there at the next attempt too.
                    logger.error("viewers do not get all that they missed: %s", error)
                    return
                took_s = loop.time() - began
            if left != remaining:
                remaining, silent_s = left, 0.0
                await asyncio.sleep(0)
            else:
                silent_s += took_s + _PAUSE_S
                if silent_s >= _SILENCE_S:
                    raise RangeCutOff(f"the log cannot be read: {reason}")
                await asyncio.sleep(_PAUSE_S)
            if events:
                yield events

    async def _open(self, records: list[FetchedRecord]) -> Sequence[FetchedRecord]:
        if self._opened is None or not records:
            return records
        loop = asyncio.get_running_loop()
        opened: list[FetchedRecord] = await loop.run_in_executor(
            self._opening, self._opened, records
        )
        return opened


def _events(records: Sequence[FetchedRecord]) -> list[ViewEvent]:
    events: list[ViewEvent] = []
    for record in records:
        key, value = record.key(), record.value()
        if key is None or value is None:
            continue
        try:
            place = _place.decode(value)
            device = key.decode()
        except MALFORMED:
            continue
        events.append(
            ViewEvent(
                record.topic(),
                record.partition(),
                record.offset(),
                device,
                place.lat,
                place.lon,
                value,
            )
        )
    return events
