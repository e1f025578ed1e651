"""The sections of area polygons and place nodes.

Polygons are cut into bands, so that a lookup tests a point against few edges.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import shapely

from geoservice.importer.ranks import reverse_diameter
from geoservice.importer.rows import DEGREE, Rows
from geoservice.importer.writer import build_cells
from geoservice.index import street_format as sections

_EDGES_PER_BAND: Final = 8
_BANDS_MAX: Final = 1024


@dataclass(frozen=True)
class Polygon:
    """An area that is answered where no street is near."""

    object: int
    rank_search: int
    rank_address: int
    layers: int  # LAYER_* bits of a feature; 0 for an area that is part of addresses
    row: int  # row that holds the geometry
    size: float  # square degrees


@dataclass(frozen=True)
class PlaceNode:
    """A settlement that is mapped as a node."""

    object: int
    rank_search: int
    lon: int
    lat: int


def area_sections(
    polygons: list[Polygon], nodes: list[PlaceNode], rows: Rows
) -> dict[str, bytes | memoryview]:
    """Build the sections that tell which areas a point is in."""
    polygons = sorted(polygons, key=lambda area: (-area.rank_search, area.size, area.object))
    table = array("i")
    band_ends = array("i")
    edges = array("i")
    boxes: list[tuple[int, int, int, int]] = []
    for polygon in polygons:
        geometry = rows.geometries([polygon.row])[0]
        box = tuple(np.rint(np.array(geometry.bounds) * DEGREE).astype(int).tolist())
        boxes.append(box)
        ranks = polygon.rank_search | polygon.rank_address << 8 | polygon.layers << 16
        first_band = len(band_ends)
        height = _append_bands(geometry, box[1], box[3], band_ends, edges)
        table.extend((polygon.object, ranks, first_band, *box, height))
    table.extend((-1, 0, len(band_ends), 0, 0, 0, 0, 1))
    nodes = sorted(nodes, key=lambda node: (-node.rank_search, node.object))
    node_boxes = []
    for node in nodes:
        # A degree of longitude is shorter than one of latitude: the same distance is more degrees.
        reach = round(reverse_diameter(node.rank_search) * DEGREE)
        wide = round(reach / max(0.05, np.cos(np.radians(node.lat / DEGREE))))
        node_boxes.append(
            (
                max(node.lon - wide, -180 * DEGREE),
                max(node.lat - reach, -90 * DEGREE),
                min(node.lon + wide, 180 * DEGREE),
                min(node.lat + reach, 90 * DEGREE),
            )
        )
    cells, entries = build_cells(
        np.array(boxes + node_boxes, dtype=np.int64).reshape(-1, 4),
        np.array([*range(len(polygons)), *(-1 - node.object for node in nodes)], dtype=np.int32),
        sections.AREA_CELL_SHIFT,
    )
    return {
        sections.AREAS: memoryview(table).cast("B"),
        sections.BANDS: memoryview(band_ends).cast("B"),
        sections.EDGES: memoryview(edges).cast("B"),
        sections.AREA_CELLS: cells,
        sections.AREA_ENTRIES: entries,
    }


def _append_bands(
    geometry: Any, south: int, north: int, band_ends: array[int], edges: array[int]
) -> int:
    """Sort the edges into bands; return the height of a band."""
    pieces = []
    for polygon in shapely.get_parts(geometry):
        for ring in (polygon.exterior, *polygon.interiors):
            points = np.rint(shapely.get_coordinates(ring) * DEGREE).astype(np.int64)
            pieces.append(np.concatenate([points[:-1], points[1:]], axis=1))
    table = np.concatenate(pieces)
    # Drop horizontal edges: they never cross a ray that goes east.
    table = table[table[:, 1] != table[:, 3]]
    count = int(min(_BANDS_MAX, max(1, len(table) // _EDGES_PER_BAND)))
    height = (north - south) // count + 1
    low = (np.minimum(table[:, 1], table[:, 3]) - south) // height
    high = (np.maximum(table[:, 1], table[:, 3]) - south) // height
    for band in range(count):
        inside = table[(low <= band) & (high >= band)]
        edges.frombytes(inside.astype("<i4").tobytes())
        band_ends.append(len(edges) // 4)
    return int(height)
