"""Which country a point of an extract is in.

Natural Earth's borders are off by up to a kilometre; the extract has the real lines, but of the
neighbours' borders only a piece. So the lines are taken from the extract and cut it into pieces,
and the world decides only which country each piece is in.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any, Final

import numpy as np
import shapely
from numpy.typing import NDArray

from geoservice.importer.reading import Source
from geoservice.importer.rows import AREA, Geometries
from geoservice.reverse import Geocoder

#: A piece is asked for at so many points along each side.
_SAMPLES: Final = 24
_Box = tuple[float, float, float, float]


class Countries:
    """Answers country codes for points in degrees."""

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
        self._pieces = [
            (piece, code)
            for piece in _cut(source.bounds, source.border_lines)
            if (code := self._vote(piece)) is not None
        ]
        # Where the world names a country whose border is known, and that is elsewhere.
        self._neighbours = [
            code for _, code in self._pieces if code not in self.complete
        ] or sorted(source.country_names.keys() - self.complete)

    def codes(self, points: Geometries) -> NDArray[Any]:
        """The country code of each point, None at sea."""
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
                code if code not in self.complete else next(iter(self._neighbours), None)
                for code in self._ask(shapely.get_coordinates(points[missing]))
            ]
        return codes

    def _ask(self, points: NDArray[np.float64]) -> list[str | None]:
        lats, lons = array("d", points[:, 1]), array("d", points[:, 0])
        return [
            result.address.get("country_code") for result in self._world.reverse_batch(lats, lons)
        ]

    def _vote(self, piece: Any) -> str | None:
        west, south, east, north = piece.bounds
        fractions = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
        lons, lats = np.meshgrid(
            west + (east - west) * fractions, south + (north - south) * fractions
        )
        shapely.prepare(piece)
        inside = shapely.contains_xy(piece, lons, lats)
        points = np.column_stack([lons[inside], lats[inside]])
        if not len(points):
            point = piece.representative_point()
            points = np.array([[point.x, point.y]])
        inside_known = any(area.covers(piece.representative_point()) for area, _ in self._areas)
        votes = Counter(
            code
            for code in self._ask(points)
            if code is not None and (inside_known or code not in self.complete)
        )
        return votes.most_common(1)[0][0] if votes else None


def _cut(bounds: list[_Box], lines: list[Any]) -> list[Any]:
    """The extracts' boxes, cut along border lines."""
    if not bounds or not lines:
        return []
    boxes = shapely.union_all([shapely.box(*box) for box in bounds])
    edges = shapely.union_all([*lines, shapely.boundary(boxes)])
    pieces = shapely.get_parts(shapely.polygonize([edges]))
    return [piece for piece in pieces if boxes.covers(piece.representative_point())]
