"""Stay-point detection over one device's fixes; see stay_points.pyx."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

EARTH_RADIUS_M: Final[float]

def find_stays(
    time_ms: NDArray[np.int64],
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    distance_m: float = 100.0,
    duration_ms: int = 300_000,
    gap_ms: int = 86_400_000,
    include_last: bool = True,
) -> NDArray[np.int64]:
    """Stays as rows (first, finish, stop) of indices into the fixes, which are sorted by time.

    The stay lasts from time[first] to time[finish]; its members are first..stop-1. `finish` is the
    first fix outside (as in trackintel), except in a last stay that is still open.
    Raises ValueError when the arrays differ in length.
    """

def haversine_m(lat_1: float, lon_1: float, lat_2: float, lon_2: float) -> float:
    """Great-circle distance in m on a sphere of EARTH_RADIUS_M; arguments in degrees."""

def link_places(
    lat: NDArray[np.float64], lon: NDArray[np.float64], distance_m: float = 100.0
) -> NDArray[np.int64]:
    """Number the points by single linkage: those within `distance_m` of each other share a number.

    The same as DBSCAN with one sample a cluster. Numbers start at 0, in the order of each group's
    first point. Raises ValueError when the arrays differ in length.
    """
