"""What the resolver remembers of the devices of a partition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from waylog.messages import Fix

_METRES_PER_DEGREE: Final = 111_195.0


class _Resolved(msgspec.Struct, gc=False):
    """What of an address record says how new it is, and where its fix was."""

    device: str
    time: int
    lat: float = math.nan
    lon: float = math.nan
    index_version: str = ""


_decode_resolved = msgspec.json.Decoder(_Resolved).decode


class _ResolvedPoint(NamedTuple):
    """Where a device was when its address was last looked up, and in which index."""

    time: int
    lat: float
    lon: float
    index_version: str


class Standstill(NamedTuple):
    """When a fix is not worth another look-up: see docs/decisions/0005."""

    distance_m: float = 0.0  # moved less than this from where the address was resolved; 0 is off
    resend_ms: int = 300_000  # but the address is not older than this


NO_STANDSTILL: Final = Standstill()


class NewestFixes:
    """The newest fix of each device of one partition: its time in ms, and with a standstill also
    where its address was resolved.

    Seeded from topic `address`. Grows with the number of devices, and with nothing else.
    """

    __slots__ = ("_points", "_standstill", "_times")

    def __init__(self, standstill: Standstill = NO_STANDSTILL) -> None:
        self._standstill = standstill
        self._times: dict[str, int] = {}
        self._points: dict[str, _ResolvedPoint] = {}

    def __len__(self) -> int:
        return len(self._times)

    def restore(self, values: Sequence[bytes | None]) -> None:
        """Take over records of topic `address`."""
        times = self._times
        for value in values:
            if value is None:
                continue
            try:
                resolved = _decode_resolved(value)
            except (msgspec.DecodeError, UnicodeDecodeError):
                # Somebody else's record: it says nothing about our devices.
                continue
            if resolved.time >= times.get(resolved.device, resolved.time):
                times[resolved.device] = resolved.time
                if self._standstill.distance_m > 0:
                    self._points[resolved.device] = _ResolvedPoint(
                        resolved.time, resolved.lat, resolved.lon, resolved.index_version
                    )

    def is_newest(self, fix: Fix) -> bool:
        """Is nothing newer known? Of two fixes of the same time the later record counts."""
        return fix.time >= self._times.get(fix.device, fix.time)

    def time_of(self, device: str) -> int | None:
        """The time of a device's newest fix, if it is known."""
        return self._times.get(device)

    def set(self, fix: Fix) -> None:
        """Remember the newest fix of a device."""
        self._times[fix.device] = fix.time

    def set_resolved(self, fix: Fix, index_version: str) -> None:
        """Remember where the address of a device was resolved."""
        if self._standstill.distance_m > 0:
            self._points[fix.device] = _ResolvedPoint(fix.time, fix.lat, fix.lon, index_version)

    def stands_still(self, fix: Fix, index_version: str) -> bool:
        """Is the device's address that of this fix too?

        Measured from where the address was resolved, not from the fix before: a device that creeps
        cannot drift away from its address. An address out of another index is none.
        """
        point = self._points.get(fix.device)
        return (
            point is not None
            and point.index_version == index_version
            and fix.time - point.time < self._standstill.resend_ms
            # False for NaN: a restored record without coordinates.
            and _distance_m(fix, point) < self._standstill.distance_m
        )


def _distance_m(fix: Fix, point: _ResolvedPoint) -> float:
    """Metres between two points that are close to each other; large when they are not."""
    turn = abs(fix.lon - point.lon)
    x = min(turn, 360.0 - turn) * math.cos(math.radians(fix.lat))
    return _METRES_PER_DEGREE * math.hypot(fix.lat - point.lat, x)
