"""Distances on the sphere."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Mean radius of the earth (IUGG).
EARTH_M: Final = 6_371_008.8


def distance_m(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """Return the distance along the great circle (haversine)."""
    phi, other_phi = math.radians(lat), math.radians(other_lat)
    half = (
        math.sin((other_phi - phi) / 2) ** 2
        + math.cos(phi) * math.cos(other_phi) * math.sin(math.radians(other_lon - lon) / 2) ** 2
    )
    return 2 * EARTH_M * math.asin(min(1.0, math.sqrt(half)))


def distances_m(
    lat: NDArray[np.float64],
    lon: NDArray[np.float64],
    other_lat: NDArray[np.float64],
    other_lon: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the same distances for arrays; some 50 ns each, and equal to the last digits."""
    import numpy as np

    phi, other_phi = np.radians(lat), np.radians(other_lat)
    half = (
        np.sin((other_phi - phi) / 2) ** 2
        + np.cos(phi) * np.cos(other_phi) * np.sin(np.radians(other_lon - lon) / 2) ** 2
    )
    away: NDArray[np.float64] = 2 * EARTH_M * np.arcsin(np.minimum(1.0, np.sqrt(half)))
    return away
