"""A plane around a point of the sphere, on which distances are metres.

Azimuthal equidistant projection (Snyder, Map Projections: A Working Manual, 1987, chapter 25): the
distance and direction from the middle are true. At a distance r from the middle, lengths across the
direction are too long by r^2 / (6 R^2), a tenth of a millimetre in a kilometre 5 km away, 4 m at
1000 km. It has no seam at the antimeridian and none at the poles; only the antipode of the middle
has no place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from waylog.geofences.definition import Position
from waylog.great_circle import EARTH_M

#: m; how far a piece of an edge may be from the edge.
_TOLERANCE_M: Final = 0.25
#: m; the longest piece of an edge. A great circle that misses the middle is bent on the plane.
_PIECE_M: Final = 20_000.0


class Plane:
    """The projection around one point."""

    __slots__ = ("_cos", "_lon", "_sin", "lat", "lon")

    def __init__(self, lat: float, lon: float) -> None:
        self.lat = lat
        self.lon = lon
        self._lon = math.radians(lon)
        self._sin = math.sin(math.radians(lat))
        self._cos = math.cos(math.radians(lat))

    @classmethod
    def around(cls, positions: Sequence[Position]) -> Plane:
        """Return a plane whose middle is the mean direction of some positions."""
        x = y = z = 0.0
        for lon, lat in positions:
            across = math.cos(math.radians(lat))
            x += across * math.cos(math.radians(lon))
            y += across * math.sin(math.radians(lon))
            z += math.sin(math.radians(lat))
        return cls(math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x)))

    def project(self, lat: float, lon: float) -> tuple[float, float]:
        """Return a place in metres east and north of the middle."""
        phi = math.radians(lat)
        turn = math.radians(lon) - self._lon
        sin, cos, cos_turn = math.sin(phi), math.cos(phi), math.cos(turn)
        east = cos * math.sin(turn)
        north = self._cos * sin - self._sin * cos * cos_turn
        up = self._sin * sin + self._cos * cos * cos_turn
        length = math.hypot(east, north)
        if length == 0.0:
            return (0.0, 0.0) if up > 0 else (math.pi * EARTH_M, 0.0)
        scale = math.atan2(length, up) * EARTH_M / length
        return east * scale, north * scale


def straight(positions: Sequence[Position]) -> list[Position]:
    """Return a line or ring with as many positions more as keep its edges straight on a plane.

    Edges are straight in degrees (RFC 7946, section 3.1.1), and go the shorter way around: the
    longitudes of the result go on beyond 180 degrees where the line crosses the antimeridian.
    """
    lon, lat = positions[0]
    found = [(lon, lat)]
    for _, (given_lon, other_lat) in pairwise(positions):
        # Whole turns are added to what was given, instead of differences to what is before: the end
        # of a ring has to be its beginning to the last bit.
        other_lon = given_lon - 360.0 * math.floor((given_lon - lon + 180.0) / 360.0)
        turn = other_lon - lon
        pieces = _pieces(lat, other_lat, turn)
        for piece in range(1, pieces):
            part = piece / pieces
            found.append((lon + part * turn, lat + part * (other_lat - lat)))
        lon, lat = other_lon, other_lat
        found.append((lon, lat))
    return found


def _pieces(lat: float, other_lat: float, turn: float) -> int:
    """Return into how many pieces an edge has to be divided."""
    phi, turn_radians = math.radians((lat + other_lat) / 2), math.radians(turn)
    east_m = turn_radians * math.cos(phi) * EARTH_M
    north_m = math.radians(other_lat - lat) * EARTH_M
    # What a parallel departs from the great circle between two of its points.
    bent_m = EARTH_M * turn_radians**2 * abs(math.sin(2 * phi)) / 16
    return max(
        1,
        math.ceil(math.sqrt(bent_m / _TOLERANCE_M)),
        math.ceil(math.hypot(east_m, north_m) / _PIECE_M),
    )
