"""The common base of the views of a topic: the newest value of every device.

Views are built from the log alone and can be discarded at any time. Values are kept as they are in
the log and decoded on demand: most never are. Only the times of fixes decide which is the newest,
so records may be taken in any order, and twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

from sortedcontainers import SortedList

from gateway.limits.user_weights import WEIGHT_BYTES, UserWeights

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
        """Note that the log has been read; the callback of BatchReader."""
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
