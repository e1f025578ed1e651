"""Topology `silence`: a device is silent for longer than is usual for it, and is back.

What is usual is learned (consumers.streams.silence.usual_gaps). The limit is the usual silence of
the hour in which the device was heard last, times a factor, and no less than a minimum; for a
device that is not known for some days yet, it is a limit of its own.

The clock is the time of the partition's newest fix: when nothing comes from anybody, as after an
outage or while this topology catches up, nobody is silent. Only when a partition had no record for
a while it is the wall clock, so that a single device can be silent, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from consumers.streams.events import forward_event
from consumers.streams.fix_processor import DeviceState, FixProcessor
from consumers.streams.processor import Context
from consumers.streams.properties import Properties
from consumers.streams.silence.usual_gaps import HOUR_MS, UNKNOWN, known_days, usual_s, with_gap
from consumers.streams.store import Store
from consumers.streams.store_index import StoreIndexes
from consumers.worker.records import InputRecord
from waylog.messages import Fix

TYPE: Final = "silence"
_DAY_S: Final = 86_400.0
_DAY_MS: Final = 24 * HOUR_MS


class SilenceState(DeviceState):
    """What is remembered of a device; what is usual is beside it, as that seldom changes."""

    fix_id: str = ""
    told: bool = False  # that it is silent
    hour: int = 0  # the last one that is in `gaps`
    gaps: str = ""  # in the value of the key `device LF gaps` alone
    #: The time of the partition when it was heard last, which is not before that of its fix: one
    #: that was offline sends fixes that are hours old, and is heard with each.
    heard: int = 0

    @property
    def since(self) -> int:
        """When it was heard last; states of an earlier version know the time of the fix only."""
        return max(self.heard, self.time)


class _Due:
    """The devices of a partition that are not silent, by when to look at them again."""

    def __init__(self, store: Store[SilenceState]) -> None:
        self.heap: list[tuple[int, str]] = []
        self._waiting: set[str] = set()
        self.heard_ms: int | None = None  # when the partition had a record, by the wall clock
        self.sweep_ms = 0
        for key, state in store.items():
            store.stream_time = max(store.stream_time, state.time)
            if "\n" not in key and not state.told:
                self.put(state.since, key)

    def put(self, due_ms: int, device: str) -> None:
        """Look at a device at a time, unless that is planned already."""
        if device not in self._waiting:
            self._waiting.add(device)
            heapq.heappush(self.heap, (due_ms, device))

    def take(self, now_ms: int) -> str | None:
        """Return the next device that is due, if any."""
        if not self.heap or self.heap[0][0] > now_ms:
            return None
        _, device = heapq.heappop(self.heap)
        self._waiting.discard(device)
        return device


class Silence(FixProcessor[SilenceState]):
    """Tells when devices are silent for longer than usual, and when they are back."""

    name: ClassVar[str] = "silence"
    summary: ClassVar[str] = "devices silent for longer than usual for them, to topic event"
    value_type = SilenceState

    def __init__(self, properties: Properties) -> None:
        """Read the factor, the limits, and after how long a device is forgotten."""
        super().__init__(properties)
        number = properties.number
        self._factor = number("factor", 1.5, least=1.0)
        self._minimum_ms = round(number("minimum_s", 900.0, least=60.0) * 1000)
        self._unlearned_ms = round(number("unlearned_s", _DAY_S, least=60.0) * 1000)
        self._learn_days = number("learn_days", 3.0, least=2.0)
        self._idle_ms = round(number("idle_s", 60.0, least=1.0) * 1000)
        self._forget_ms = round(number("forget_days", 90.0, least=1.0) * _DAY_MS)
        self._due: StoreIndexes[_Due] = StoreIndexes(_Due)
        self._store: Store[SilenceState]

    def process(
        self, records: Sequence[InputRecord], store: Store[SilenceState], context: Context
    ) -> None:
        """Take the new fixes, and tell who is silent by the time of the newest one."""
        self._store = store
        due = self._due.of(store)
        due.heard_ms = context.now_ms
        super().process(records, store, context)
        self._tell_silent(store, due, store.stream_time, context)

    def observe(
        self, fix: Fix, time: int, state: SilenceState | None, record: InputRecord, context: Context
    ) -> SilenceState | None:
        """Take the next fix of a device."""
        store, device = self._store, fix.device
        # The platform has heard nothing until now, also if the device was only offline.
        heard = max(time, store.stream_time)
        if state is None:
            state = SilenceState(time, told=True)
            since = time
        else:
            since = state.since
            if not state.told and heard - since > self._minimum_ms:
                self._tell_if_silent(device, state, heard, context)
            if state.told:
                attributes = {"since": since, "seconds": (heard - since) / 1000}
                forward_event(context, record, fix, TYPE, "end", heard, attributes)
        if state.told:
            state.told = False
            self._due.of(store).put(heard + self._minimum_ms, device)
        hour = heard // HOUR_MS
        if hour != state.hour or heard - since > 60_000:
            self._learn(device, since, heard)
            state.hour = hour
        state.fix_id = fix.id
        state.heard = heard
        return state

    def punctuate(self, store: Store[SilenceState], context: Context) -> None:
        """Tell who is silent although nothing comes, and forget who has been for too long."""
        due = self._due.of(store)
        if due.heard_ms is None:
            due.heard_ms = context.now_ms
        now = store.stream_time
        if context.now_ms - due.heard_ms >= self._idle_ms:
            now = max(now, context.now_ms)
            self._tell_silent(store, due, now, context)
        if context.now_ms >= due.sweep_ms:
            due.sweep_ms = context.now_ms + HOUR_MS
            old = [key for key, state in store.items() if state.since < now - self._forget_ms]
            for key in old:
                store.delete(key)

    def limit_ms(self, device: str, since: int) -> int:
        """Return how long a device may be silent since a time, in ms."""
        known = self._store.get(f"{device}\ngaps")
        if known is None or known_days(known.gaps) < self._learn_days:
            return max(self._minimum_ms, self._unlearned_ms)
        return max(self._minimum_ms, round(self._factor * usual_s(known.gaps, since) * 1000))

    def _tell_silent(
        self, store: Store[SilenceState], due: _Due, now_ms: int, context: Context
    ) -> None:
        self._store = store
        while (device := due.take(now_ms)) is not None:
            state = store.get(device)
            if state is None or state.told:
                continue
            limit = self._tell_if_silent(device, state, now_ms, context)
            if state.told:
                store.put(device, state)
            else:
                # The limit may be a shorter one by then.
                due.put(min(state.since + limit, now_ms + self._minimum_ms) + 1, device)

    def _tell_if_silent(
        self, device: str, state: SilenceState, now_ms: int, context: Context
    ) -> int:
        """Tell a device to be silent if it is; return its limit in ms."""
        since = state.since
        limit = self.limit_ms(device, since)
        if now_ms - since > limit:
            state.told = True
            time = since + limit
            last = Fix(
                id=state.fix_id,
                device=device,
                user=device.partition("/")[0],
                lat=0.0,
                lon=0.0,
                time=state.time,
                received=time,
            )
            attributes = {"since": since, "limit": limit / 1000}
            forward_event(context, None, last, TYPE, "begin", time, attributes)
        return limit

    def _learn(self, device: str, since: int, heard: int) -> None:
        key, store = f"{device}\ngaps", self._store
        known = store.get(key)
        if known is None:
            known = SilenceState(since, gaps=UNKNOWN)
        gaps = with_gap(known.gaps, known.time, since, heard)
        if gaps != known.gaps:
            store.put(key, SilenceState(heard, gaps=gaps))

    def erase(self, erasures: Mapping[str, int], store: Store[SilenceState]) -> None:
        """Forget erased devices; what is usual goes with the device."""
        super().erase(erasures, store)
        for device in erasures:
            if device not in store:
                store.delete(f"{device}\ngaps")
