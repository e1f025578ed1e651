"""Areas whose members are only partly in the extract, built from the rings that are complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import shapely


def assemble(lines: Sequence[Any]) -> Any | None:
    """Return the area inside closed rings, with holes.

    Returns None if the lines do not close or cross each other, because the inside is then unknown.
    """
    if not lines:
        return None
    merged = shapely.line_merge(shapely.MultiLineString(list(lines)))
    area: Any = None
    for ring in shapely.get_parts(merged):
        if not ring.is_closed or shapely.get_num_coordinates(ring) < 4:
            return None
        polygon = shapely.Polygon(ring)
        if not polygon.is_valid or (area is not None and shapely.crosses(area.boundary, ring)):
            return None
        # A ring inside another is a hole, a ring inside a hole an island.
        area = polygon if area is None else shapely.symmetric_difference(area, polygon)
    if area is None or area.is_empty or shapely.get_dimensions(area) != 2:
        return None
    return area


def available(members: Sequence[int], lines: Mapping[int, Any]) -> list[Any]:
    """Return the lines of those members that the extract has."""
    return [lines[member] for member in members if member in lines]
