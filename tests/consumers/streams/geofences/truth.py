"""Geofences computed another way: no projection, no index, no shapely, one fix after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

#: m, mean radius of the earth (IUGG), as a number of its own.
RADIUS = 6_371_008.8
Vector = tuple[float, float, float]


def vector(lon: float, lat: float) -> Vector:
    phi, turn = math.radians(lat), math.radians(lon)
    return math.cos(phi) * math.cos(turn), math.cos(phi) * math.sin(turn), math.sin(phi)


def angle(one: Vector, other: Vector) -> float:
    cross = math.hypot(
        one[1] * other[2] - one[2] * other[1],
        one[2] * other[0] - one[0] * other[2],
        one[0] * other[1] - one[1] * other[0],
    )
    return math.atan2(cross, sum(a * b for a, b in zip(one, other, strict=True)))


def metres(lon: float, lat: float, other_lon: float, other_lat: float) -> float:
    return RADIUS * angle(vector(lon, lat), vector(other_lon, other_lat))


def distance_to_line(lon: float, lat: float, line: Sequence[tuple[float, float]]) -> float:
    """Return the metres to the nearest of many points on the edges, found by halving steps.

    Edges are straight in degrees, and go the shorter way around.
    """
    best = math.inf
    for (west, south), (east, north) in pairwise(line):
        turn = (east - west + 180) % 360 - 180

        def at(part: float, west: float = west, south: float = south, turn: float = turn,
               rise: float = north - south) -> float:  # fmt: skip
            return metres(lon, lat, west + part * turn, south + part * rise)

        parts = [number / 64 for number in range(65)]
        nearest = min(parts, key=at)
        step = 1 / 64
        while step > 1e-9:
            nearest = min((max(0.0, nearest - step), nearest, min(1.0, nearest + step)), key=at)
            step /= 2
        best = min(best, at(nearest))
    return best


def crosses(lon: float, lat: float, ring: Sequence[tuple[float, float]]) -> bool:
    """Tell by the crossings of a meridian whether a place is inside of a ring; no poles in it."""
    inside = False
    base = ring[0][0]
    lons = [base]
    for (before, _), (after, _) in pairwise(ring):
        lons.append(lons[-1] + (after - before + 180) % 360 - 180)
    lats = [each for _, each in ring]
    for turned in (lon - 360, lon, lon + 360):
        for (x, y), (other_x, other_y) in pairwise(zip(lons, lats, strict=True)):
            if (x > turned) != (other_x > turned):
                inside ^= lat < y + (turned - x) / (other_x - x) * (other_y - y)
    return inside


def depth(definition: dict[str, Any], lat: float, lon: float) -> float:
    """Return how many metres a place is inside of a fence, negative outside."""
    if circle := definition.get("circle"):
        away = metres(lon, lat, circle["lon"], circle["lat"])
        return float(circle["radius"]) - away
    if corridor := definition.get("corridor"):
        away = distance_to_line(lon, lat, corridor["line"]["coordinates"])
        return float(corridor["width"]) / 2 - away
    geometry = definition["polygon"]
    polygons = geometry["coordinates"]
    if geometry["type"] == "Polygon":
        polygons = [polygons]
    inside = any(
        crosses(lon, lat, rings[0]) and not any(crosses(lon, lat, hole) for hole in rings[1:])
        for rings in polygons
    )
    away = min(distance_to_line(lon, lat, ring) for rings in polygons for ring in rings)
    return away if inside else -away
