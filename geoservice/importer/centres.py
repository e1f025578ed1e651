"""The centre and the bounding box of each place."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import shapely
from numpy.typing import NDArray

from geoservice.importer.rows import DEGREE, LINE, POINT, Geometries, Integers, Rows, batches

_BATCH: Final = 10_000


class Centres:
    """Centres, which lie on the surface, and bounding boxes of all rows, in 1e-7 degrees."""

    def __init__(self, rows: Rows) -> None:
        self.lon = rows.lon.copy()
        self.lat = rows.lat.copy()
        self.boxes = np.stack([rows.lon, rows.lat, rows.lon, rows.lat], axis=1)
        for numbers in batches(np.flatnonzero(rows.kind != POINT), _BATCH):
            geometries = rows.geometries(numbers)
            centres = np.empty(len(numbers), dtype=object)
            lines = (rows.kind[numbers] == LINE) & (shapely.get_type_id(geometries) == 1)
            centres[lines] = shapely.line_interpolate_point(geometries[lines], 0.5, normalized=True)
            centres[~lines] = shapely.point_on_surface(geometries[~lines])
            coordinates = np.rint(shapely.get_coordinates(centres) * DEGREE)
            self.lon[numbers] = coordinates[:, 0]
            self.lat[numbers] = coordinates[:, 1]
            self.boxes[numbers] = np.rint(shapely.bounds(geometries) * DEGREE)
            rows.release()

    def point(self, row: int) -> Any:
        """Return the centre of one row, in degrees."""
        return shapely.Point(self.lon[row] / DEGREE, self.lat[row] / DEGREE)

    def points(self, rows: Integers) -> Geometries:
        """Return the centres of rows, in degrees."""
        points: Geometries = shapely.points(self.lon[rows] / DEGREE, self.lat[rows] / DEGREE)
        return points

    def curve(self, rows: Integers) -> NDArray[np.uint64]:
        """Return the positions of rows along a Hilbert curve, by which PostGIS orders geometries.

        Where several rows would do, Nominatim takes the first one of its table, which osm2pgsql has
        written in this order.
        """
        boxes = self.boxes[rows] / DEGREE
        low, high = _outward(boxes[:, :2], -np.inf), _outward(boxes[:, 2:], np.inf)
        middles = ((low + high) / 2.0).astype(np.float32)
        # Between 1 and 2, the bit patterns of floats have the same order as their values.
        x = (np.float32(1.5) + middles[:, 0] / np.float32(512.0)).view(np.uint32)
        y = (np.float32(1.5) + middles[:, 1] / np.float32(256.0)).view(np.uint32)
        return hilbert(y, x)


def _outward(values: NDArray[np.float64], direction: float) -> NDArray[np.float64]:
    """Round to 32-bit floats, outward or not at all."""
    rounded = values.astype(np.float32)
    inward = rounded > values if direction < 0 else rounded < values
    result: NDArray[np.float64] = np.where(
        inward, np.nextafter(rounded, np.float32(direction)), rounded
    ).astype(np.float64)
    return result


def hilbert(x: NDArray[np.uint32], y: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the positions of points of a 2**32 by 2**32 grid along a Hilbert curve."""
    u, v = x.astype(np.uint64), y.astype(np.uint64)
    position = np.zeros(len(u), dtype=np.uint64)
    for bit in range(31, -1, -1):
        right = u >> np.uint64(bit) & np.uint64(1)
        upper = v >> np.uint64(bit) & np.uint64(1)
        position = position << np.uint64(2) | (np.uint64(3) * right) ^ upper
        mask = np.uint64((1 << bit) - 1)
        u, v = u & mask, v & mask
        turned = upper == 0
        mirrored = turned & (right == 1)
        u, v = np.where(mirrored, mask - u, u), np.where(mirrored, mask - v, v)
        u, v = np.where(turned, v, u), np.where(turned, u, v)
    return position
