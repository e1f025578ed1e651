"""Areas of which the extract lacks a part: built of the rings that are there, if they are whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import shapely


def assemble(lines: Sequence[Any]) -> Any | None:
    """The area inside of closed rings, with holes.

    None if the lines do not close, or cross each other: no one knows which side is meant.
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
        # A ring in another is a hole, one in a hole an island.
        area = polygon if area is None else shapely.symmetric_difference(area, polygon)
    if area is None or area.is_empty or shapely.get_dimensions(area) != 2:
        return None
    return area


def available(members: Sequence[int], lines: Mapping[int, Any]) -> list[Any]:
    """The lines of those members that the extract has."""
    return [lines[member] for member in members if member in lines]
