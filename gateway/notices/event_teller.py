"""Follows topic `event` and tells users of what concerns them.

One process of a machine does, the one that holds the lock for notices. It notes in the user
database how far it has told before it tells: after a kill nothing is told twice, and what was
noted and not yet sent is lost. A topology that was killed may write an event twice, with one id; so
the events of the last half of an hour are read again at a start, only to know their ids.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gateway.notices.event_notices import FRESH_MS, EventNotices, Notice, kind_of
from gateway.users.notice_choices import NoticeChoices
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.clients import LogUnreachable
from waylog.kafka.ranges.topic_extent import offsets_at, topic_extent
from waylog.kafka.topics import EVENT
from waylog.malformed import MALFORMED
from waylog.messages import Event, decode_event
from waylog.process.log_throttle import LogThrottle
from waylog.process.machine_lock import MachineLock
from waylog.sealing.sealing import repeated_opener

logger = logging.getLogger(__name__)

_LOCK_S: Final = 1.0
_AGAIN_S: Final = 5.0
#: Events that wait to be told; those that have waited longest are left out beyond that.
_WAITING_MAX: Final = 20_000
#: Events that are looked at between two turns of the event loop.
_AT_ONCE: Final = 200


class EventTeller:
    """Reads the topic on one event loop; `tell` gets each notice once and must not raise."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        choices: NoticeChoices,
        notices: EventNotices,
        once: MachineLock,
        tell: Callable[[Notice], object],
        clock_ms: Callable[[], int],
    ) -> None:
        self._servers = bootstrap_servers
        self._client_id = f"{client_id}-notices"
        self._choices = choices
        self._notices = notices
        self._once = once
        self._tell = tell
        self._begun_ms = clock_ms()
        self._waiting: deque[tuple[int, int, Event]] = deque()
        self._left_out = 0
        self._said = LogThrottle()
        self._wake = asyncio.Event()
        #: The next offset to tell of each partition.
        self._next: dict[int, int] = {}

    async def run(self) -> None:
        """Tell until cancelled, whenever this process holds the lock."""
        while not self._once.held():
            await asyncio.sleep(_LOCK_S)
        reader = await self._open()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._tell_waiting()
        finally:
            await reader.close()

    async def _open(self) -> BatchReader:
        while True:
            try:
                starts = await asyncio.to_thread(self._find_offsets)
                break
            except (LogUnreachable, sqlite3.Error) as error:
                logger.warning("nobody is told of events yet: %s", error)
                await asyncio.sleep(_AGAIN_S)
        reader = BatchReader(
            self._servers,
            self._client_id,
            EVENT,
            asyncio.get_running_loop(),
            on_records=self.on_records,
            starts=starts,
            opened=repeated_opener(self._servers),
        )
        reader.start()
        return reader

    def _find_offsets(self) -> dict[int, int]:
        """Find what is to be told next; return where reading begins. Blocks."""
        log = (self._servers, self._client_id, EVENT)
        end = topic_extent(*log).end
        # At the very first start nothing is told that was there before.
        told = {**end, **offsets_at(*log, self._begun_ms), **self._choices.told()}
        # A topic that was made anew has lower offsets.
        self._next = {each: min(told[each], last) for each, last in end.items()}
        self._choices.set_told(self._next)
        return {**end, **offsets_at(*log, self._begun_ms - FRESH_MS)}

    def on_records(self, records: Sequence[Any]) -> None:
        """Take records of the topic; the callback of BatchReader."""
        for record in records:
            try:
                event = decode_event(record.value() or b"")
            except MALFORMED:
                continue
            partition, offset = record.partition(), record.offset()
            if kind_of(event) is None or record.key() != event.device.encode():
                continue
            if not self._notices.is_news(event) or offset < self._next.get(partition, 0):
                continue
            self._waiting.append((partition, offset, event))
            if len(self._waiting) > _WAITING_MAX:
                self._waiting.popleft()
                self._left_out += 1
        if self._waiting:
            self._wake.set()
        if self._left_out and self._said.count(asyncio.get_running_loop().time()) is not None:
            logger.warning("%d events came too fast to be told", self._left_out)

    async def _tell_waiting(self) -> None:
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
            ends = {partition: offset + 1 for partition, offset, _ in some}
            try:
                choices = await asyncio.to_thread(self._note, ends, [each for _, _, each in some])
            except sqlite3.Error as error:
                # Without a note a kill would have all of it told again.
                logger.error("events are not told: the user database: %s", error)
                continue
            self._next |= ends
            for _, _, event in some:
                self._tell_of(event, choices[event.device])

    def _note(
        self, ends: Mapping[int, int], events: Sequence[Event]
    ) -> dict[str, dict[str, frozenset[str]]]:
        """Note how far events were told; return what was chosen for their devices."""
        self._choices.set_told(ends)
        return {device: self._choices.of_all(device) for device in {e.device for e in events}}

    def _tell_of(self, event: Event, choices: Mapping[str, frozenset[str]]) -> None:
        try:
            for notice in self._notices.notices(event, choices):
                self._tell(notice)
        except Exception:
            # The others are not concerned.
            logger.exception("an event of %r could not be told", event.device)
