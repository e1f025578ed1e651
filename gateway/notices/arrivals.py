"""Arrivals of devices at favourite places; sans-IO.

A device has arrived when it has been within RADIUS_M of a place for STAY_MS, by the times of its
fixes, and has left when it is LEAVING_M away. Passing by a place is not an arrival.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from waylog.great_circle import distance_m

RADIUS_M: Final = 120.0
LEAVING_M: Final = 250.0
STAY_MS: Final = 3 * 60 * 1000
#: Silence near a place, in ms, after which a stay that is not announced yet starts again.
_SILENCE_MS: Final = 60 * 60 * 1000
_DEVICES_MAX: Final = 50_000


class Arrival(NamedTuple):
    """A device has come to a place and stays there."""

    device: str
    place: dict[str, Any]
    time: int  # of the fix that made it certain, ms
    since: int  # of the first fix there, ms
    lat: float
    lon: float


class _Near:
    """A device that is near a place."""

    __slots__ = ("announced", "last", "place", "since")

    def __init__(self, place: dict[str, Any], time: int) -> None:
        self.place = place
        self.since = time
        self.last = time
        self.announced = False


class Arrivals:
    """Detects arrivals of all devices at their users' places."""

    def __init__(self) -> None:
        self._near: OrderedDict[str, _Near] = OrderedDict()

    def observe(
        self, device: str, time: int, lat: float, lon: float, places: Sequence[dict[str, Any]]
    ) -> Arrival | None:
        """Take a position, newer than the device's last one; return an arrival or None."""
        near = self._near.get(device)
        if near is not None:
            there = distance_m(lat, lon, near.place["lat"], near.place["lon"])
            if there > LEAVING_M or (time - near.last > _SILENCE_MS and not near.announced):
                del self._near[device]
                near = None
        if near is None:
            place = _place_at(lat, lon, places)
            if place is None:
                return None
            near = self._near[device] = _Near(place, time)
            if len(self._near) > _DEVICES_MAX:
                self._near.popitem(last=False)
        near.last = max(near.last, time)
        if near.announced or time - near.since < STAY_MS:
            return None
        near.announced = True
        return Arrival(device, near.place, time, near.since, lat, lon)


def _place_at(lat: float, lon: float, places: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    nearest = min(
        places,
        key=lambda place: distance_m(lat, lon, place["lat"], place["lon"]),
        default=None,
    )
    if nearest is None or distance_m(lat, lon, nearest["lat"], nearest["lon"]) > RADIUS_M:
        return None
    return nearest
