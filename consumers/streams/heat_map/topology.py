"""Topology `heat-map`: fixes and devices by H3 cell in windows, live.

Cells with fewer devices than a least number are not told (k-anonymity): a place where only a few
are says where these are. Numbers below it are in the log only between the two processors, for a
day, without names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import msgspec

from consumers.streams.heat_map.messages import CellCount, PartialCount
from consumers.streams.heat_map.partial_counts import COUNTS, OWNER, PartialCounts
from consumers.streams.processor import Context, StreamProcessor, Topology
from consumers.streams.properties import Properties
from consumers.streams.store import Store
from consumers.streams.store_index import StoreIndexes
from consumers.worker.records import InputRecord
from waylog.kafka.topics import HEAT_MAP, HEAT_MAP_TOPIC, KEYED_PARTITIONS, Topic
from waylog.malformed import MALFORMED

#: Places of which a partition remembers counts; the one that changed first is forgotten first.
_PLACES_MAX: Final = 200_000


class HeatMap(Topology):
    """Counts fixes and devices by cell and window."""

    name: ClassVar[str] = "heat-map"
    summary: ClassVar[str] = "fixes and devices by H3 cell in windows, to topic heat-map"

    def __init__(self, properties: Properties) -> None:
        """Read the properties of both processors; raises ConfigError."""
        self._processors = (PartialCounts(properties), CellCounts(properties))

    def processors(self) -> Sequence[StreamProcessor[object]]:
        """Return what counts in one partition, and what adds the partitions up."""
        return cast("Sequence[StreamProcessor[object]]", self._processors)

    def topics(self) -> Sequence[Topic]:
        """Return the topic of results, and the one between the processors."""
        return HEAT_MAP_TOPIC, Topic(COUNTS, KEYED_PARTITIONS, {"retention.ms": "86400000"})

    def messages(self) -> Mapping[str, type[msgspec.Struct]]:
        """Return what the results are."""
        return {HEAT_MAP: CellCount}


class CellState(msgspec.Struct, array_like=True):
    """The counts of a place: fixes and devices by partition of `location`."""

    counts: dict[int, tuple[int, int]]
    told: bool = False


class _Changes:
    """When the places of a partition changed last, by the wall clock, the oldest first."""

    def __init__(self, store: Store[CellState]) -> None:
        # After a restart that was now.
        self.at: dict[str, int] = dict.fromkeys(store.keys(), -1)

    def forget_before(self, time_ms: int, now_ms: int, store: Store[CellState]) -> None:
        """Forget places that have not changed since a time, and those that are too many."""
        while self.at:
            key, at = next(iter(self.at.items()))
            if at < 0:
                self.at = dict.fromkeys(self.at, now_ms)
                continue
            if at >= time_ms and len(self.at) <= _PLACES_MAX:
                return
            del self.at[key]
            store.delete(key)


class CellCounts(StreamProcessor[CellState]):
    """The second processor: adds the partitions up, and tells what enough devices are in."""

    name: ClassVar[str] = "heat-map-2"
    topic = COUNTS
    value_type = CellState

    def __init__(self, properties: Properties) -> None:
        """Read how many devices a cell needs, and how long counts are waited for."""
        super().__init__(properties)
        self._devices_min = int(properties.number("devices_min", 5, least=1))
        self._keep_ms = round(properties.number("keep_s", 900, least=1) * 1000)
        self._changes: StoreIndexes[_Changes] = StoreIndexes(_Changes)
        self._decode: Any = msgspec.json.Decoder(PartialCount).decode

    def process(
        self, records: Sequence[InputRecord], store: Store[CellState], context: Context
    ) -> None:
        """Take the newest counts of partitions."""
        changes = self._changes.of(store)
        newest: dict[str, tuple[PartialCount, InputRecord]] = {}
        for record in records:
            try:
                partial = self._decode(record.value() or b"")
            except MALFORMED as error:
                context.refuse(record, f"no counts of a partition: {error}")
                continue
            key = f"{OWNER}\n{partial.cell:x}\n{partial.window_s}\n{partial.start}"
            state = store.get(key) or CellState({})
            state.counts[partial.partition] = (partial.fixes, partial.devices)
            store.put(key, state)
            changes.at.pop(key, None)
            changes.at[key] = context.now_ms
            newest[key] = (partial, record)
        for key, (partial, record) in newest.items():
            self._tell(key, partial, record, store, context)

    def punctuate(self, store: Store[CellState], context: Context) -> None:
        """Forget places that nothing comes for any more."""
        changes = self._changes.of(store)
        changes.forget_before(context.now_ms - self._keep_ms, context.now_ms, store)

    def _tell(
        self,
        key: str,
        partial: PartialCount,
        record: InputRecord,
        store: Store[CellState],
        context: Context,
    ) -> None:
        state = store.get(key)
        assert state is not None
        fixes = sum(fixes for fixes, _ in state.counts.values())
        devices = sum(devices for _, devices in state.counts.values())
        if devices < self._devices_min:
            if not state.told:
                return
            fixes = devices = 0
        state.told = devices > 0
        cell = f"{partial.cell:x}"
        count = CellCount(
            cell=cell,
            window_s=partial.window_s,
            start=partial.start,
            fixes=fixes,
            devices=devices,
        )
        name = f"{cell}\n{partial.window_s}\n{partial.start}"
        context.forward(HEAT_MAP, name, msgspec.json.encode(count), record)
