"""Format geojson: a FeatureCollection (RFC 7946), properties as in jsonv2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geoservice.web.formats.described import (
    LICENCE_OSM,
    Described,
    Details,
    own_members,
    point_geometry,
)
from geoservice.web.formats.plain_json import detail_members


def collection(found: Sequence[Described], details: Details) -> dict[str, Any]:
    """Return the whole answer."""
    return {
        "type": "FeatureCollection",
        "licence": found[0].licence if found else LICENCE_OSM,
        "features": [_feature(described, details) for described in found],
    }


def _feature(described: Described, details: Details) -> dict[str, Any]:
    place = described.place
    south, north, west, east = described.box
    properties: dict[str, Any] = {"place_id": place.place_id}
    if place.osm_type is not None:
        properties["osm_type"] = place.osm_type
        properties["osm_id"] = place.osm_id
    properties |= {
        "place_rank": place.place_rank,
        "category": described.category,
        "type": described.type,
        "importance": described.importance,
        "addresstype": place.addresstype,
        "name": place.name,
        "display_name": place.display_name,
    }
    properties |= detail_members(described, details) | own_members(described)
    return {
        "type": "Feature",
        "properties": properties,
        "bbox": [round(west, 7), round(south, 7), round(east, 7), round(north, 7)],
        "geometry": described.geometry or point_geometry(described),
    }
