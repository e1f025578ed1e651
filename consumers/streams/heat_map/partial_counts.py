"""Counts the fixes and devices of one partition by cell and window.

All fixes of a device are in one partition, so the counts of different partitions have no device in
common, and their sums are the counts of all. What leaves this processor has numbers alone; which
devices were in a cell is known here only, in the value of each device, which is sealed with the
device's key and goes with its erasure.

A device counts once a second at most: the first fix of a second does, whichever came first. A fix
is late if its short window has closed, which it does when the partition's newest fix is later than
the window's end by the grace. A closed short window is added to its long one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from consumers.streams.fix_processor import DeviceState
from consumers.streams.heat_map.messages import PartialCount
from consumers.streams.processor import FUTURE, Context, StreamProcessor
from consumers.streams.properties import Properties
from consumers.streams.store import Store
from consumers.streams.store_index import StoreIndexes
from consumers.worker.fix_records import NotAFix, fix_of
from consumers.worker.records import InputRecord
from waylog.config import ConfigError
from waylog.messages import live_time

#: The first line of keys that belong to no device: all of them are sealed with one key.
OWNER: Final = "$heat-map"
COUNTS: Final = "streams-heat-map-counts"
_CELLS_MAX: Final = 2000

#: Window in seconds, start in ms, cell.
Place = tuple[int, int, int]


class Minute(msgspec.Struct, array_like=True, gc=False):
    """A short window of a device: the seconds that have a fix, as bits, and how many by cell."""

    seconds: int
    cells: dict[int, int]


class HeatState(DeviceState):
    """What is remembered of a device, or of a device and long window."""

    partition: int = 0
    minutes: dict[int, Minute] = msgspec.field(default_factory=dict)  # by start, ms
    hour: dict[int, int] = msgspec.field(default_factory=dict)  # fixes by cell


class _Counts:
    """The sums of a partition."""

    def __init__(self, store: Store[HeatState], window_s: int, long_s: int) -> None:
        self.of: dict[Place, list[int]] = {}
        #: What is to be told; all after a restart, since nobody knows what was.
        self.changed: dict[Place, None] = {}
        self.open: list[int] = []  # a heap of the starts of short windows
        self.partition = 0
        self.told_ms = 0
        for key, state in store.items():
            store.stream_time = max(store.stream_time, state.time)
            self.partition = state.partition
            _, is_long, start = key.partition("\n")
            if is_long:
                self.add(long_s, int(start), state.hour)
            for short, minute in state.minutes.items():
                self.open_window(short)
                self.add(window_s, short, minute.cells)

    def open_window(self, start: int) -> None:
        """Remember a short window that has to be closed."""
        if start not in self.open:
            heapq.heappush(self.open, start)

    def add(self, window_s: int, start: int, cells: Mapping[int, int], sign: int = 1) -> None:
        """Add the fixes of a device that had none in these cells, or take them away."""
        for cell, fixes in cells.items():
            self.add_fixes((window_s, start, cell), sign * fixes, sign)

    def add_fixes(self, place: Place, fixes: int, devices: int) -> None:
        """Add fixes and devices."""
        count = self.of.setdefault(place, [0, 0])
        count[0] += fixes
        count[1] += devices
        self.changed[place] = None


class PartialCounts(StreamProcessor[HeatState]):
    """The first processor of topology `heat-map`."""

    name: ClassVar[str] = "heat-map"
    value_type = HeatState

    def __init__(self, properties: Properties) -> None:
        """Read resolution, windows, grace, and how often counts are told."""
        import h3.api.basic_int

        super().__init__(properties)
        self._cell_of: Any = h3.api.basic_int.latlng_to_cell
        number = properties.number
        self._resolution = int(number("resolution", 8, least=0))
        self._window_s = int(number("window_s", 60, least=1))
        self._long_s = int(number("long_window_s", 3600, least=1))
        self._grace_ms = round(number("grace_s", 120, least=0) * 1000)
        self._update_ms = round(number("update_s", 10, least=0) * 1000)
        if self._resolution > 15:
            raise ConfigError("--property resolution: H3 has the resolutions 0 to 15")
        if self._window_s > 3600 or self._long_s % self._window_s:
            raise ConfigError(
                "--property window_s: at most 3600, and long_window_s is a multiple of it"
            )
        self._counts: StoreIndexes[_Counts] = StoreIndexes(
            lambda store: _Counts(store, self._window_s, self._long_s)
        )
        self.late = 0

    def process(
        self, records: Sequence[InputRecord], store: Store[HeatState], context: Context
    ) -> None:
        """Count fixes, and close windows."""
        counts = self._counts.of(store)
        for record in records:
            try:
                fix = fix_of(record.value())
            except NotAFix as error:
                context.refuse(record, str(error))
                continue
            time = live_time(fix.time, fix.received)
            if time > context.latest:
                context.refuse(record, FUTURE)
                continue
            counts.partition = record.partition() or 0
            self._count(fix.device, time, fix.lat, fix.lon, store, counts)
        self._close(store, counts, context)

    def punctuate(self, store: Store[HeatState], context: Context) -> None:
        """Tell the counts that have changed."""
        counts = self._counts.of(store)
        if not 0 <= context.now_ms - counts.told_ms < self._update_ms:
            counts.told_ms = context.now_ms
            self._tell(counts, context)

    def erase(self, erasures: Mapping[str, int], store: Store[HeatState]) -> None:
        """Take the fixes of erased devices out of the windows that are open."""
        counts = self._counts.of(store)
        before = dict(store.items())
        super().erase(erasures, store)
        for key, state in before.items():
            if key in store:
                continue
            _, is_long, start = key.partition("\n")
            if is_long:
                counts.add(self._long_s, int(start), state.hour, -1)
            for short, minute in state.minutes.items():
                counts.add(self._window_s, short, minute.cells, -1)

    def _count(
        self,
        device: str,
        time: int,
        lat: float,
        lon: float,
        store: Store[HeatState],
        counts: _Counts,
    ) -> None:
        start = time - time % (self._window_s * 1000)
        end = start + self._window_s * 1000
        if end + self._grace_ms <= store.stream_time:
            self.late += 1
            return
        state = store.get(device)
        if state is None:
            state = HeatState(time)
        minute = state.minutes.get(start)
        if minute is None:
            minute = state.minutes[start] = Minute(0, {})
            counts.open_window(start)
        second = 1 << (time - start) // 1000
        if minute.seconds & second:
            return
        cell = self._cell_of(lat, lon, self._resolution)
        fixes = minute.cells.get(cell)
        if fixes is None and len(minute.cells) >= _CELLS_MAX:
            return
        minute.seconds |= second
        minute.cells[cell] = (fixes or 0) + 1
        counts.add_fixes((self._window_s, start, cell), 1, fixes is None)
        state.time = max(state.time, time)
        state.partition = counts.partition
        store.put(device, state)
        store.stream_time = max(store.stream_time, time)

    def _close(self, store: Store[HeatState], counts: _Counts, context: Context) -> None:
        """Close the short windows that take no more fixes, and the long ones that get no more."""
        open_ms = store.stream_time - self._grace_ms
        closed = []
        while counts.open and counts.open[0] + self._window_s * 1000 <= open_ms:
            closed.append(heapq.heappop(counts.open))
        if not closed:
            return
        for device in store.keys():  # noqa: SIM118 - the store changes meanwhile
            if "\n" in device:
                continue
            state = store.get(device)
            assert state is not None
            over = [start for start in closed if start in state.minutes]
            for start in over:
                minute = state.minutes.pop(start)
                # Long windows that are no longer are the short ones.
                if self._long_s > self._window_s:
                    self._add_to_long(device, start, minute, state, store, counts)
            if not state.minutes:
                store.delete(device)
            elif over:
                store.put(device, state)
        self._tell(counts, context)
        for key in store.keys():  # noqa: SIM118
            _, is_long, long_start = key.partition("\n")
            if is_long and int(long_start) + self._long_s * 1000 <= open_ms:
                store.delete(key)
        for place in [place for place in counts.of if place[1] + place[0] * 1000 <= open_ms]:
            del counts.of[place]

    def _add_to_long(
        self,
        device: str,
        start: int,
        minute: Minute,
        state: HeatState,
        store: Store[HeatState],
        counts: _Counts,
    ) -> None:
        long_start = start - start % (self._long_s * 1000)
        key = f"{device}\n{long_start}"
        long = store.get(key)
        if long is None:
            long = HeatState(state.time, state.partition)
        for cell, fixes in minute.cells.items():
            known = long.hour.get(cell)
            if known is None and len(long.hour) >= _CELLS_MAX:
                continue
            long.hour[cell] = (known or 0) + fixes
            counts.add_fixes((self._long_s, long_start, cell), fixes, known is None)
        long.time = max(long.time, state.time)
        store.put(key, long)

    def _tell(self, counts: _Counts, context: Context) -> None:
        for place in counts.changed:
            window_s, start, cell = place
            fixes, devices = counts.of.get(place, (0, 0))
            partial = PartialCount(counts.partition, cell, window_s, start, fixes, devices)
            context.forward(COUNTS, f"{OWNER}\n{cell:x}", msgspec.json.encode(partial))
        counts.changed.clear()
