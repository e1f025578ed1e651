"""The newest fix of each device of a partition, as the resolver remembers it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from consumers.worker.records import StateRecord
from waylog.malformed import MALFORMED
from waylog.messages import Fix, address_time, live_time

_METRES_PER_DEGREE: Final = 111_195.0


class _Resolved(msgspec.Struct, gc=False):
    """The members of an address record that tell how new it is and where its fix was."""

    device: str
    time: int
    lat: float = math.nan
    lon: float = math.nan
    resolved: int = 0
    index_version: str = ""


_decode_resolved = msgspec.json.Decoder(_Resolved).decode


class _ResolvedPoint(NamedTuple):
    """The place and time of the fix whose address was last looked up, and the index used."""

    time: int
    lat: float
    lon: float
    index_version: str


class StationaryLimits(NamedTuple):
    """The bounds within which a fix needs no new look-up; see docs/decisions/0005."""

    distance_m: float = 0.0  # moved less than this from where the address was resolved; 0 is off
    resend_ms: int = 300_000  # a fix that is this much newer than the address is looked up


NO_STANDSTILL: Final = StationaryLimits()


class NewestFixes:
    """The time in ms of the newest fix of each device of one partition; with a standstill also
    the place where the device's address was resolved.

    The state is restored from topic `address`. Its size depends on the number of devices only.
    """

    __slots__ = ("_completed", "_own_times", "_points", "_standstill", "_times")

    def __init__(self, standstill: StationaryLimits = NO_STANDSTILL) -> None:
        self._standstill = standstill
        self._times: dict[str, int] = {}  # that of `live_time`
        # The fix's own time where it is another one.
        self._own_times: dict[str, int] = {}
        self._points: dict[str, _ResolvedPoint] = {}
        # The times of fixes whose addresses the fallback has completed.
        self._completed: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._times)

    def restore(self, records: Sequence[StateRecord]) -> None:
        """Restore the state from records of topic `address`."""
        for _, value in records:
            if value is None:
                continue
            try:
                resolved = _decode_resolved(value)
            except MALFORMED:
                # A record that another program wrote: it says nothing about our devices.
                continue
            live = address_time(resolved.time, resolved.resolved)
            if live != resolved.time:
                # Its arrival is not known: any other fix may take its place.
                live = 0
            if "+" in resolved.index_version:
                self._completed[resolved.device] = resolved.time
            if (
                self.accept(resolved.device, live, resolved.time)
                and self._standstill.distance_m > 0
            ):
                self._points[resolved.device] = _ResolvedPoint(
                    live, resolved.lat, resolved.lon, resolved.index_version
                )

    def time_of(self, device: str) -> int | None:
        """Return the time of the device's newest fix, None if none is known."""
        return self._own_times.get(device, self._times.get(device))

    def set_completed(self, device: str, time: int) -> None:
        """Remember that the address of the fix of this time is complete."""
        self._completed[device] = time

    def awaits(self, device: str, time: int) -> bool:
        """Return whether the fix of this time is the newest, and its address not complete."""
        return self.time_of(device) == time and self._completed.get(device) != time

    def accept(self, device: str, live: int, time: int) -> bool:
        """Remember a fix, unless a newer one of its device is known; return whether it was.

        `live` is the fix's `live_time`, `time` its own, both in ms. Of two with the same time the
        later one wins.
        """
        times = self._times
        if live < times.get(device, live):
            return False
        times[device] = live
        if live != time:
            self._own_times[device] = time
        elif self._own_times:
            self._own_times.pop(device, None)
        return True

    def set_resolved(self, fix: Fix, index_version: str) -> None:
        """Remember where the address of a device was resolved."""
        if self._standstill.distance_m > 0:
            self._points[fix.device] = _ResolvedPoint(
                live_time(fix.time, fix.received), fix.lat, fix.lon, index_version
            )

    def is_stationary(self, fix: Fix, index_version: str) -> bool:
        """Return whether the device's last resolved address can stand for this fix too.

        The distance is measured from where the address was resolved, not from the fix before, so
        that a device that moves slowly cannot drift away from its address. An address that came
        from another index does not count.
        """
        point = self._points.get(fix.device)
        return (
            point is not None
            and point.index_version == index_version
            and live_time(fix.time, fix.received) - point.time < self._standstill.resend_ms
            # False for NaN, which a restored record without coordinates has.
            and _distance_m(fix, point) < self._standstill.distance_m
        )


def _distance_m(fix: Fix, point: _ResolvedPoint) -> float:
    """Return the metres between two points; accurate for close ones, large for distant ones."""
    turn = abs(fix.lon - point.lon)
    x = min(turn, 360.0 - turn) * math.cos(math.radians(fix.lat))
    return _METRES_PER_DEGREE * math.hypot(fix.lat - point.lat, x)
