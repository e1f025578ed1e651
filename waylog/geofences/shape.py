"""Shapes of geofences on the sphere: whether a place is in one for certain, or outside."""

from __future__ import annotations

import math
from typing import Final, Protocol

import shapely

from waylog.geofences.definition import (
    RADIUS_M_MAX,
    Circle,
    Geofence,
    InvalidGeofence,
    Position,
    line_of,
    polygons_of,
)
from waylog.geofences.plane import Plane, straight
from waylog.great_circle import EARTH_M, distance_m

INSIDE: Final = 1
UNDECIDED: Final = 0
OUTSIDE: Final = -1

#: m; parts of a polygon that are closer than twice this have no gap between them.
_SEAM_M: Final = 0.5
#: Boxes of a corridor: one around a long one would hold much that is far from it.
_BOXES_MAX: Final = 64
#: Degrees by which a box is larger than its shape.
_MARGIN: Final = 1e-5

Box = tuple[float, float, float, float]  # west, south, east, north, degrees


class Shape(Protocol):
    """A region of the sphere."""

    def side(self, lat: float, lon: float, margin_m: float) -> int:
        """Return INSIDE or OUTSIDE if that holds within a margin around a place, or UNDECIDED."""

    def boxes(self) -> list[Box]:
        """Return boxes that hold the shape; none crosses the antimeridian."""

    @property
    def circle(self) -> tuple[float, float, float] | None:
        """Latitude, longitude (degrees) and radius (m) if it is a circle, else None."""


def shape_of(fence: Geofence) -> Shape:
    """Return the shape of a definition; raises InvalidGeofence."""
    if fence.circle is not None:
        return CircleShape(fence.circle)
    if fence.polygon is not None:
        return PolygonShape(polygons_of(fence.polygon, "polygon"))
    assert fence.corridor is not None
    line = line_of(fence.corridor.line, "corridor.line")
    return CorridorShape(line, fence.corridor.width / 2)


class CircleShape:
    """All places within a distance of a point."""

    __slots__ = ("_circle",)

    def __init__(self, circle: Circle) -> None:
        self._circle = circle

    def side(self, lat: float, lon: float, margin_m: float) -> int:
        """See Shape."""
        circle = self._circle
        return side_of_depth(circle.radius - distance_m(lat, lon, circle.lat, circle.lon), margin_m)

    def boxes(self) -> list[Box]:
        """See Shape."""
        circle = self._circle
        return _boxes_of([(circle.lon, circle.lat)], circle.radius)

    @property
    def circle(self) -> tuple[float, float, float]:
        """See Shape."""
        return self._circle.lat, self._circle.lon, self._circle.radius


class CorridorShape:
    """All places within a distance of a line."""

    __slots__ = ("_boxes", "_distance_m", "_line", "_plane")

    def __init__(self, line: list[Position], distance_m: float) -> None:
        """Raises InvalidGeofence."""
        self._plane = Plane.around(line)
        positions = straight(line)
        points = [self._plane.project(lat, lon) for lon, lat in positions]
        _check_reach(points, distance_m, "corridor")
        self._distance_m = distance_m
        self._line = shapely.LineString(points)
        shapely.prepare(self._line)
        step = max(1, math.ceil(len(positions) / _BOXES_MAX))
        self._boxes = [
            box
            for begin in range(0, len(positions) - 1, step)
            for box in _boxes_of(positions[begin : begin + step + 1], distance_m)
        ]

    def side(self, lat: float, lon: float, margin_m: float) -> int:
        """See Shape."""
        point = shapely.Point(self._plane.project(lat, lon))
        return side_of_depth(
            self._distance_m - float(shapely.distance(self._line, point)), margin_m
        )

    def boxes(self) -> list[Box]:
        """See Shape."""
        return self._boxes

    @property
    def circle(self) -> None:
        """See Shape."""
        return None


class PolygonShape:
    """Polygons with holes. Parts that touch, for example at the antimeridian, are one region."""

    __slots__ = ("_boundary", "_boxes", "_plane", "_region")

    def __init__(self, polygons: list[list[list[Position]]]) -> None:
        """Raises InvalidGeofence."""
        self._plane = Plane.around([position for rings in polygons for position in rings[0]])
        parts, self._boxes = [], []
        for rings in polygons:
            straightened = [straight(ring) for ring in rings]
            outer, *holes = [
                [self._plane.project(lat, lon) for lon, lat in ring] for ring in straightened
            ]
            _check_reach(outer, 0.0, "polygon")
            part = shapely.Polygon(outer, holes)
            if not part.is_valid or not part.area > 0:
                raise InvalidGeofence(f"polygon: {_why(part)}")
            parts.append(part)
            self._boxes += _boxes_of(straightened[0], 0.0)
        self._region = parts[0] if len(parts) == 1 else _joined(parts)
        self._boundary = self._region.boundary
        shapely.prepare(self._region)
        shapely.prepare(self._boundary)

    def side(self, lat: float, lon: float, margin_m: float) -> int:
        """See Shape."""
        x, y = self._plane.project(lat, lon)
        if margin_m > 0 and shapely.dwithin(self._boundary, shapely.Point(x, y), margin_m):
            return UNDECIDED
        return INSIDE if shapely.intersects_xy(self._region, x, y) else OUTSIDE

    def boxes(self) -> list[Box]:
        """See Shape."""
        return self._boxes

    @property
    def circle(self) -> None:
        """See Shape."""
        return None


def _joined(parts: list[shapely.Polygon]) -> shapely.Geometry:
    """Return the union of polygons, without gaps as small as those that rounding leaves."""
    region = shapely.union_all(parts)
    wider = shapely.buffer(region, _SEAM_M, join_style="mitre")
    return shapely.buffer(wider, -_SEAM_M, join_style="mitre")


def side_of_depth(depth_m: float, margin_m: float) -> int:
    """Return the side of a place that is so many metres inside of a shape, within a margin."""
    if depth_m >= margin_m:
        return INSIDE
    return OUTSIDE if depth_m < -margin_m else UNDECIDED


def _check_reach(points: list[tuple[float, float]], more_m: float, where: str) -> None:
    reach_m = max(math.hypot(x, y) for x, y in points) + more_m
    if reach_m > RADIUS_M_MAX:
        raise InvalidGeofence(
            f"{where}: it reaches {reach_m / 1000:.0f} km from its middle; at most "
            f"{RADIUS_M_MAX / 1000:.0f} km are possible"
        )


def _why(part: shapely.Polygon) -> str:
    reason = str(shapely.is_valid_reason(part)).partition("[")[0]
    return f"{reason.lower()}; its rings must not cross themselves or each other"


def _boxes_of(positions: list[Position], reach_m: float) -> list[Box]:
    """Return what holds all places within a distance of a line, and what is in it if it is a ring.

    `positions` have longitudes that go on beyond 180 degrees.
    """
    lons, lats = zip(*positions, strict=True)
    reach = math.degrees(reach_m / EARTH_M) + _MARGIN
    south, north = min(lats) - reach, max(lats) + reach
    if len(lons) > 3 and abs(lons[-1] - lons[0]) > 359:
        # A ring around a pole, the one that is nearer.
        south, north = (south, 90.0) if south + north > 0 else (-90.0, north)
    if south <= -90 or north >= 90:
        return [(-180.0, max(south, -90.0), 180.0, min(north, 90.0))]
    # Where the meridians are closest the reach is most degrees: a circle touches them on a parallel
    # that is nearer the pole than its middle.
    middle = max(abs(min(lats)), abs(max(lats)))
    across = math.sin(math.radians(reach)) / math.cos(math.radians(middle))
    if across >= 1:
        return [(-180.0, south, 180.0, north)]
    turn = math.degrees(math.asin(across)) + _MARGIN
    return _within_a_turn(min(lons) - turn, max(lons) + turn, south, north)


def _within_a_turn(west: float, east: float, south: float, north: float) -> list[Box]:
    """Return a box as one or two whose longitudes are -180 to 180."""
    if east - west >= 360:
        return [(-180.0, south, 180.0, north)]
    turns = math.floor((west + 180) / 360) * 360
    west, east = west - turns, east - turns
    if east <= 180:
        return [(west, south, east, north)]
    return [(west, south, 180.0, north), (-180.0, south, east - 360, north)]
