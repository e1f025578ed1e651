"""What others than its owner learn of a device's home: about where it is, and not more.

Around each home lies a circle whose middle is not the home: it is moved by some way that follows
from the place's id, which others are never told, so it is always the same way and nobody gets
nearer by asking often. What happened within the circle is given as its middle.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RADIUS_M: Final = 500.0
#: The home is within the circle, and hardly ever near its middle.
_MOVED_M: Final = (100.0, 350.0)

_METRES_PER_DEGREE: Final = 111_195.0
_HOME: Final = "home"


class Circle(NamedTuple):
    """About where somebody lives."""

    place_id: str
    lat: float
    lon: float

    def has(self, lat: float, lon: float) -> bool:
        """Whether a position is within the circle."""
        return bool(self._has(lat, lon))

    def has_each(self, lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The same of many positions."""
        within: NDArray[np.bool_] = self._has(lat, lon)
        return within

    def _has(self, lat: Any, lon: Any) -> Any:
        north = lat - self.lat
        east = ((lon - self.lon + 180) % 360 - 180) * math.cos(math.radians(self.lat))
        return north**2 + east**2 <= (RADIUS_M / _METRES_PER_DEGREE) ** 2


class HomeBlur:
    """Hides the homes among some places of a device, as the gateway reads them."""

    def __init__(self, places: Iterable[dict[str, Any]]) -> None:
        known = list(places)
        #: Around homes; what is within is not to be shown.
        self.circles = [_circle(place) for place in known if place["label"] == _HOME]
        self._inside = {
            place["place_id"] for place in known if self._around(place["lat"], place["lon"])
        }

    def places(self, places: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same places; homes about where they are, without what tells more."""
        shown = []
        for place in places:
            circle = self._around(place["lat"], place["lon"])
            if circle is None:
                shown.append(place)
            elif place["label"] == _HOME:
                hidden = {"place_id": _HOME, "name": None, "address": None}
                shown.append(place | hidden | {"lat": circle.lat, "lon": circle.lon})
            # A shop next door would tell as much as the home itself.
        return shown

    def visits(self, visits: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same visits; those within the circle are at home, as far as others can tell."""
        shown = []
        for visit in visits:
            circle = self._around(visit["lat"], visit["lon"])
            at_home = (
                {} if circle is None else {"place_id": _HOME, "lat": circle.lat, "lon": circle.lon}
            )
            shown.append(visit | at_home)
        return shown

    def trips(self, trips: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """The same trips; those from or to places within the circle are from or to home."""
        return [
            trip | {end: _HOME for end in ("origin", "destination") if trip[end] in self._inside}
            for trip in trips
        ]

    def _around(self, lat: float, lon: float) -> Circle | None:
        return next((circle for circle in self.circles if circle.has(lat, lon)), None)


def _circle(place: dict[str, Any]) -> Circle:
    digest = hashlib.blake2b(f"home\0{place['place_id']}".encode(), digest_size=8).digest()
    direction = int.from_bytes(digest[:4], "big") / 2**32 * 2 * math.pi
    least, most = _MOVED_M
    away = least + int.from_bytes(digest[4:], "big") / 2**32 * (most - least)
    lat = float(place["lat"]) + away * math.cos(direction) / _METRES_PER_DEGREE
    shrink = max(math.cos(math.radians(lat)), 1e-6)
    lon = float(place["lon"]) + away * math.sin(direction) / _METRES_PER_DEGREE / shrink
    return Circle(str(place["place_id"]), round(lat, 5), round((lon + 180) % 360 - 180, 5))
