"""Definitions of geofences, as the records of topic `geofence` hold them.

The key is `owner/name`. A fence of a user applies to that user's devices, one of the owner `*`, who
is the administrator, to those of all. The value is JSON with exactly one shape:

    {"circle": {"lat": 47.14, "lon": 9.52, "radius": 150}}
    {"polygon": {"type": "Polygon", "coordinates": [[[9.5, 47.1], ...]]}}
    {"corridor": {"line": {"type": "LineString", "coordinates": [...]}, "width": 60}}

Polygons are GeoJSON (RFC 7946): Polygon or MultiPolygon, with holes; longitude comes before
latitude. A corridor is what is within half of its width of the line. Lengths are metres. Optional
members: `devices` (names of the owner's devices, or `user/device`), `dwell` (seconds inside after
which the event `dwell` comes) and `minimum` (seconds inside before which there is no event).

A fence that a user has drawn has an id for the name in its key, and its name in `title`, so that it
stays the same one when it is renamed. What its owner is told of it, and how, is in `alerts`,
`channels` and `always`, which only the gateway reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from waylog.malformed import MALFORMED

#: Of all rings of a polygon together, or of a line.
POSITIONS_MAX: Final = 10_000
#: m; a quarter of the way around the earth is 10,000 km.
RADIUS_M_MAX: Final = 5_000_000.0
_NAME_CHARACTERS_MAX: Final = 200
_SECONDS_MAX: Final = 10 * 366 * 24 * 3600.0
_DEVICES_MAX: Final = 1000

Position = tuple[float, float]  # longitude and latitude, degrees
Ring = list[Position]

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=_SECONDS_MAX)]


class InvalidGeofence(ValueError):
    """A definition is wrong; the message says which member, and why."""


class Circle(msgspec.Struct, frozen=True):
    """All places within a distance of a point."""

    lat: Annotated[float, msgspec.Meta(ge=-90, le=90)]
    lon: Annotated[float, msgspec.Meta(ge=-180, le=180)]
    radius: Annotated[float, msgspec.Meta(gt=0, le=RADIUS_M_MAX)]  # m


class Corridor(msgspec.Struct, frozen=True):
    """All places within half of a width of a line."""

    line: dict[str, Any]  # GeoJSON LineString
    width: Annotated[float, msgspec.Meta(gt=0, le=RADIUS_M_MAX)]  # m


class Geofence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a record of topic `geofence`."""

    circle: Circle | None = None
    polygon: dict[str, Any] | None = None  # GeoJSON Polygon or MultiPolygon
    corridor: Corridor | None = None
    devices: Annotated[list[str], msgspec.Meta(max_length=_DEVICES_MAX)] | None = None
    dwell: _Seconds = 0.0  # s; 0: no event
    minimum: _Seconds = 0.0  # s
    #: What it is called, where the name in the key is an id.
    title: str | None = None
    #: Of which kinds of events the owner is told; None: of all.
    alerts: list[str] | None = None
    #: By which channels (gateway.alerts.channels); None: by all that the owner has.
    channels: list[str] | None = None
    #: Also in the owner's quiet hours.
    always: bool = False
    #: When its owner made it, ms since 1970; None: not over HTTP.
    created: int | None = None


_decode = msgspec.json.Decoder(Geofence).decode
_encode = msgspec.json.Encoder().encode


def decode_geofence(value: bytes) -> Geofence:
    """Return the definition of a record; raises InvalidGeofence, which is a ValueError."""
    try:
        fence = _decode(value)
    except MALFORMED as error:
        raise InvalidGeofence(str(error)) from None
    shapes = [fence.circle, fence.polygon, fence.corridor]
    if sum(each is not None for each in shapes) != 1:
        raise InvalidGeofence("one of the members circle, polygon and corridor is expected")
    # Their positions are looked at, too.
    if fence.polygon is not None:
        polygons_of(fence.polygon, "polygon")
    if fence.corridor is not None:
        line_of(fence.corridor.line, "corridor.line")
    return fence


def encode_geofence(fence: Geofence) -> bytes:
    """Return the value of a record of topic `geofence`."""
    return _encode(fence)


def check_key(owner: str, name: str) -> str:
    """Return the key of a fence; raises InvalidGeofence."""
    for what, text in (("owner", owner), ("name", name)):
        if not 0 < len(text) <= _NAME_CHARACTERS_MAX:
            raise InvalidGeofence(f"the {what} has 1 to {_NAME_CHARACTERS_MAX} characters")
        if not text.isprintable():
            raise InvalidGeofence(f"the {what} has characters that cannot be printed")
    if "/" in owner:
        raise InvalidGeofence(f"the owner is a user, without a slash: {owner}")
    return f"{owner}/{name}"


def shape_members(geometry: dict[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member of a definition that a geometry stands for; raises InvalidGeofence.

    `properties` has `radius` of a Point and `width` of a LineString, in metres.
    """
    kind = geometry.get("type")
    if kind in ("Polygon", "MultiPolygon"):
        return {"polygon": geometry}
    if kind == "LineString":
        return {"corridor": {"line": geometry, "width": _needed("width", properties)}}
    if kind == "Point":
        position = geometry.get("coordinates")
        if not isinstance(position, list) or len(position) < 2:
            raise InvalidGeofence("geometry.coordinates: [longitude, latitude] is expected")
        radius = _needed("radius", properties)
        return {"circle": {"lon": position[0], "lat": position[1], "radius": radius}}
    raise InvalidGeofence("geometry.type: Point, LineString, Polygon or MultiPolygon is expected")


def _needed(member: str, properties: Mapping[str, Any]) -> object:
    if member not in properties:
        raise InvalidGeofence(f"properties.{member}: metres are expected")
    return properties[member]


def polygons_of(geometry: dict[str, Any], where: str) -> list[list[Ring]]:
    """Return the rings of each polygon, the outer one first; raises InvalidGeofence."""
    kind, coordinates = geometry.get("type"), geometry.get("coordinates")
    if kind == "Polygon":
        polygons, places = [coordinates], [f"{where}.coordinates"]
    elif kind == "MultiPolygon":
        polygons = _list(coordinates, f"{where}.coordinates")
        places = [f"{where}.coordinates[{number}]" for number in range(len(polygons))]
    else:
        raise InvalidGeofence(f"{where}.type: Polygon or MultiPolygon is expected")
    found: list[list[Ring]] = []
    left = POSITIONS_MAX
    for polygon, place in zip(polygons, places, strict=True):
        rings = []
        for number, ring in enumerate(_list(polygon, place)):
            positions = _positions(ring, f"{place}[{number}]", 4, left)
            if positions[0] != positions[-1]:
                raise InvalidGeofence(f"{place}[{number}]: a ring ends where it begins")
            left -= len(positions)
            rings.append(positions)
        if not rings:
            raise InvalidGeofence(f"{place}: a polygon has at least one ring")
        found.append(rings)
    if not found:
        raise InvalidGeofence(f"{where}.coordinates: at least one polygon is expected")
    return found


def line_of(geometry: dict[str, Any], where: str) -> Ring:
    """Return the positions of a line; raises InvalidGeofence."""
    if geometry.get("type") != "LineString":
        raise InvalidGeofence(f"{where}.type: LineString is expected")
    return _positions(geometry.get("coordinates"), f"{where}.coordinates", 2, POSITIONS_MAX)


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidGeofence(f"{where}: an array is expected")
    return value


def _positions(value: object, where: str, least: int, most: int) -> Ring:
    listed = _list(value, where)
    if len(listed) < least:
        raise InvalidGeofence(f"{where}: at least {least} positions are expected")
    if len(listed) > most:
        raise InvalidGeofence(f"{where}: more than {POSITIONS_MAX} positions")
    return list(_checked(listed, where))


def _checked(listed: list[Any], where: str) -> Iterator[Position]:
    for number, each in enumerate(listed):
        if not isinstance(each, list) or len(each) < 2:
            raise InvalidGeofence(f"{where}[{number}]: [longitude, latitude] is expected")
        lon, lat = each[:2]
        if not _is_degrees(lon, 180.0) or not _is_degrees(lat, 90.0):
            raise InvalidGeofence(
                f"{where}[{number}]: longitude is -180 to 180 and latitude -90 to 90"
            )
        yield float(lon), float(lat)


def _is_degrees(value: object, most: float) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return math.isfinite(value) and -most <= value <= most
