"""Names and local times of places, from the geocoding index."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from geoservice.reverse.geocoder import Geocoder

logger = logging.getLogger(__name__)

_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000


class PlaceName(NamedTuple):
    """The name of a place; None where the index has none."""

    name: str | None
    address: str | None  # one line


def sun_offset_ms(lon: float) -> int:
    """Return the solar time zone in whole hours, usually within two hours of local time."""
    return round(lon / 15) * _HOUR_MS


class PlaceNames:
    """A lookup of places; without an index there are no names, and solar time is used."""

    def __init__(self, geocoder: Geocoder | None = None) -> None:
        """Take a geocoder, by default that of the embedded world."""
        self._geocoder = geocoder if geocoder is not None else _open_geocoder()
        self._zones: dict[str, ZoneInfo | None] = {}
        self._offsets: dict[tuple[str, int], int] = {}

    def name_of(self, lat: float, lon: float) -> PlaceName:
        """Return the name and the address of a place."""
        if self._geocoder is None:
            return PlaceName(None, None)
        result = self._geocoder.reverse(lat, lon)
        return PlaceName(
            result.place.name if result.place is not None else None, result.display_name
        )

    def local_offsets(self, lat: float, lon: float, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the offsets of local time from UTC (ms) at a place, for some times (ms UTC).

        There is one offset per day: on the two days a year when the clock changes, it may be wrong
        for some hours.
        """
        name = self._zone_name(lat, lon)
        if name is None:
            return np.full(len(times), sun_offset_ms(lon), np.int64)
        days, row_day = np.unique(times // _DAY_MS, return_inverse=True)
        offsets = [self._offset(name, day) for day in days.tolist()]
        return np.array(offsets, np.int64)[row_day]

    def _zone_name(self, lat: float, lon: float) -> str | None:
        if self._geocoder is None:
            return None
        place: Any = self._geocoder.reverse(lat, lon).place
        name: str | None = place.timezone if place is not None else None
        if name is None:
            return None
        if name not in self._zones:
            try:
                self._zones[name] = ZoneInfo(name)
            except (OSError, ValueError):
                # There is no time zone database, or an older one.
                logger.warning("time zone %s is unknown here; the sun's is used", name)
                self._zones[name] = None
        return name if self._zones[name] is not None else None

    def _offset(self, name: str, day: int) -> int:
        offset = self._offsets.get((name, day))
        if offset is None:
            zone = self._zones[name]
            try:
                noon = datetime.fromtimestamp(day * 86_400 + 43_200, UTC)
            except (ValueError, OverflowError):
                return 0
            delta = noon.astimezone(zone).utcoffset()
            assert delta is not None
            offset = self._offsets[(name, day)] = round(delta.total_seconds() * 1000)
        return offset


def _open_geocoder() -> Geocoder | None:
    try:
        from geoservice.reverse.geocoder import Geocoder

        return Geocoder.open()
    except Exception as error:  # places without names are better than no places
        logger.warning("no geocoding index, places get no names: %s", error)
        return None
