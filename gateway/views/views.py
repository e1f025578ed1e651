"""Views of the newest fix and the newest address of every device.

Views are built from the log alone and can be discarded at any time. Values are kept as they are in
the log and decoded on demand: most never are. Only the times of fixes decide which is the newest,
so records may be taken in any order, and twice.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

import msgspec
from sortedcontainers import SortedList

from gateway.fixes.known_fixes import KnownFixes, device_key, fix_key
from gateway.formats.values import live_time
from gateway.limits.user_weights import WEIGHT_BYTES, UserWeights
from gateway.views.fix_view import take_fixes
from gateway.views.track_store import TrackStore, pack_point
from waylog.history.erasures import Erasure, Erasures
from waylog.kafka.topics import ADDRESS, LOCATION
from waylog.messages import Address, Fix, decode_address, decode_fix

logger = logging.getLogger(__name__)

#: Devices of one view with values below WEIGHT_BYTES; a larger value counts as several.
DEVICES_MAX: Final = 200_000
#: Number of devices, of the user with the most, among which the least recent is dropped.
_SAMPLES: Final = 8
_SAMPLE_STEP: Final = 7919
#: The character after "/": a user's devices sort between the two.
_AFTER_SLASH: Final = "0"


class Record(Protocol):
    """The part of confluent_kafka.Message that views read."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def timestamp(self) -> tuple[int, int]: ...


class ViewEvent(NamedTuple):
    """A record that a view has just taken, for its watcher."""

    topic: str
    partition: int
    offset: int
    device: str
    lat: float
    lon: float
    value: bytes  # JSON
    live: int = 0  # the time that decides which fix of a device is the newest, ms


class Watcher(Protocol):
    """Receives new events whenever it is `watching`."""

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
    """Records per second over the last ten seconds."""

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
        """Return the mean of the last ten whole seconds."""
        now = int(self._clock())
        recent = (n for second, n in self._counts if now - self.SECONDS <= second < now)
        return sum(recent) / self.SECONDS


class View:
    """The common base of all views."""

    def __init__(self, topic: str, devices_max: int) -> None:
        self.topic = topic
        #: Next offset of each partition: all records before it have been taken.
        self.positions: dict[int, int] = {}
        self.records = 0
        self.unreadable = 0
        self.rate = Rate()
        #: The age of the newest record when it was taken, ms.
        self.delay_ms = 0
        #: The log up to its end at the start has been taken; later records are news.
        self.caught_up = asyncio.Event()
        self._devices_max = devices_max
        # (time that decides "newest", value); the device with the latest record is at the end.
        self.newest: dict[str, tuple[int, bytes]] = {}
        self._names: SortedList[str] = SortedList()
        self._shares = UserWeights()
        self._sampled = 0
        #: A device has been dropped for lack of room.
        self.evicted = False
        #: Records from before the start are still to be taken.
        self.reading_back = False
        self._watcher: Watcher | None = None

    def __len__(self) -> int:
        return len(self.newest)

    def __contains__(self, device: str) -> bool:
        return device in self.newest

    def watch(self, watcher: Watcher) -> None:
        """Give `watcher` each batch of new records from now on."""
        self._watcher = watcher

    def _watched_by(self) -> Watcher | None:
        """Return the watcher if it wants the next batch, or None."""
        watcher = self._watcher
        return watcher if watcher and watcher.watching and self.caught_up.is_set() else None

    def newest_raw(self, device: str) -> bytes | None:
        """Return the newest value of a device as JSON, or None."""
        entry = self.newest.get(device)
        return None if entry is None else entry[1]

    def devices(self, user: str | None = None) -> list[str]:
        """Return the names of the devices of a user, or of all, sorted."""
        return list(self.devices_after("", user))

    def devices_after(self, after: str, user: str | None = None) -> Iterator[str]:
        """Yield the same names lazily, those after `after`; the view must not change meanwhile."""
        if user is None:
            return iter(self._names.irange(after, inclusive=(False, True)))
        first, last = f"{user}/", f"{user}{_AFTER_SLASH}"
        return iter(self._names.irange(max(first, after), last, inclusive=(False, False)))

    def count_of(self, user: str) -> int:
        """Return the number of known devices of a user."""
        first, last = self._range(user)
        return last - first

    def on_caught_up(self) -> None:
        """Note that the log has been read; the callback of LogReader."""
        self.caught_up.set()

    def _range(self, user: str) -> tuple[int, int]:
        return (
            self._names.bisect_left(f"{user}/"),
            self._names.bisect_left(f"{user}{_AFTER_SLASH}"),
        )

    def restore(self, device: str, live: int, value: bytes) -> None:
        """Take an entry that a snapshot has of `newest`."""
        self._take(device, live, value)

    def reset(self) -> None:
        """Forget everything that was restored."""
        for device in list(self.newest):
            self._drop(device)
        self.evicted = False

    def _take(self, device: str, live: int, value: bytes) -> bool:
        """Keep a value unless a newer one is known; return whether it was kept."""
        entry = self.newest.pop(device, None)
        if entry is None:
            self.newest[device] = (live, value)
            self.index(device, len(value))
            return True
        if entry[0] > live:
            self.newest[device] = entry
            return False
        self.newest[device] = (live, value)
        self.resized(device, len(entry[1]), len(value))
        return True

    def index(self, device: str, size: int) -> None:
        """Note a device that is new in `newest`, with the size of its value."""
        self._names.add(device)
        self._shares.change(device.partition("/")[0], 1 + size // WEIGHT_BYTES)
        self._trim()

    def resized(self, device: str, before: int, now: int) -> None:
        """Note that the value of a device in `newest` has another size."""
        change = now // WEIGHT_BYTES - before // WEIGHT_BYTES
        if change:
            self._shares.change(device.partition("/")[0], change)
            self._trim()

    def _trim(self) -> None:
        """Drop devices beyond the limit: an old one of the user with the most devices."""
        while self._shares.weight > self._devices_max and self.newest:
            self.evicted = True
            user = self._shares.heaviest()
            if user is not None:
                self._drop(self._heard_of_long_ago(user))
                continue
            # Several at once: an iteration has to skip deleted entries at the front of a dict.
            for device in list(islice(self.newest, max(1, self._devices_max // 1000))):
                self._drop(device)

    def _heard_of_long_ago(self, user: str) -> str:
        first, last = self._range(user)
        count = last - first
        self._sampled += 1
        begin = self._sampled * _SAMPLE_STEP
        names: list[str] = [
            self._names[first + (begin + each * _SAMPLE_STEP) % count]
            for each in range(min(count, _SAMPLES))
        ]
        return min(names, key=self._decided)

    def _decided(self, device: str) -> int:
        return self.newest[device][0]

    def _drop(self, device: str) -> None:
        entry = self.newest.pop(device, None)
        if entry is not None:
            self._names.remove(device)
            self._shares.change(device.partition("/")[0], -1 - len(entry[1]) // WEIGHT_BYTES)

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


class LocationView(View):
    """The newest fix and recent track of each device, and the ids of fixes in the log."""

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
        """Return the fix with the latest time (of arrival, if a fix's own time is absurd)."""
        value = self.newest_raw(device)
        return None if value is None else decode_fix(value)

    def packed_track(self, device: str, from_ms: int, to_ms: int) -> bytes:
        """Return the part of a device's track that is in memory, as `TrackStore.packed` does."""
        return self.tracks.packed(device, from_ms, to_ms)

    def on_records(self, records: Sequence[Record]) -> None:
        """Take records of topic `location`; the callback of LogReader."""
        watcher = self._watched_by()
        events: list[ViewEvent] | None = None if watcher is None else []
        take_fixes(self, records, self.known_fixes, events, _location_event, self.positions)
        self._counted(records)
        if watcher is not None and events:
            watcher.on_events(events)

    def on_old_records(
        self,
        records: Sequence[Record],
        erasures: Erasures,
        positions: dict[int, int],
        *,
        recent: bool,
    ) -> None:
        """Take records older than those of `on_records`; `positions` are their next offsets.

        Only `recent` records become part of tracks.
        """
        for record in records:
            partition, offset = record.partition(), record.offset()
            assert partition is not None and offset is not None
            positions[partition] = offset + 1
        take_fixes(
            self,
            _unerased(records, erasures),
            self.known_fixes,
            None,
            _location_event,
            {},
            recent=recent,
        )

    def take_record(
        self, record: Record, events: list[ViewEvent] | None, *, recent: bool = True
    ) -> None:
        """Take one record that is not in the form that the gateway writes."""
        partition, offset = record.partition(), record.offset()
        assert partition is not None and offset is not None
        key, value = record.key(), record.value()
        try:
            if key is None or value is None:
                raise ValueError("no key or no value")
            device = key.decode()
            head = _fix_head.decode(value)
            live = live_time(head.time, head.received)
            point = pack_point(
                *(live, head.lat, head.lon),
                *(head.altitude, head.accuracy, head.speed, head.course),
            )
        except (ValueError, OverflowError, RecursionError, msgspec.DecodeError, struct.error):
            self._unreadable(record)
            return
        if recent:
            self.known_fixes.add(fix_key(device, head.id))
        else:
            self.known_fixes.add_old(fix_key(device, head.id))
        if self.known_fixes.times is not None:
            self.known_fixes.times.add(device_key(device), head.time, head.received)
        if recent:
            self.tracks.append_packed(device, point)
        self._take(device, live, value)
        if events is not None:
            events.append(
                _location_event(partition, offset, device, head.lat, head.lon, value, live)
            )

    def forget(self, device: str, erased_ms: int) -> None:
        """Drop the data of a device received before it was erased."""
        value = self.newest_raw(device)
        if value is None:
            self.tracks.forget(device)
            return
        try:
            newer = _fix_head.decode(value).received > erased_ms
        except msgspec.DecodeError:
            newer = False
        if not newer:
            self._drop(device)
        # The time of arrival of points is not stored, so all of them go.
        self.tracks.forget(device)

    def _drop(self, device: str) -> None:
        super()._drop(device)
        self.tracks.forget(device)


def _unerased(records: Sequence[Record], erasures: Erasures) -> Sequence[Record]:
    if not len(erasures):
        return records
    return [
        each
        for each in records
        if not erasures.covers((each.key() or b"").decode("utf-8", "replace"), each.timestamp()[1])
    ]


def _location_event(
    partition: int, offset: int, device: str, lat: float, lon: float, value: bytes, live: int
) -> ViewEvent:
    return ViewEvent(LOCATION, partition, offset, device, lat, lon, value, live)


class _Waiter:
    """A callback that waits for the address of a fix."""

    __slots__ = ("callback", "time_ms", "timer")

    timer: asyncio.TimerHandle

    def __init__(self, time_ms: int, callback: Callable[[], object]) -> None:
        self.time_ms = time_ms
        self.callback = callback


class AddressView(View):
    """The newest address of each device, with callbacks for new ones."""

    def __init__(self, *, devices_max: int = DEVICES_MAX) -> None:
        super().__init__(ADDRESS, devices_max)
        self._subscribers: list[Callable[[str, bytes], None]] = []
        #: Erasures known from tombstones, and those that others add here.
        self.erasures = Erasures()
        self._erased_before: dict[str, int] = {}
        self._on_erased: Callable[[str, int], None] | None = None
        self._waiting: dict[str, list[_Waiter]] = {}

    def latest(self, device: str) -> Address | None:
        """Return the address of the newest resolved fix."""
        value = self.newest_raw(device)
        return None if value is None else decode_address(value)

    def on_address(self, subscriber: Callable[[str, bytes], None]) -> None:
        """Call `subscriber` with a device and its address whenever a newer address arrives.

        The address is the JSON in the log.
        """
        self._subscribers.append(subscriber)

    def on_erased(self, subscriber: Callable[[str, int], None]) -> None:
        """Call `subscriber` with each erased device and the time of the erasure (ms).

        Earlier erasures are reported at once, so all views must have caught up.
        """
        for device, erased_ms in self._erased_before.items():
            subscriber(device, erased_ms)
        self._erased_before.clear()
        self._on_erased = subscriber

    def when(
        self, device: str, time_ms: int, timeout_s: float, callback: Callable[[], object]
    ) -> None:
        """Call back when the address of a fix of that time or a newer one comes, or on timeout.

        If the address is there already, the callback is called at once.
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
        """Wait for the address as `when` does; return False after the timeout."""
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
        """Take records of topic `address`; the callback of LogReader."""
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
            live = _live_time_of(head)
            if not self._take(device, live, value):
                continue
            if device in self._waiting:
                self._wake(device, live)
            if news:
                for subscriber in self._subscribers:
                    subscriber(device, value)
            if watcher is not None:
                events.append(
                    ViewEvent(ADDRESS, partition, offset, device, head.lat, head.lon, value, live)
                )
        self._counted(records)
        if watcher is not None and events:
            watcher.on_events(events)

    def on_old_records(self, records: Sequence[Record], positions: dict[int, int]) -> None:
        """Take records older than those of `on_records`; `positions` are their next offsets."""
        for record in records:
            partition, offset = record.partition(), record.offset()
            assert partition is not None and offset is not None
            positions[partition] = offset + 1
            key, value, written = record.key(), record.value(), record.timestamp()[1]
            try:
                device = key.decode() if key is not None else ""
                if value is None:
                    if device:
                        self.forget(device, written)
                        self._erased(device, written)
                    continue
                head = _address_head.decode(value)
            except (ValueError, RecursionError, msgspec.DecodeError):
                self._unreadable(record)
                continue
            live = _live_time_of(head)
            if not device or self.erasures.covers(device, written):
                continue
            if not self._has_resolved_again(device, live, head.resolved):
                self._take(device, live, value)

    def _has_resolved_again(self, device: str, live: int, resolved: int) -> bool:
        """Tell whether a later resolution of a fix of that time is known."""
        entry = self.newest.get(device)
        return (
            entry is not None
            and entry[0] == live
            and _address_head.decode(entry[1]).resolved > resolved
        )

    def forget(self, device: str, erased_ms: int) -> None:
        """Drop the address of a device if it was resolved before the device was erased."""
        entry = self.newest.get(device)
        if entry is not None:
            try:
                newer = _address_head.decode(entry[1]).resolved > erased_ms
            except msgspec.DecodeError:
                newer = False
            if not newer:
                self._drop(device)

    def _erased(self, device: str, erased_ms: int) -> None:
        self.erasures.add(Erasure(device, erased_ms))
        if self._on_erased is None:
            self._erased_before[device] = erased_ms
        else:
            self._on_erased(device, erased_ms)

    def _wake(self, device: str, live: int) -> None:
        for waiter in list(self._waiting[device]):
            if live >= waiter.time_ms:
                self._stop_waiting(device, waiter)
                waiter.timer.cancel()
                waiter.callback()


def _live_time_of(head: _AddressHead) -> int:
    return live_time(head.time, head.resolved) if head.resolved else head.time


class LatestFixes(Protocol):
    """The newest fix of each device."""

    def latest(self, device: str) -> Fix | None: ...


def newest_fix(locations: LatestFixes, device: str, address: Address | None) -> Fix | None:
    """Return the newest fix; None if the address belongs to a newer fix that is not known."""
    fix = locations.latest(device)
    return None if fix is not None and address is not None and address.time > fix.time else fix
