"""Format geocodejson 0.1.0 as Nominatim writes it: GeoJSON with the address by rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from geoservice.web.formats.described import (
    LICENCE_OSM,
    Described,
    Details,
    own_members,
    point_geometry,
)

_STREET_RANKS: Final = range(25, 28)

#: The highest address rank of each type of place.
_KINDS: Final = (
    (3, "locality"),
    (4, "country"),
    (9, "state"),
    (12, "county"),
    (16, "city"),
    (21, "district"),
    (24, "locality"),
    (_STREET_RANKS[-1], "street"),
)
_HOUSE: Final = "house"


def collection(
    found: Sequence[Described], details: Details, query: str | None = None
) -> dict[str, Any]:
    """Return the whole answer; `query` is the searched text, "" for a reverse lookup."""
    geocoding: dict[str, Any] = {
        "version": "0.1.0",
        "attribution": found[0].licence if found else LICENCE_OSM,
        "licence": "ODbL",
    }
    if query is not None:
        geocoding["query"] = query
    return {
        "type": "FeatureCollection",
        "geocoding": geocoding,
        "features": [_feature(described, details) for described in found],
    }


def kind_of_rank(rank: int) -> str:
    """Return the geocodejson type of a place with this address rank."""
    for last, kind in _KINDS:
        if rank <= last:
            return kind
    return _HOUSE


def _feature(described: Described, details: Details) -> dict[str, Any]:
    place = described.place
    written: dict[str, Any] = {"place_id": place.place_id}
    if place.osm_type is not None:
        written["osm_type"] = place.osm_type
        written["osm_id"] = place.osm_id
    written |= {
        "osm_key": described.category,
        "osm_value": described.type,
        "type": kind_of_rank(place.address_rank),
    }
    if described.distance is not None:
        # The specification wants metres.
        written["accuracy"] = int(described.distance)
    written["label"] = place.display_name
    if place.name:
        written["name"] = place.name
    if details.addressdetails:
        written |= _address(described)
    if details.entrances:
        written["entrances"] = None
    if details.extratags:
        written["extra"] = described.tags
    return {
        "type": "Feature",
        "properties": {"geocoding": written | own_members(described)},
        "geometry": described.geometry or point_geometry(described),
    }


def _address(described: Described) -> dict[str, Any]:
    written: dict[str, Any] = dict(address_by_kind(described))
    if "country_code" in described.place.address:
        written["country_code"] = described.place.address["country_code"]
    written["admin"] = {
        f"level{row.admin_level}": row.name for row in described.rows if row.admin_level is not None
    }
    return written


def address_by_kind(described: Described) -> dict[str, str]:
    """Return the address without the place itself: "housenumber", "street", "city", "postcode"."""
    place = described.place
    written: dict[str, str] = {}
    by_kind: dict[str, str] = {}
    for row in described.rows:
        if row.key == "postcode":
            written["postcode"] = row.name
        elif row.key == "house_number":
            written["housenumber"] = row.name
        elif 4 <= row.address_rank <= _STREET_RANKS[-1] and (
            row.key != place.addresstype or row.name != place.name or row.key == "country"
        ):
            by_kind.setdefault(kind_of_rank(row.address_rank), row.name)
    return written | by_kind
