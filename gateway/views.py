"""What is known now: the newest fix and the newest address of every device.

Views are fed by the log alone and can be thrown away at any time. Values are kept as the log has
them and decoded when somebody asks: most never are.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from gateway.fix_view import take_fixes
from gateway.formats.values import live_time
from gateway.known_fixes import KnownFixes, fix_key
from gateway.track_store import TrackStore
from waylog.messages import Address, Fix, decode_address, decode_fix
from waylog.topics import ADDRESS, LOCATION

logger = logging.getLogger(__name__)

DEVICES_MAX: Final = 200_000
#: Values kept by one view: the newest of each device.
VALUE_BYTES_MAX: Final = 96 * 1024 * 1024


class Record(Protocol):
    """The part of confluent_kafka.Message that views read."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...


class ViewEvent(NamedTuple):
    """A record that a view has just taken, for whoever watches."""

    topic: str
    partition: int
    offset: int
    device: str
    lat: float
    lon: float
    value: bytes  # JSON


class Watcher(Protocol):
    """Takes news, whenever it is `watching`."""

    @property
    def watching(self) -> bool: ...
    def on_events(self, events: list[ViewEvent]) -> None: ...


class _FixHead(msgspec.Struct, gc=False):
    id: str
    time: int
    received: int
    lat: float
    lon: float
    altitude: float | None = None
    accuracy: float | None = None
    speed: float | None = None
    course: float | None = None


class _AddressHead(msgspec.Struct, gc=False):
    time: int
    lat: float
    lon: float
    resolved: int = 0


_fix_head = msgspec.json.Decoder(_FixHead)
_address_head = msgspec.json.Decoder(_AddressHead)


class Rate:
    """Records a second over the last ten seconds."""

    SECONDS: Final = 10

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: deque[tuple[int, int]] = deque()

    def add(self, count: int) -> None:
        """Count records that have arrived now."""
        second = int(self._clock())
        if self._counts and self._counts[-1][0] == second:
            count += self._counts.pop()[1]
        self._counts.append((second, count))
        while self._counts[0][0] < second - self.SECONDS:
            self._counts.popleft()

    def per_second(self) -> float:
        """The mean of the last ten whole seconds."""
        now = int(self._clock())
        recent = (n for second, n in self._counts if now - self.SECONDS <= second < now)
        return sum(recent) / self.SECONDS


class _View:
    """What both views have in common."""

    def __init__(self, topic: str, devices_max: int) -> None:
        self.topic = topic
        #: Next offset of each partition: all before it has been taken.
        self.positions: dict[int, int] = {}
        self.records = 0
        self.unreadable = 0
        self.rate = Rate()
        #: How old the newest record was when it was taken, ms.
        self.delay_ms = 0
        #: The log as it was at the start has been taken; from now on records are news.
        self.caught_up = asyncio.Event()
        self._devices_max = devices_max
        # (time by which "newest" is decided, value); the device heard of last is last.
        self.newest: dict[str, tuple[int, bytes]] = {}
        # The devices of a user: mostly one, and then without a set of its own.
        self._of_user: dict[str, str | set[str]] = {}
        self._value_bytes = 0
        self._watcher: Watcher | None = None

    def __len__(self) -> int:
        return len(self.newest)

    def __contains__(self, device: str) -> bool:
        return device in self.newest

    def watch(self, watcher: Watcher) -> None:
        """Give `watcher` each batch of records that come in from now on."""
        self._watcher = watcher

    def _watched_by(self) -> Watcher | None:
        """Who wants to hear of the next batch."""
        watcher = self._watcher
        return watcher if watcher and watcher.watching and self.caught_up.is_set() else None

    def newest_raw(self, device: str) -> bytes | None:
        """The JSON of `latest`."""
        entry = self.newest.get(device)
        return None if entry is None else entry[1]

    def devices(self, user: str | None = None) -> list[str]:
        """Names of the devices of a user, or of all, sorted."""
        if user is None:
            return sorted(self.newest)
        found = self._of_user.get(user)
        if found is None:
            return []
        return [found] if isinstance(found, str) else sorted(found)

    def on_caught_up(self) -> None:
        """For LogReader."""
        self.caught_up.set()

    def _take(self, device: str, live: int, value: bytes) -> bool:
        """Keep a value unless a newer one is known; returns whether it was kept."""
        entry = self.newest.pop(device, None)
        if entry is not None:
            if entry[0] > live:
                self.newest[device] = entry
                return False
            self._value_bytes -= len(entry[1])
        else:
            self.index(device)
        self.newest[device] = (live, value)
        self._value_bytes += len(value)
        self._trim()
        return True

    def _trim(self) -> None:
        while len(self.newest) > self._devices_max or self._value_bytes > VALUE_BYTES_MAX:
            self._drop(next(iter(self.newest)))

    def _drop(self, device: str) -> None:
        entry = self.newest.pop(device, None)
        if entry is not None:
            self._value_bytes -= len(entry[1])
            self._unindex(device)

    def index(self, device: str) -> None:
        """Note the user of a device that is new here."""
        user = device.partition("/")[0]
        others = self._of_user.get(user)
        if others is None:
            self._of_user[user] = device
        elif isinstance(others, str):
            self._of_user[user] = {others, device}
        else:
            others.add(device)

    def _unindex(self, device: str) -> None:
        user = device.partition("/")[0]
        others = self._of_user[user]
        if isinstance(others, set):
            others.discard(device)
        if not others or others == device:
            del self._of_user[user]

    def _counted(self, records: Sequence[Record]) -> None:
        self.records += len(records)
        if records and self.caught_up.is_set():
            self.rate.add(len(records))
            self.delay_ms = max(0, time.time_ns() // 1_000_000 - records[-1].timestamp()[1])

    def _unreadable(self, record: Record) -> None:
        self.unreadable += 1
        logger.warning(
            "%s-%s offset %s is not a message of ours; left out",
            self.topic,
            record.partition(),
            record.offset(),
        )


class LocationView(_View):
    """Newest fix and recent way of each device, and which fixes the log has."""

    def __init__(
        self,
        known_fixes: KnownFixes | None = None,
        *,
        tracks: TrackStore | None = None,
        devices_max: int = DEVICES_MAX,
    ) -> None:
        super().__init__(LOCATION, devices_max)
        self.known_fixes = KnownFixes() if known_fixes is None else known_fixes
        self.tracks = TrackStore() if tracks is None else tracks

    def latest(self, device: str) -> Fix | None:
        """The fix with the greatest time (arrival, where a fix's own time is absurd)."""
        value = self.newest_raw(device)
        return None if value is None else decode_fix(value)

    def packed_track(self, device: str, from_ms: int, to_ms: int) -> bytes:
        """The way of a device as `TrackStore.packed` has it; as far back as memory allows."""
        return self.tracks.packed(device, from_ms, to_ms)

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of topic `location`; for LogReader."""
        watcher = self._watched_by()
        events: list[ViewEvent] | None = None if watcher is None else []
        take_fixes(self, records, self.known_fixes, events, _location_event)
        self._counted(records)
        if watcher is not None and events:
            watcher.on_events(events)

    def take_record(self, record: Record, events: list[ViewEvent] | None) -> None:
        """Take one record that is not as our own gateway writes nearly all of them."""
        partition, offset = record.partition(), record.offset()
        assert partition is not None and offset is not None
        key, value = record.key(), record.value()
        try:
            if key is None or value is None:
                raise ValueError("no key or no value")
            device = key.decode()
            head = _fix_head.decode(value)
            live = live_time(head.time, head.received)
            self.tracks.append(
                device,
                live,
                head.lat,
                head.lon,
                head.altitude,
                head.accuracy,
                head.speed,
                head.course,
            )
        except (ValueError, OverflowError, RecursionError, msgspec.DecodeError, struct.error):
            self._unreadable(record)
            return
        self.known_fixes.add(fix_key(device, head.id))
        self._take(device, live, value)
        if events is not None:
            events.append(_location_event(partition, offset, device, head.lat, head.lon, value))

    def forget(self, device: str, erased_ms: int) -> None:
        """Drop what was received of a device until it was erased."""
        value = self.newest_raw(device)
        if value is None:
            return
        try:
            newer = _fix_head.decode(value).received > erased_ms
        except msgspec.DecodeError:
            newer = False
        if not newer:
            self._drop(device)
            self.tracks.forget(device)

    def grew(self, size: int) -> None:
        """Count bytes of values that were kept without `_take`, and stay within the bounds."""
        self._value_bytes += size
        self._trim()


def _location_event(
    partition: int, offset: int, device: str, lat: float, lon: float, value: bytes
) -> ViewEvent:
    return ViewEvent(LOCATION, partition, offset, device, lat, lon, value)


class _Waiter:
    """Somebody who wants to know when the address of a fix is there."""

    __slots__ = ("callback", "time_ms", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, time_ms: int, callback: Callable[[], object]) -> None:
        self.time_ms = time_ms
        self.callback = callback


class AddressView(_View):
    """The newest address of each device, and news of it."""

    def __init__(self, *, devices_max: int = DEVICES_MAX) -> None:
        super().__init__(ADDRESS, devices_max)
        self._subscribers: list[Callable[[str, bytes], None]] = []
        self._erasures: dict[str, int] = {}
        self._on_erased: Callable[[str, int], None] | None = None
        self._waiting: dict[str, list[_Waiter]] = {}

    def latest(self, device: str) -> Address | None:
        """The address of the newest resolved fix."""
        value = self.newest_raw(device)
        return None if value is None else decode_address(value)

    def on_address(self, subscriber: Callable[[str, bytes], None]) -> None:
        """Call `subscriber` with each device and address (JSON, as the log has it) that is newer
        than what was known of the device.
        """
        self._subscribers.append(subscriber)

    def on_erased(self, subscriber: Callable[[str, int], None]) -> None:
        """Call `subscriber` with each device that has been erased, and when (ms), also those from
        before; to be called when all views have caught up.
        """
        for device, erased_ms in self._erasures.items():
            subscriber(device, erased_ms)
        self._erasures.clear()
        self._on_erased = subscriber

    def when(
        self, device: str, time_ms: int, timeout_s: float, callback: Callable[[], object]
    ) -> None:
        """Call back as soon as there is the address of a fix of that time or a newer one, or when
        that is late; at once when it is there.
        """
        entry = self.newest.get(device)
        if entry is not None and entry[0] >= time_ms:
            callback()
            return
        waiter = _Waiter(time_ms, callback)
        self._waiting.setdefault(device, []).append(waiter)
        loop = asyncio.get_running_loop()
        waiter.timer = loop.call_later(timeout_s, self._late, device, waiter)

    async def wait(self, device: str, time_ms: int, timeout_s: float) -> bool:
        """The same as a coroutine; False when it is late."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done() -> None:
            if not future.done():
                future.set_result(None)

        self.when(device, time_ms, timeout_s, done)
        await future
        entry = self.newest.get(device)
        return entry is not None and entry[0] >= time_ms

    def _late(self, device: str, waiter: _Waiter) -> None:
        self._stop_waiting(device, waiter)
        waiter.callback()

    def _stop_waiting(self, device: str, waiter: _Waiter) -> None:
        waiters = self._waiting[device]
        waiters.remove(waiter)
        if not waiters:
            del self._waiting[device]

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of topic `address`; for LogReader."""
        news = self.caught_up.is_set()
        watcher = self._watched_by()
        events: list[ViewEvent] = []
        for record in records:
            partition, offset = record.partition(), record.offset()
            assert partition is not None and offset is not None
            self.positions[partition] = offset + 1
            key, value = record.key(), record.value()
            if key is None:
                self._unreadable(record)
                continue
            try:
                device = key.decode()
                if value is None:
                    # A tombstone of the compacted topic: the device has been erased.
                    self._drop(device)
                    self._erased(device, record.timestamp()[1])
                    continue
                head = _address_head.decode(value)
            except (ValueError, RecursionError, msgspec.DecodeError):
                self._unreadable(record)
                continue
            live = live_time(head.time, head.resolved) if head.resolved else head.time
            if not self._take(device, live, value):
                continue
            if device in self._waiting:
                self._wake(device, live)
            if news:
                for subscriber in self._subscribers:
                    subscriber(device, value)
            if watcher is not None:
                events.append(
                    ViewEvent(ADDRESS, partition, offset, device, head.lat, head.lon, value)
                )
        self._counted(records)
        if watcher is not None and events:
            watcher.on_events(events)

    def _erased(self, device: str, erased_ms: int) -> None:
        if self._on_erased is None:
            self._erasures[device] = erased_ms
        else:
            self._on_erased(device, erased_ms)

    def _wake(self, device: str, live: int) -> None:
        for waiter in list(self._waiting[device]):
            if live >= waiter.time_ms:
                self._stop_waiting(device, waiter)
                waiter.timer.cancel()
                waiter.callback()
