"""A circle around each home; everything within it is shown to others at its centre.

The centre is not the home. It is displaced by an offset derived from a secret of the installation,
so nobody can compute it, and the home is equally likely to be anywhere in the circle, except near
its rim. The offset is constant, so asking repeatedly reveals nothing more. Each run of the places
job finds a home some metres away from the last result. The home is therefore snapped to a cell of a
secret grid first: many runs give one circle, or two that differ by one cell if the home is on an
edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waylog.great_circle import distance_m

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RADIUS_M: Final = 500.0
#: The side of a cell of the grid. A home and the scatter of its fixes stay within the circle: half
#: the diagonal of a cell plus the largest offset is 356 m.
_CELL_M: Final = 150.0
_MOVED_M_MAX: Final = 250.0
#: Side, in cells, of a block of cells that share an offset. A new home farther away has a different
#: offset, so that whoever knows the old home cannot derive the new one.
_CELLS_OF_A_WAY: Final = 8

_METRES_PER_DEGREE: Final = 111_195.0
#: The circle is one on a plane, and the corner of an area is not quite its nearest place.
_ROUGHLY: Final = 1.02


class Grid(NamedTuple):
    """Squares that are told in place of the positions in them.

    Their edges are displaced by a secret of the installation, so that they are no round degrees.
    """

    cell_m: float
    #: The displacement, as parts of a cell.
    north: float
    east: float
    #: What times are rounded down to, in ms.
    step_ms: int = 1

    def cell(self, lat: float, lon: float) -> tuple[int, int, float, float]:
        """Return the row and column of a position's cell, and its centre in degrees."""
        row = (lat * _METRES_PER_DEGREE / self.cell_m + self.north) // 1
        lat = (row + 0.5 - self.north) * self.cell_m / _METRES_PER_DEGREE
        # The width of a cell follows from the latitude of its row, not of the position, so that all
        # of a row share one grid.
        width = self.cell_m / _METRES_PER_DEGREE / _shrink(lat)
        column = (lon / width + self.east) // 1
        return int(row), int(column), lat, (column + 0.5 - self.east) * width

    def square(self, lat: float, lon: float) -> Square:
        """Return the cell of a position as a square."""
        _, _, lat, lon = self.cell(lat, lon)
        return Square(lat, lon, self.cell_m)


class Square(NamedTuple):
    """One cell of a grid: its centre in degrees, and its side in m."""

    lat: float
    lon: float
    side_m: float

    @property
    def centre(self) -> tuple[float, float]:
        """Return the centre, rounded to a metre."""
        return round(max(-90.0, min(90.0, self.lat)), 5), round((self.lon + 180) % 360 - 180, 5)

    def is_near(self, lat: float, lon: float, metres: float) -> bool:
        """Tell whether a position is inside, or outside by no more than that."""
        most = (self.side_m / 2 + metres) / _METRES_PER_DEGREE
        east = ((lon - self.lon + 180) % 360 - 180) * _shrink(self.lat)
        return abs(lat - self.lat) <= most and abs(east) <= most


def grid_of(user: str, cell_m: float, step_ms: int, key: bytes) -> Grid:
    """Return the grid by which a user's positions are told; `key` is the secret."""
    return Grid(cell_m, *_numbers(key, f"grid of {cell_m} m", user), step_ms)


class Area(NamedTuple):
    """What lies between two latitudes and two longitudes, in degrees."""

    south: float
    west: float
    north: float
    east: float


class Circle(NamedTuple):
    """The centre, in degrees, of a circle that hides a home."""

    lat: float
    lon: float

    def has(self, lat: float, lon: float) -> bool:
        """Tell whether a position is within the circle."""
        return bool(self._has(lat, lon))

    def has_each(self, lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return the same for arrays of positions."""
        within: NDArray[np.bool_] = self._has(lat, lon)
        return within

    def is_near(self, area: Area, metres: float) -> bool:
        """Tell whether some place of an area is in the circle, or no farther from it than that."""
        # Degrees of longitude from the centre, so that nothing depends on the antimeridian.
        west, east = ((each - self.lon + 180) % 360 - 180 for each in (area.west, area.east))
        if west > east or area.east - area.west >= 180:
            return True
        lat = min(max(self.lat, area.south), area.north)
        away_m = distance_m(self.lat, 0.0, lat, min(max(0.0, west), east))
        return away_m <= (RADIUS_M + metres) * _ROUGHLY

    def _has(self, lat: Any, lon: Any) -> Any:
        north = lat - self.lat
        east = ((lon - self.lon + 180) % 360 - 180) * math.cos(math.radians(self.lat))
        return north**2 + east**2 <= (RADIUS_M / _METRES_PER_DEGREE) ** 2


def circles_around(
    user: str, homes: Iterable[tuple[float, float]], key: bytes
) -> tuple[Circle, ...]:
    """Return the circles around the homes (lat, lon in degrees) of a user; `key` is the secret."""
    return tuple(dict.fromkeys(_circle(user, lat, lon, key) for lat, lon in homes))


def _circle(user: str, lat: float, lon: float, key: bytes) -> Circle:
    row, column, lat, lon = Grid(_CELL_M, *_numbers(key, "grid", user)).cell(lat, lon)
    way = f"{row // _CELLS_OF_A_WAY}\0{column // _CELLS_OF_A_WAY}"
    turn, far = _numbers(key, "way", f"{user}\0{way}")
    # The square root makes all points of a disc equally likely.
    away = _MOVED_M_MAX * math.sqrt(far) / _METRES_PER_DEGREE
    lat += away * math.cos(2 * math.pi * turn)
    lon += away * math.sin(2 * math.pi * turn) / _shrink(lat)
    return Circle(round(max(-90.0, min(90.0, lat)), 5), round((lon + 180) % 360 - 180, 5))


def _shrink(lat: float) -> float:
    return max(math.cos(math.radians(lat)), 1e-6)


def _numbers(key: bytes, kind: str, text: str) -> tuple[float, float]:
    """Return two numbers in [0, 1) that cannot be computed without the key."""
    digest = blake2b(f"{kind}\0{text}".encode(), key=key, digest_size=16).digest()
    one, other = digest[:8], digest[8:]
    return int.from_bytes(one, "big") / 2**64, int.from_bytes(other, "big") / 2**64
