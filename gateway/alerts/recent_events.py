"""The newest events of users' devices, for the page: read from the log when first asked for."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gateway.alerts.followed_topic import follow
from gateway.fixes.erasure_reader import Record
from gateway.notices.event_notices import kind_of
from waylog.history.erasures import Erasures
from waylog.kafka.batch_reader import BatchReader
from waylog.kafka.ranges.topic_extent import offsets_at, topic_extent
from waylog.kafka.topics import EVENT
from waylog.malformed import MALFORMED
from waylog.messages import Event, decode_event
from waylog.observability.telemetry import now_ms

_DAYS_MS: Final = 7 * 24 * 3_600_000
#: Records of a partition that are read at a start, events that are kept of a user, and users.
_RECORDS_MAX: Final = 5_000
_EVENTS_MAX: Final = 200
_USERS_MAX: Final = 5_000
#: Requests of one user that wait for news.
_WAITING_EACH_MAX: Final = 6


class NumberedEvent(NamedTuple):
    """An event, its kind, and its number among those of its user that this process has read."""

    number: int
    event: Event
    kind: str


class RecentEvents:
    """Used on one event loop."""

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self._servers: Final = bootstrap_servers
        self._client_id: Final = f"{client_id}-recent"
        self._opening: Final = asyncio.Lock()
        self._reader: BatchReader | None = None
        #: The number of each user's last event: of others' a cursor tells nothing.
        self._numbers: dict[str, int] = {}
        #: Tells the numbers of this process from those of another.
        self._begun: Final = secrets.token_hex(4)
        self._by_user: OrderedDict[str, deque[NumberedEvent]] = OrderedDict()
        self._news = asyncio.Event()
        self._waiting: Counter[str] = Counter()
        self._closed = False
        self._erasures: Final = Erasures()

    async def after(self, user: str, cursor: str, wait_s: float) -> tuple[str, list[NumberedEvent]]:
        """Return the events of a user behind a cursor, waiting for one, and the next cursor.

        Raises LogUnreachable.
        """
        await self._open()
        begun, _, text = cursor.partition("-")
        number = int(text) if begun == self._begun and text.isdecimal() and len(text) < 19 else 0
        if number > self._numbers.get(user, 0):
            number = 0  # this user's events have been forgotten meanwhile
        found = self._behind(user, number)
        if not found and wait_s > 0 and self._waiting[user] < _WAITING_EACH_MAX:
            found = await self._wait(user, number, wait_s)
        return f"{self._begun}-{self._numbers.get(user, 0)}", found

    async def _wait(self, user: str, number: int, wait_s: float) -> list[NumberedEvent]:
        self._waiting[user] += 1
        try:
            async with asyncio.timeout(wait_s):
                while not (found := self._behind(user, number)) and not self._closed:
                    news = self._news
                    await news.wait()
                return found
        except TimeoutError:
            return []
        finally:
            self._waiting[user] -= 1
            if not self._waiting[user]:
                del self._waiting[user]

    def _behind(self, user: str, number: int) -> list[NumberedEvent]:
        return [each for each in self._by_user.get(user, ()) if each.number > number]

    def on_erasures(self, records: Sequence[Record]) -> None:
        """Leave out what devices did until they were erased; takes records of topic `erasure`."""
        for record in records:
            erasure = self._erasures.take(record.value())
            if erasure is None:
                continue
            user = erasure.device.partition("/")[0]
            if user in self._by_user:
                kept = (each for each in self._by_user[user] if not self._is_erased(each.event))
                self._by_user[user] = deque(kept, _EVENTS_MAX)

    def _is_erased(self, event: Event) -> bool:
        return self._erasures.covers(event.device, event.time)

    async def close(self) -> None:
        """Answer all who wait, and stop reading."""
        self._closed = True
        self._tell()
        if self._reader is not None:
            await self._reader.close()

    async def _open(self) -> None:
        if self._reader is not None:
            return
        async with self._opening:
            if self._reader is not None:
                return
            starts = await asyncio.to_thread(self._starts)
            try:
                self._reader = await follow(
                    self._servers, self._client_id, EVENT, self._take, starts
                )
            except BaseException:
                self._by_user.clear()
                self._numbers.clear()
                raise

    def _starts(self) -> dict[int, int]:
        log = (self._servers, self._client_id, EVENT)
        end = topic_extent(*log).end
        since = {**end, **offsets_at(*log, now_ms() - _DAYS_MS)}
        return {each: max(since[each], last - _RECORDS_MAX) for each, last in end.items()}

    def _take(self, records: Sequence[Any]) -> None:
        for record in records:
            try:
                event = decode_event(record.value() or b"")
            except MALFORMED:
                continue
            kind = kind_of(event)
            # Of a meeting the friend filter decides; it is told by notices alone.
            if kind in (None, "meeting") or record.key() != event.device.encode():
                continue
            if self._is_erased(event):
                continue
            user = event.device.partition("/")[0]
            kept = self._by_user.get(user)
            if kept is None:
                kept = self._by_user[user] = deque(maxlen=_EVENTS_MAX)
                if len(self._by_user) > _USERS_MAX:
                    self._numbers.pop(self._by_user.popitem(last=False)[0], None)
            if any(each.event.id == event.id for each in kept):
                continue  # written again by a topology that was killed
            self._by_user.move_to_end(user)
            number = self._numbers[user] = self._numbers.get(user, 0) + 1
            kept.append(NumberedEvent(number, event, str(kind)))
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
