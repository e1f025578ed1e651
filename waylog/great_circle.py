"""Distances on the sphere."""

from __future__ import annotations

import math
from typing import Final

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
