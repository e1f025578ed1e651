"""Formats json and jsonv2: one flat object per place; coordinates are strings."""

from __future__ import annotations

from typing import Any

from geoservice.web.formats.described import Described, Details, own_members, point_geometry


def members(described: Described, details: Details, *, class_key: str) -> dict[str, Any]:
    """Return the object; `class_key` is "class" in json, "category" in jsonv2."""
    place = described.place
    south, north, west, east = described.box
    written: dict[str, Any] = {"place_id": place.place_id, "licence": described.licence}
    if place.osm_type is not None:
        written["osm_type"] = place.osm_type
        written["osm_id"] = place.osm_id
    written |= {
        "lat": f"{described.lat:.7f}",
        "lon": f"{described.lon:.7f}",
        class_key: described.category,
        "type": described.type,
        "place_rank": place.place_rank,
        "importance": described.importance,
        "addresstype": place.addresstype,
        "name": place.name,
        "display_name": place.display_name,
    }
    written |= detail_members(described, details)
    written["boundingbox"] = [f"{south:.7f}", f"{north:.7f}", f"{west:.7f}", f"{east:.7f}"]
    if details.geojson:
        written["geojson"] = described.geometry or point_geometry(described)
    return written | own_members(described)


def detail_members(described: Described, details: Details) -> dict[str, Any]:
    """Return the members that are only included on request."""
    written: dict[str, Any] = {}
    if details.addressdetails:
        written["address"] = described.place.address
    if details.entrances:
        written["entrances"] = None
    if details.extratags:
        written["extratags"] = described.tags
    if details.namedetails:
        written["namedetails"] = described.names
    return written
