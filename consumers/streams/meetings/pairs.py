"""The second processor of topology `meetings`: which friends were near each other at a moment.

A pair is found in the home cell of the one whose name comes first, by whichever of the two comes
second. So it is found once, whatever the order.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from consumers.streams.fix_processor import DeviceState
from consumers.streams.meetings.positions import POSITIONS, FriendTable, Measures, Position
from consumers.streams.processor import FUTURE, Context, StreamProcessor
from consumers.streams.properties import Properties
from consumers.streams.store import Store
from consumers.streams.store_index import StoreIndexes
from consumers.worker.records import InputRecord
from waylog.great_circle import distance_m
from waylog.malformed import MALFORMED

PAIRS: Final = "streams-meetings-pairs"
#: Devices in a cell that one is compared with, at most.
_DEVICES_MAX: Final = 5000
_encode = msgspec.json.Encoder().encode

#: Time in ms, row and column.
_Place = tuple[int, int, int]


class Near(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Two devices were near each other: a record whose key is both names."""

    device: str
    other: str  # comes after `device`
    time: int  # ms
    metres: float
    lat: float  # of `device`
    lon: float


class PositionState(DeviceState):
    """A position that others may be near to; its key is `device LF time LF row LF column`."""

    position: Position | None = None


class _ByCell:
    """The positions of a partition by moment and cell, and by user."""

    def __init__(self, store: Store[PositionState]) -> None:
        self.at: dict[_Place, dict[str, dict[str, Position]]] = {}
        for _, state in store.items():
            store.stream_time = max(store.stream_time, state.time)
            if state.position is not None:
                self.put(state.position)

    def put(self, position: Position) -> dict[str, dict[str, Position]]:
        """Add a position; return all that are in its cell at the moment, by user and device."""
        place = position.time, position.row, position.column
        users = self.at.setdefault(place, {})
        user = position.device.partition("/")[0]
        users.setdefault(user, {})[position.device] = position
        return users


class Pairs(StreamProcessor[PositionState]):
    """Writes which devices of friends were near each other."""

    name: ClassVar[str] = "meetings-2"
    topic = POSITIONS
    value_type = PositionState

    def __init__(self, properties: Properties) -> None:
        """Read the properties; raises ConfigError."""
        super().__init__(properties)
        self._measures = Measures(properties)
        # How much later than others a device may be.
        self._wait_ms = round(properties.number("wait_s", 120.0, least=0.0) * 1000)
        self._by_cell: StoreIndexes[_ByCell] = StoreIndexes(_ByCell)
        self._decode: Any = msgspec.json.Decoder(Position).decode
        self.table = FriendTable()
        self.late = 0

    def start(self, bootstrap_servers: str, stopping: threading.Event) -> None:
        """Read the friendships; raises LogUnreachable."""
        self.table.start(bootstrap_servers, stopping)

    def close(self) -> None:
        """Stop following the friendships."""
        self.table.close()

    def process(
        self, records: Sequence[InputRecord], store: Store[PositionState], context: Context
    ) -> None:
        """Compare positions with those of friends in the same cell at the same moment."""
        self.table.take_changes()
        by_cell = self._by_cell.of(store)
        for record in records:
            try:
                position: Position = self._decode(record.value() or b"")
            except MALFORMED as error:
                context.refuse(record, f"no position: {error}")
                continue
            if position.time > context.latest:
                context.refuse(record, FUTURE)
                continue
            if position.time + self._wait_ms < store.stream_time:
                self.late += 1
                continue
            store.stream_time = max(store.stream_time, position.time)
            key = f"{position.device}\n{position.time}\n{position.row}\n{position.column}"
            store.put(key, PositionState(position.time, position))
            self._compare(position, by_cell.put(position), context)
        self._forget(store, by_cell)

    def punctuate(self, store: Store[PositionState], context: Context) -> None:
        """Take new friendships while no positions come."""
        self.table.take_changes()

    def erase(self, erasures: Mapping[str, int], store: Store[PositionState]) -> None:
        """Forget the positions of erased devices."""
        super().erase(erasures, store)
        for users in self._by_cell.of(store).at.values():
            for device, before in erasures.items():
                devices = users.get(device.partition("/")[0], {})
                if device in devices and devices[device].time <= before:
                    del devices[device]

    def _compare(
        self, position: Position, users: dict[str, dict[str, Position]], context: Context
    ) -> None:
        own = position.device.partition("/")[0]
        friends = self.table.friends
        left = _DEVICES_MAX
        for user, devices in users.items():
            if user == own or not friends.are_friends(own, user, position.time):
                continue
            for other in devices.values():
                left -= 1
                if left < 0:
                    return
                first, second = sorted((position, other), key=lambda each: each.device)
                if not first.is_home:
                    continue
                metres = distance_m(first.lat, first.lon, second.lat, second.lon)
                if metres <= self._measures.leave_m:
                    near = Near(
                        first.device, second.device, first.time, metres, first.lat, first.lon
                    )
                    key = f"{first.device}\n{second.device}"
                    context.forward(PAIRS, key, _encode(near))

    def _forget(self, store: Store[PositionState], by_cell: _ByCell) -> None:
        """Forget what nobody can be compared with any more."""
        if store.stream_time < store.sweep_at:
            return
        store.sweep_at = store.stream_time + self._measures.interval_ms
        over = store.stream_time - self._wait_ms
        for key in [key for key, state in store.items() if state.time < over]:
            store.delete(key)
        for place in [place for place in by_cell.at if place[0] < over]:
            del by_cell.at[place]
