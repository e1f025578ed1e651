"""Geofences out of GeoJSON files: a Feature, or a FeatureCollection.

A Polygon or MultiPolygon is one as it is; a Point needs the property `radius`, a LineString the
property `width`, both in metres. The properties `name`, `dwell`, `minimum` and `devices` are those
of a definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waylog.geofences.definition import (
    Geofence,
    InvalidGeofence,
    decode_geofence,
    shape_members,
)
from waylog.geofences.shape import shape_of
from waylog.malformed import MALFORMED

_OPTIONAL: Final = ("dwell", "minimum", "devices")


def read_features(text: bytes, more: Mapping[str, Any] | None = None) -> dict[str, Geofence]:
    """Return the geofences of a file by their names; raises InvalidGeofence.

    `more` has members for features that do not have the property themselves.
    """
    try:
        document = msgspec.json.decode(text)
    except MALFORMED as error:
        raise InvalidGeofence(f"the file is no JSON: {error}") from None
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection":
        features, where = document.get("features"), "features"
    elif kind == "Feature":
        features, where = [document], ""
    else:
        raise InvalidGeofence("type: Feature or FeatureCollection is expected")
    if not isinstance(features, list):
        raise InvalidGeofence(f"{where}: an array is expected")
    found: dict[str, Geofence] = {}
    for number, feature in enumerate(features):
        place = f"{where}[{number}]" if where else "the feature"
        try:
            name, fence = _of_feature(feature, dict(more or {}))
        except InvalidGeofence as error:
            raise InvalidGeofence(f"{place}: {error}") from None
        if name in found:
            raise InvalidGeofence(f"{place}: properties.name: there are two features {name!r}")
        found[name] = fence
    return found


def _of_feature(feature: object, more: dict[str, Any]) -> tuple[str, Geofence]:
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise InvalidGeofence("type: Feature is expected")
    geometry, properties = feature.get("geometry"), feature.get("properties")
    if not isinstance(geometry, dict):
        raise InvalidGeofence("geometry: an object is expected")
    if not isinstance(properties, dict):
        raise InvalidGeofence("properties: an object with the member name is expected")
    properties = more | properties
    name = properties.get("name")
    if not isinstance(name, str):
        raise InvalidGeofence("properties.name: a text is expected")
    members: dict[str, Any] = {each: properties[each] for each in _OPTIONAL if each in properties}
    members |= shape_members(geometry, properties)
    fence = decode_geofence(msgspec.json.encode(members))
    # A shape that cannot be used is refused here, where the caller knows which feature it is.
    shape_of(fence)
    return name, fence
