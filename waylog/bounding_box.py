"""Boxes of the map."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class BoundingBox:
    """A box in degrees; one across the antimeridian has west > east."""

    west: float
    south: float
    east: float
    north: float

    @classmethod
    def of(cls, numbers: Iterable[float]) -> BoundingBox:
        """Return a box from [west, south, east, north]. Raises ValueError."""
        west, south, east, north = (float(number) for number in numbers)
        if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= north <= 90):
            raise ValueError("bbox is [west, south, east, north] in degrees")
        return cls(west, south, east, north)

    def contains(self, lat: float, lon: float) -> bool:
        """Tell whether a position is inside."""
        if not self.south <= lat <= self.north:
            return False
        if self.west <= self.east:
            return self.west <= lon <= self.east
        return lon >= self.west or lon <= self.east
