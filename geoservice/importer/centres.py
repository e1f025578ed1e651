"""The middle and the box of each place."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import shapely

from geoservice.importer.rows import DEGREE, LINE, POINT, Geometries, Integers, Rows, batches

_BATCH: Final = 20_000


class Centres:
    """Points on the surface, and boxes, of all rows, in 1e-7 degrees."""

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
        """One middle, in degrees."""
        return shapely.Point(self.lon[row] / DEGREE, self.lat[row] / DEGREE)

    def points(self, rows: Integers) -> Geometries:
        """The middles of rows, in degrees."""
        points: Geometries = shapely.points(self.lon[rows] / DEGREE, self.lat[rows] / DEGREE)
        return points
