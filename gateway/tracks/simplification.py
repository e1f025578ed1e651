"""Leaves out points of a track that nobody would miss, neither on a map nor in a replay.

A point is left out where the device was no farther than a tolerance from where a straight and
steady movement between the points that stay would have had it at that time (TD-TR: Meratnia and
de By, EDBT 2004). So a halt on a straight road stays, which a simplification of the shape would
lose.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from waylog.great_circle import EARTH_M

_METRES_PER_UNIT: Final = math.radians(EARTH_M) / 1e7
_FACTOR: Final = 2.0


def simplified(
    times: NDArray[np.int64], lat: NDArray[np.int32], lon: NDArray[np.int32], tolerance_m: float
) -> NDArray[np.bool_]:
    """Return which points stay; the first and the last one always do.

    Times are ms and ascend, `lat` and `lon` are 1e-7 degrees.
    """
    kept = np.zeros(len(times), np.bool_)
    if not len(times):
        return kept
    kept[[0, -1]] = True
    y = lat * _METRES_PER_UNIT
    # Longitudes run on over the antimeridian.
    turned = np.unwrap(lon.astype(np.float64), period=3.6e9)
    x = turned * _METRES_PER_UNIT * math.cos(math.radians(float(np.mean(lat)) / 1e7))
    t = times.astype(np.float64)
    waiting = [(0, len(times) - 1)]
    while waiting:
        first, last = waiting.pop()
        if last - first < 2:
            continue
        inner = slice(first + 1, last)
        share = (t[inner] - t[first]) / max(t[last] - t[first], 1.0)
        away = np.hypot(
            x[first] + share * (x[last] - x[first]) - x[inner],
            y[first] + share * (y[last] - y[first]) - y[inner],
        )
        farthest = int(np.argmax(away))
        if away[farthest] > tolerance_m:
            middle = first + 1 + farthest
            kept[middle] = True
            waiting += [(first, middle), (middle, last)]
    return kept


def simplified_to(
    times: NDArray[np.int64],
    lat: NDArray[np.int32],
    lon: NDArray[np.int32],
    *,
    tolerance_m: float,
    points_max: int,
) -> NDArray[np.bool_]:
    """Return which points stay with the tolerance, or with the least multiple by two that leaves
    no more than `points_max` (two or more)."""
    kept = simplified(times, lat, lon, tolerance_m)
    while int(kept.sum()) > points_max:
        tolerance_m *= _FACTOR
        # What a smaller tolerance has left out is not looked at again.
        at = np.flatnonzero(kept)
        kept[at] = simplified(times[at], lat[at], lon[at], tolerance_m)
    return kept
