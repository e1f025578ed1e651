"""Answers in the format of Photon (photon.komoot.io), for clients written for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from geoservice.web.formats.described import Described, point_geometry
from geoservice.web.formats.geocodejson import address_by_kind, kind_of_rank

_OSM_LETTERS: Final = {"node": "N", "way": "W", "relation": "R"}
#: In Photon's order.
_MEMBERS: Final = ("street", "locality", "district", "city", "county", "state", "country")


def collection(found: Sequence[Described]) -> dict[str, Any]:
    """Return the whole answer, with no features if nothing was found."""
    return {"type": "FeatureCollection", "features": [_feature(described) for described in found]}


def _feature(described: Described) -> dict[str, Any]:
    place = described.place
    address = address_by_kind(described)
    properties: dict[str, Any] = {}
    if place.osm_type is not None:
        properties["osm_type"] = _OSM_LETTERS[place.osm_type]
        properties["osm_id"] = place.osm_id
    properties |= {
        "osm_key": described.category,
        "osm_value": described.type,
        "type": kind_of_rank(place.address_rank),
    }
    if "housenumber" in address:
        properties["housenumber"] = address["housenumber"]
    if place.name:
        properties["name"] = place.name
    properties |= {key: address[key] for key in _MEMBERS if key in address}
    if "postcode" in address:
        properties["postcode"] = address["postcode"]
    if "country_code" in place.address:
        properties["countrycode"] = place.address["country_code"].upper()
    if place.boundingbox is not None and place.osm_type != "node":
        south, north, west, east = place.boundingbox
        properties["extent"] = [west, north, east, south]
    return {"type": "Feature", "properties": properties, "geometry": point_geometry(described)}
