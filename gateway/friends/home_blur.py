"""Around each home lies a circle, and whatever happens within it is told to others as its middle.

The middle is not the home. It is moved by a way that follows from a secret of the installation, so
nobody can compute it, and the home may be anywhere in the circle with the same likelihood, apart
from its rim. It is always the same way, so nobody gets nearer by asking often. Each run of the
places job finds a home some metres away from where it was: so the way is that of a cell of a secret
grid, and many runs give one circle, or two that differ by a cell where a home lies on an edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RADIUS_M: Final = 500.0
#: A home, with what its fixes scatter around it, stays within the circle: half the diagonal of a
#: cell and the way make 356 m at most.
_CELL_M: Final = 150.0
_MOVED_M_MAX: Final = 250.0
#: Cells that share a way. A home that is really another one, farther away, has another way, so that
#: whoever knows the old one does not know the new one.
_CELLS_OF_A_WAY: Final = 8

_METRES_PER_DEGREE: Final = 111_195.0


class Circle(NamedTuple):
    """About where somebody lives: its middle, in degrees."""

    lat: float
    lon: float

    def has(self, lat: float, lon: float) -> bool:
        """Tell whether a position is within the circle."""
        return bool(self._has(lat, lon))

    def has_each(self, lat: NDArray[np.float64], lon: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The same of many positions."""
        within: NDArray[np.bool_] = self._has(lat, lon)
        return within

    def _has(self, lat: Any, lon: Any) -> Any:
        north = lat - self.lat
        east = ((lon - self.lon + 180) % 360 - 180) * math.cos(math.radians(self.lat))
        return north**2 + east**2 <= (RADIUS_M / _METRES_PER_DEGREE) ** 2


def circles_around(
    user: str, homes: Iterable[tuple[float, float]], key: bytes
) -> tuple[Circle, ...]:
    """The circles around the homes (lat, lon in degrees) of a user; `key` is the secret."""
    return tuple(dict.fromkeys(_circle(user, lat, lon, key) for lat, lon in homes))


def _circle(user: str, lat: float, lon: float, key: bytes) -> Circle:
    north_phase, east_phase = _numbers(key, "grid", user)
    row = math.floor(lat * _METRES_PER_DEGREE / _CELL_M + north_phase)
    lat = (row + 0.5 - north_phase) * _CELL_M / _METRES_PER_DEGREE
    # The width of a cell is that of its row, wherever in it the home is.
    cell = _CELL_M / _METRES_PER_DEGREE / _shrink(lat)
    column = math.floor(lon / cell + east_phase)
    lon = (column + 0.5 - east_phase) * cell
    way = f"{row // _CELLS_OF_A_WAY}\0{column // _CELLS_OF_A_WAY}"
    turn, far = _numbers(key, "way", f"{user}\0{way}")
    # The root makes all of a disc equally likely.
    away = _MOVED_M_MAX * math.sqrt(far) / _METRES_PER_DEGREE
    lat += away * math.cos(2 * math.pi * turn)
    lon += away * math.sin(2 * math.pi * turn) / _shrink(lat)
    return Circle(round(max(-90.0, min(90.0, lat)), 5), round((lon + 180) % 360 - 180, 5))


def _shrink(lat: float) -> float:
    return max(math.cos(math.radians(lat)), 1e-6)


def _numbers(key: bytes, kind: str, text: str) -> tuple[float, float]:
    """Two numbers in [0, 1) that nobody knows who has not the key."""
    digest = blake2b(f"{kind}\0{text}".encode(), key=key, digest_size=16).digest()
    one, other = digest[:8], digest[8:]
    return int.from_bytes(one, "big") / 2**64, int.from_bytes(other, "big") / 2**64
