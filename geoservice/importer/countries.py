"""The country of each point of an extract.

Natural Earth's borders are off by up to a kilometre. The extract has exact border lines, but only
parts of the neighbours' borders. So the extract is cut into pieces along its border lines, and the
world index only decides which country each piece is in.
"""

from __future__ import annotations

from array import array
from collections import Counter
from sys import intern
from typing import Any, Final

import numpy as np
import shapely
from numpy.typing import NDArray

from geoservice.importer.reading import Source
from geoservice.importer.rows import AREA, Geometries
from geoservice.reverse.geocoder import Geocoder

#: Points sampled along each side of a piece's bounding box.
_SAMPLES: Final = 24
#: Share of the samples that must be in one country; the others then count as errors of the world.
_CLEAR: Final = 0.95
_Box = tuple[float, float, float, float]


class Countries:
    """A finder of country codes for points in degrees."""

    def __init__(self, source: Source, world: Geocoder) -> None:
        self._world = world
        self._areas: list[tuple[Any, str]] = []
        rows = source.rows
        for row in np.flatnonzero(
            rows.where("boundary", "administrative") & (rows.admin_level == 2) & (rows.kind == AREA)
        ).tolist():
            code = rows.tags(row).address.get("country")
            if code:
                self._areas.append((rows.geometries([row])[0], code.lower()))
        self.complete = {code for _, code in self._areas}
        self._pieces: list[tuple[Any, str]] = []
        # Samples outside the countries with a complete border, and the codes of their countries.
        self._samples: list[tuple[float, float]] = []
        self._sample_codes: list[str] = []
        for piece in _cut(source.bounds, source.border_lines):
            code = self._vote(piece)
            if code is not None:
                self._pieces.append((piece, code))
        self._sample_tree = shapely.STRtree(shapely.points(np.array(self._samples).reshape(-1, 2)))

    def codes(self, points: Geometries) -> NDArray[Any]:
        """Return the country code of each point, None at sea."""
        codes = np.full(len(points), None, dtype=object)
        for areas in (self._areas, self._pieces):
            for area, code in areas:
                missing = np.flatnonzero(codes == None)  # noqa: E711 - elementwise
                if not len(missing):
                    return codes
                shapely.prepare(area)
                inside = shapely.covers(area, points[missing])
                codes[missing[inside]] = code
        missing = np.flatnonzero(codes == None)  # noqa: E711 - elementwise
        if len(missing):
            codes[missing] = [
                self._other(point) if code in self.complete else code
                for point, code in zip(
                    points[missing],
                    self._ask(shapely.get_coordinates(points[missing])),
                    strict=True,
                )
            ]
        return codes

    def _ask(self, points: NDArray[np.float64]) -> list[str | None]:
        lats, lons = array("d", points[:, 1]), array("d", points[:, 0])
        codes = (
            result.address.get("country_code") for result in self._world.reverse_batch(lats, lons)
        )
        # Keep one string for each country instead of one for each point.
        return [None if code is None else intern(code) for code in codes]

    def _other(self, point: Any) -> str | None:
        """Return the country of the sample nearest to a point that lies outside a complete border.

        The world index puts the point in the country with that border, which is wrong.
        """
        if not self._sample_codes:
            return None
        return self._sample_codes[int(self._sample_tree.nearest(point))]

    def _vote(self, piece: Any) -> str | None:
        """Return the country of a piece, or None if border lines that divide it are missing."""
        west, south, east, north = piece.bounds
        fractions = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
        lons, lats = np.meshgrid(
            west + (east - west) * fractions, south + (north - south) * fractions
        )
        shapely.prepare(piece)
        inside = shapely.contains_xy(piece, lons, lats)
        points = np.column_stack([lons[inside], lats[inside]])
        middle = piece.representative_point()
        if not len(points):
            points = np.array([[middle.x, middle.y]])
        if any(area.covers(middle) for area, _ in self._areas):
            return None  # its border is complete
        sampled = [
            ((float(point[0]), float(point[1])), code)
            for point, code in zip(points, self._ask(points), strict=True)
            if code is not None and code not in self.complete
        ]
        self._samples += [point for point, _ in sampled]
        self._sample_codes += [code for _, code in sampled]
        votes = Counter(code for _, code in sampled)
        if not votes:
            return None
        code, count = votes.most_common(1)[0]
        return code if count >= _CLEAR * votes.total() else None


def _cut(bounds: list[_Box], lines: list[Any]) -> list[Any]:
    """Cut the boxes of the extracts along border lines."""
    if not bounds or not lines:
        return []
    boxes = shapely.union_all([shapely.box(*box) for box in bounds])
    edges = shapely.union_all([*lines, shapely.boundary(boxes)])
    pieces = shapely.get_parts(shapely.polygonize([edges]))
    return [piece for piece in pieces if boxes.covers(piece.representative_point())]
