"""Zones, as users ask for them over HTTP: the geofences of one's own devices.

A zone's shape is a geometry of GeoJSON (RFC 7946): a Point with a `radius`, a LineString with a
`width`, both in metres, or a Polygon or MultiPolygon.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from gateway.users.database import DEVICE_NAME
from gateway.users.notice_choices import FENCE_KINDS
from waylog.geofences.definition import (
    Geofence,
    InvalidGeofence,
    Position,
    decode_geofence,
    line_of,
    polygons_of,
    shape_members,
)
from waylog.great_circle import distance_m

ZONES_PER_USER_MAX: Final = 100
_NAME_CHARACTERS_MAX: Final = 100
_POSITIONS_MAX: Final = 500
#: m; a phone's position is seldom better known than the smallest.
_SMALLEST_M: Final = 10.0
_RADIUS_MAX_M: Final = 500_000.0
_WIDTH_MAX_M: Final = 50_000.0
#: m; from the first position of a shape to any other one.
_REACH_MAX_M: Final = 1_000_000.0
#: Degrees; the map ends there, and so do the shapes that one can draw.
_LATITUDE_MAX: Final = 85.0
_DWELL_MIN_S: Final = 60
_DWELL_S: Final = 600
_DWELL_MAX_S: Final = 7 * 24 * 3600
_MINIMUM_MAX_S: Final = 3600


class BadZone(ValueError):
    """The body asks for no zone that there can be; the message says which member, and why."""


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    geometry: dict[str, Any]
    radius: float | None = None
    width: float | None = None
    devices: Annotated[list[str], msgspec.Meta(min_length=1, max_length=100)] | None = None
    alerts: list[str] | None = None
    dwell: float | None = None
    minimum: float | None = None
    channels: Annotated[list[str], msgspec.Meta(max_length=20)] | None = None
    always: bool = False


class Zone(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A zone, as it is shown to its user."""

    id: str
    name: str
    geometry: dict[str, Any]
    radius: float | None = None
    width: float | None = None
    #: Names of the user's devices; None: all, also later ones.
    devices: list[str] | None = None
    alerts: list[str]
    dwell: float | None = None  # s
    minimum: float | None = None  # s
    channels: list[str] | None = None
    always: bool = False


_decode: Final = msgspec.json.Decoder(_Asked).decode


def read_zone(body: bytes) -> Geofence:
    """Return the geofence that a body asks for; raises BadZone, MALFORMED.

    Takes some milliseconds for a shape of many positions.
    """
    asked = _decode(body)
    name = asked.name.strip()
    if not 0 < len(name) <= _NAME_CHARACTERS_MAX or not name.isprintable():
        raise BadZone(f"name has 1 to {_NAME_CHARACTERS_MAX} characters that can be shown")
    for device in asked.devices or ():
        if DEVICE_NAME.fullmatch(device) is None:
            raise BadZone("devices are names of your devices, without the user's")
    alerts = list(FENCE_KINDS[:2]) if asked.alerts is None else asked.alerts
    if unknown := sorted({*alerts} - {*FENCE_KINDS}):
        raise BadZone(f"alerts are {', '.join(FENCE_KINDS)}, not {unknown[0][:50]!r}")
    members: dict[str, Any] = {
        "title": name,
        "devices": asked.devices,
        "alerts": [kind for kind in FENCE_KINDS if kind in alerts],
        "dwell": _dwell(asked.dwell, alerts),
        "minimum": _between("minimum", asked.minimum or 0, 0, _MINIMUM_MAX_S, "s"),
        "channels": asked.channels,
        "always": asked.always,
    }
    properties = {
        each: value
        for each, value in (("radius", asked.radius), ("width", asked.width))
        if value is not None
    }
    try:
        shape = shape_members(asked.geometry, properties)
        fence = decode_geofence(msgspec.json.encode(members | shape))
        _check_shape(fence)
    except InvalidGeofence as error:
        raise BadZone(str(error)) from None
    return fence


def _dwell(seconds: float | None, alerts: list[str]) -> float:
    if "dwell" not in alerts:
        return 0.0
    return _between("dwell", seconds or _DWELL_S, _DWELL_MIN_S, _DWELL_MAX_S, "s")


def _between(name: str, value: float, least: float, most: float, unit: str) -> float:
    if not least <= value <= most:
        raise BadZone(f"{name} is {least:g} to {most:g} {unit}")
    return float(value)


def _check_shape(fence: Geofence) -> None:
    """Raise BadZone, InvalidGeofence for a shape that is nothing to draw."""
    if fence.circle is not None:
        circle = fence.circle
        _between("radius", circle.radius, _SMALLEST_M, _RADIUS_MAX_M, "m")
        _check_positions([(circle.lon, circle.lat)])
    elif fence.corridor is not None:
        _between("width", fence.corridor.width, _SMALLEST_M, _WIDTH_MAX_M, "m")
        _check_positions(line_of(fence.corridor.line, "geometry"))
    else:
        assert fence.polygon is not None
        polygons = polygons_of(fence.polygon, "geometry")
        _check_positions([each for rings in polygons for ring in rings for each in ring])
    # Imported late: a gateway in which nobody draws does without shapely.
    from waylog.geofences.shape import shape_of

    shape_of(fence)


def _check_positions(positions: list[Position]) -> None:
    if len(positions) > _POSITIONS_MAX:
        raise BadZone(f"geometry has more than {_POSITIONS_MAX} positions")
    first_lon, first_lat = positions[0]
    for lon, lat in positions:
        if abs(lat) > _LATITUDE_MAX:
            raise BadZone(
                f"geometry reaches beyond {_LATITUDE_MAX:g} degrees of latitude: no zone can hold "
                "a pole"
            )
        if distance_m(lat, lon, first_lat, first_lon) > _REACH_MAX_M:
            raise BadZone(f"geometry is too large: more than {_REACH_MAX_M / 1000:g} km across")


def shown_zone(key: str, fence: Geofence) -> Zone:
    """Return a zone as its user is shown it; `key` is that of its record."""
    zone_id = key.partition("/")[2]
    geometry: dict[str, Any]
    radius = width = None
    if fence.circle is not None:
        circle = fence.circle
        geometry = {"type": "Point", "coordinates": [circle.lon, circle.lat]}
        radius = circle.radius
    elif fence.corridor is not None:
        geometry, width = fence.corridor.line, fence.corridor.width
    else:
        assert fence.polygon is not None
        geometry = fence.polygon
    return Zone(
        id=zone_id,
        name=zone_id if fence.title is None else fence.title,
        geometry=geometry,
        radius=radius,
        width=width,
        devices=fence.devices,
        alerts=list(FENCE_KINDS) if fence.alerts is None else fence.alerts,
        dwell=fence.dwell or None,
        minimum=fence.minimum or None,
        channels=fence.channels,
        always=fence.always,
    )
