"""The shapes of a street index as GeoJSON: lines of streets, outlines of houses.

Boundaries have no shape here: the index keeps them cut into bands, which serve only lookups.
"""

from __future__ import annotations

from typing import Any, Final

from geoservice.index import street_format as sections
from geoservice.index.store import IndexFile

_WIDTH: Final = len(sections.SHAPE_COLUMNS)
_OBJECT: Final = sections.SHAPE_COLUMNS.index("object")
_FIRST_VERTEX: Final = sections.SHAPE_COLUMNS.index("first_vertex")
_LAYERS: Final = sections.SHAPE_COLUMNS.index("layers")

Position = list[float]  # lon, lat


def object_geometry(index: IndexFile, number: int) -> dict[str, Any] | None:
    """Return the geometry of an object, or None where only a point is known."""
    shapes = index.integers(sections.SHAPES)
    vertices = index.integers(sections.VERTICES)
    lines: list[list[Position]] = []
    rings: list[list[Position]] = []
    place = _first_shape(shapes, number)
    while place < len(shapes) // _WIDTH - 1 and shapes[place * _WIDTH + _OBJECT] == number:
        row = place * _WIDTH
        layers, next_row = shapes[row + _LAYERS], row + _WIDTH
        first, end = shapes[row + _FIRST_VERTEX], shapes[next_row + _FIRST_VERTEX]
        parts = _parts(vertices[2 * max(0, first) : 2 * max(0, end)].tolist())
        if layers & sections.SHAPE_AREA:
            rings += parts
        elif layers & sections.SHAPE_LINE:
            for part in parts:
                # Long streets are cut into pieces. Neighbouring pieces share a point.
                if lines and lines[-1][-1] == part[0]:
                    lines[-1] += part[1:]
                else:
                    lines.append(part)
        place += 1
    if rings:
        return _area(rings)
    if len(lines) == 1:
        return {"type": "LineString", "coordinates": lines[0]}
    return {"type": "MultiLineString", "coordinates": lines} if lines else None


def simplified(geometry: dict[str, Any], degrees: float) -> dict[str, Any]:
    """Return the geometry with fewer points, none of them moved by more than `degrees`."""
    # Imported here, so that processes that never simplify save the memory.
    from shapely.geometry import mapping, shape

    return dict(mapping(shape(geometry).simplify(degrees)))


def _first_shape(shapes: memoryview, number: int) -> int:
    """Return the first shape of an object, by binary search: shapes are sorted by object."""
    low, high = 0, max(0, len(shapes) // _WIDTH - 1)
    while low < high:
        middle = (low + high) // 2
        if shapes[middle * _WIDTH + _OBJECT] < number:
            low = middle + 1
        else:
            high = middle
    return low


def _parts(numbers: list[int]) -> list[list[Position]]:
    parts: list[list[Position]] = [[]]
    for lon, lat in zip(numbers[::2], numbers[1::2], strict=False):
        if lon == sections.RING_END:
            parts.append([])
        else:
            parts[-1].append([lon / 1e7, lat / 1e7])
    return [part for part in parts if part]


def _area(rings: list[list[Position]]) -> dict[str, Any] | None:
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings}
    # Which rings are holes follows from the rings around them.
    import shapely
    from shapely.geometry import mapping

    lines = [shapely.LineString(ring) for ring in rings if len(ring) > 1]
    area = shapely.build_area(shapely.MultiLineString(lines))
    return dict(mapping(area)) if not area.is_empty else None
