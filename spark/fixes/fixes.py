"""Fixes of one device as arrays."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from waylog.history.row_layout import UNITS_PER_DEGREE

#: Of the sphere that trackintel uses, because its stay points are the reference.
EARTH_RADIUS_M: Final = 6_371_000.0
METRES_PER_DEGREE: Final = EARTH_RADIUS_M * np.pi / 180


class Fixes(NamedTuple):
    """Fixes of one device, ascending by time.

    Positions are integers in units of 1e-7 degrees, some 11 mm. They take half the size of floats,
    and their sums are exact.
    """

    time: NDArray[np.int64]  # ms
    lat: NDArray[np.int32]  # 1e-7 degrees
    lon: NDArray[np.int32]
    accuracy: NDArray[np.float32]  # m, NaN where unknown

    def take(self, rows: NDArray[np.int64] | slice) -> Fixes:
        """Return the selected fixes."""
        return Fixes(self.time[rows], self.lat[rows], self.lon[rows], self.accuracy[rows])


def to_degrees(units: NDArray[np.int64] | NDArray[np.int32]) -> NDArray[np.float64]:
    """Convert integers in units of 1e-7 degrees to the doubles nearest to these decimals."""
    result: NDArray[np.float64] = units / UNITS_PER_DEGREE
    return result


def distances_m(
    lat_1: NDArray[np.float64] | float,
    lon_1: NDArray[np.float64] | float,
    lat_2: NDArray[np.float64],
    lon_2: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return distances on a flat map, in m; accurate to 1 % up to some kilometres, rough beyond."""
    east = (lon_2 - lon_1 + 180) % 360 - 180
    east = east * np.cos(np.radians(lat_1))
    north = lat_2 - lat_1
    result: NDArray[np.float64] = METRES_PER_DEGREE * np.sqrt(north * north + east * east)
    return result
