"""Fixes that are worth looking at: what to drop before stays are searched."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark.stay_points import EARTH_RADIUS_M

METRES_PER_DEGREE: Final = EARTH_RADIUS_M * np.pi / 180

#: Fixes that say of themselves that they are worse than this are dropped (m).
ACCURACY_MAX_M: Final = 100.0

# A spike leaves a place and comes back to it within one fix.
_SPIKE_LEG_M: Final = 300.0
_SPIKE_BASE_M: Final = 200.0

# Faster than an airliner, both there and back: the fix is wrong.
_SPEED_MAX_M_PER_MS: Final = 1000 / 3600


class Fixes(NamedTuple):
    """Fixes of one device, ascending by time."""

    time: NDArray[np.int64]  # ms
    lat: NDArray[np.float64]
    lon: NDArray[np.float64]

    def take(self, keep: NDArray[np.bool_]) -> Fixes:
        """Those fixes for which `keep` is true."""
        return Fixes(self.time[keep], self.lat[keep], self.lon[keep])


def clean(fixes: Fixes, accuracy: NDArray[np.float64]) -> Fixes:
    """Drop inaccurate fixes (where `accuracy` is not NaN), second fixes of one time, and spikes.

    `fixes` may come in any order; of fixes with one time, the first is kept.
    """
    keep = ~(accuracy > ACCURACY_MAX_M)
    if not keep.all():
        fixes = fixes.take(keep)
    if (np.diff(fixes.time) <= 0).any():
        _, first = np.unique(fixes.time, return_index=True)
        fixes = Fixes(fixes.time[first], fixes.lat[first], fixes.lon[first])
    # Twice: of two spikes with one fix between them, the first pass may see only one.
    for _ in range(2):
        spikes = find_spikes(fixes)
        if not spikes.any():
            break
        fixes = fixes.take(~spikes)
    return fixes


def find_spikes(fixes: Fixes) -> NDArray[np.bool_]:
    """Fixes that the device cannot have been at, given the fixes before and after."""
    spikes = np.zeros(len(fixes.time), np.bool_)
    if len(fixes.time) < 3:
        return spikes
    legs = distances_m(fixes.lat[:-1], fixes.lon[:-1], fixes.lat[1:], fixes.lon[1:])
    base = distances_m(fixes.lat[:-2], fixes.lon[:-2], fixes.lat[2:], fixes.lon[2:])
    there, back = legs[:-1], legs[1:]
    fast = legs > _SPEED_MAX_M_PER_MS * np.diff(fixes.time)
    spikes[1:-1] = ((there > _SPIKE_LEG_M) & (back > _SPIKE_LEG_M) & (base < _SPIKE_BASE_M)) | (
        fast[:-1] & fast[1:]
    )
    return spikes


def distances_m(
    lat_1: NDArray[np.float64],
    lon_1: NDArray[np.float64],
    lat_2: NDArray[np.float64],
    lon_2: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Flat distances in m; good to 1 % up to some kilometres, and right in kind beyond."""
    east = (lon_2 - lon_1 + 180) % 360 - 180
    east *= np.cos(np.radians(lat_1))
    north = lat_2 - lat_1
    result: NDArray[np.float64] = METRES_PER_DEGREE * np.sqrt(north * north + east * east)
    return result
