"""The first processor of topology `meetings`: where each device was at the same moments as others.

The position at a full interval is interpolated between the fixes before and after it, if they are
fresh. So two devices in one car are together however differently they send, and what is found does
not depend on the order in which the fixes of different devices come. Devices of users whom nobody
may see are left out here.

A position goes to the partition of its cell, and to those of the cells beside it that it is near.
Its key is the device: with it the value is sealed, and erased.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from consumers.streams.fix_processor import DeviceState, FixProcessor
from consumers.streams.global_table import GlobalTable
from consumers.streams.meetings.cells import Grid
from consumers.streams.meetings.friendships import Friends
from consumers.streams.processor import Context
from consumers.streams.properties import Properties
from consumers.worker.records import InputRecord, OutputRecord
from waylog.friendships import Friendship, decode_friendship
from waylog.kafka.topics import FRIENDSHIP, KEYED_PARTITIONS
from waylog.messages import Fix

logger = logging.getLogger(__name__)

POSITIONS: Final = "streams-meetings-positions"
_encode = msgspec.json.Encoder().encode


class Position(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a device was at a full interval, in one cell of the grid."""

    device: str
    time: int  # ms, a multiple of the interval
    lat: float
    lon: float
    row: int  # of the cell
    column: int
    is_home: bool  # whether it is in the cell, or only near it


class LastFix(DeviceState):
    """The newest usable fix of a device."""

    at: int = 0  # ms
    lat: float = 0.0
    lon: float = 0.0


class Measures:
    """The properties that the processors share."""

    def __init__(self, properties: Properties) -> None:
        """Read them; raises ConfigError."""
        number = properties.number
        self.near_m = number("near_m", 50.0, least=1.0)
        self.leave_m = self.near_m * (1 + number("hysteresis_percent", 50.0, least=0.0) / 100)
        self.interval_ms = round(number("interval_s", 30.0, least=1.0) * 1000)
        self.fresh_ms = round(number("fresh_s", 120.0, least=1.0) * 1000)
        self.least_ms = round(number("least_s", 300.0, least=0.0) * 1000)
        self.apart_ms = round(number("apart_s", 120.0, least=1.0) * 1000)
        self.convoy_m = number("convoy_m", 1000.0, least=1.0)


class FriendTable:
    """Follows topic `friendship` for one processor."""

    def __init__(self) -> None:
        self.friends = Friends()
        self._table: GlobalTable[Friendship] | None = None

    def start(self, bootstrap_servers: str, stopping: threading.Event) -> None:
        """Read all friendships; raises LogUnreachable."""
        self._table = GlobalTable(bootstrap_servers, FRIENDSHIP, decode_friendship)
        self._table.load(stopping, self.friends.put)

    def take_changes(self) -> None:
        """Take what is new."""
        if self._table is not None:
            for key, friendship in self._table.take_changes():
                self.friends.put(key, friendship)

    def close(self) -> None:
        """Stop following the topic."""
        if self._table is not None:
            self._table.close()


class Positions(FixProcessor[LastFix]):
    """Writes the positions of devices at full intervals."""

    name: ClassVar[str] = "meetings"
    value_type = LastFix

    def __init__(self, properties: Properties) -> None:
        """Read the properties; raises ConfigError."""
        super().__init__(properties)
        self._measures = Measures(properties)
        self._grid = Grid(self._measures.leave_m)
        self._accuracy_max = properties.number("accuracy_max_m", self._measures.near_m, least=1.0)
        self.table = FriendTable()

    def start(self, bootstrap_servers: str, stopping: threading.Event) -> None:
        """Read the friendships; raises LogUnreachable."""
        self.table.start(bootstrap_servers, stopping)

    def close(self) -> None:
        """Stop following the friendships."""
        self.table.close()

    def prepare(self, fixes: Sequence[Fix]) -> None:
        """Take new friendships."""
        self.table.take_changes()

    def observe(
        self, fix: Fix, time: int, state: LastFix | None, record: InputRecord, context: Context
    ) -> LastFix | None:
        """Write the positions between a fix and the one before it."""
        if not self.table.friends.has_any(fix.device.partition("/")[0]):
            return None
        # False for NaN, too.
        if fix.accuracy is not None and not 0.0 <= fix.accuracy <= self._accuracy_max:
            return state
        if state is not None and time - state.at <= self._measures.fresh_ms:
            interval = self._measures.interval_ms
            first = state.at - state.at % interval + interval
            for moment in range(first, time + 1, interval):
                part = (moment - state.at) / (time - state.at)
                lat = state.lat + part * (fix.lat - state.lat)
                turn = (fix.lon - state.lon + 180.0) % 360.0 - 180.0
                lon = (state.lon + part * turn + 180.0) % 360.0 - 180.0
                self._write(fix.device, moment, lat, lon, context)
        return LastFix(time, time, fix.lat, fix.lon)

    def _write(self, device: str, time: int, lat: float, lon: float, context: Context) -> None:
        home = self._grid.home(lat, lon)
        for row, column in sorted(self._grid.cells(lat, lon)):
            position = Position(device, time, lat, lon, row, column, (row, column) == home)
            partition = zlib.crc32(b"%d %d" % (row, column)) % KEYED_PARTITIONS
            context.outputs.append(
                OutputRecord(POSITIONS, partition, device.encode(), _encode(position))
            )
