"""Where an extract has land and where sea: OpenStreetMap only has the line between them.

The ground of the map is a world at 1:10,000,000, whose coast is some hundred metres off. Where an
extract has streets, houses and the like, its own coast is drawn over it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import shapely

_LEVEL: Final = 14
_LATITUDE_MAX: Final = 85.05
#: Degrees to the side of the coast at which the sea is looked for: some metres.
_BESIDE: Final = 2e-5

Points = npt.NDArray[np.float64]


class LandCells:
    """The tiles of one zoom level in which an extract has something that stands on land."""

    def __init__(self) -> None:
        self._cells: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def add(self, lon_lat: Points) -> None:
        """Add the tiles of these points."""
        if not len(lon_lat):
            return
        count = 1 << _LEVEL
        x = np.clip((lon_lat[:, 0] / 360 + 0.5) * count, 0, count - 1).astype(np.int64)
        radians = np.radians(np.clip(lon_lat[:, 1], -_LATITUDE_MAX, _LATITUDE_MAX))
        y = (0.5 - np.log(np.tan(np.pi / 4 + radians / 2)) / (2 * np.pi)) * count
        cells = x << _LEVEL | y.astype(np.int64)
        self._cells = np.union1d(self._cells, cells)

    def outline(self, margin: int = 0) -> Any:
        """Return the area of the tiles and of so many around each, without holes."""
        count = 1 << _LEVEL
        x, y = self._cells >> _LEVEL, self._cells & count - 1
        around = np.mgrid[-margin : margin + 1, -margin : margin + 1].reshape(2, -1, 1)
        x = np.clip((x + around[0]).ravel(), 0, count - 1)
        y = np.clip((y + around[1]).ravel(), 0, count - 1)
        x, y = np.unique(np.stack((x, y)), axis=1)
        west, east = x / count * 360 - 180, (x + 1) / count * 360 - 180
        north, south = _latitude(y / count), _latitude((y + 1) / count)
        union = shapely.unary_union(shapely.box(west, south, east, north))
        parts = [shapely.Polygon(part.exterior) for part in shapely.get_parts(union)]
        return shapely.unary_union(parts)


def _latitude(y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * y))))


def sea(outline: Any, coastlines: Sequence[Any]) -> Any:
    """Return the part of `outline` that is sea, which lies to the right of every coastline."""
    if not coastlines or outline.is_empty:
        return shapely.Polygon()
    lines = shapely.get_parts(
        shapely.line_merge(shapely.MultiLineString(list(coastlines)), directed=True)
    )
    faces = shapely.get_parts(
        shapely.polygonize(
            shapely.get_parts(
                shapely.unary_union([*lines, *_extensions(outline, lines), outline.boundary])
            )
        )
    )
    faces = faces[shapely.contains(shapely.buffer(outline, 1e-9), faces)]
    tree = shapely.STRtree(faces)
    votes = np.zeros(len(faces), dtype=np.int64)
    for side, vote in ((1, 1), (-1, -1)):
        beside = shapely.points(np.concatenate([_beside(line, side) for line in lines]))
        _, found = tree.query(beside, predicate="within")
        np.add.at(votes, found, vote)
    return shapely.unary_union(faces[votes > 0])


def _extensions(outline: Any, lines: Sequence[Any]) -> list[Any]:
    """Return lines from where a coast ends within `outline` to its edge: an extract cuts it off."""
    boundary = outline.boundary
    shapely.prepare(outline)
    ends = itertools.chain.from_iterable(
        (line.coords[0], line.coords[-1]) for line in lines if not line.is_closed
    )
    return [
        shapely.shortest_line(shapely.Point(end), boundary)
        for end in ends
        if outline.contains(shapely.Point(end))
    ]


def _beside(line: Any, side: int) -> Points:
    """Return points beside the middle of each segment, to the right (1) or to the left (-1)."""
    points: Points = shapely.get_coordinates(line)
    along = np.diff(points, axis=0)
    length = np.maximum(1e-12, np.hypot(along[:, 0], along[:, 1]))[:, None]
    right = np.column_stack((along[:, 1], -along[:, 0])) / length
    return (points[:-1] + points[1:]) / 2 + side * _BESIDE * right
