"""Answers in the format of Nominatim's /reverse, /lookup and /search, for its clients.

Besides Nominatim's members there are `distance` (metres to the place), `timezone` and
`index_version`. osm_type and osm_id are missing if a place is not from OpenStreetMap (towns of the
world index).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from geoservice.reverse.geocoder import Geocoder, Place, ReverseResult
from geoservice.web.formats import geocodejson, geojson, photon, plain_json
from geoservice.web.formats.described import (
    LICENCE,
    PLAIN,
    Described,
    Details,
    describe,
    is_world_area,
)

__all__ = [
    "CONTENT_TYPES",
    "FORMATS",
    "LICENCE",
    "UNABLE",
    "answer",
    "render_error",
    "render_list",
    "render_photon",
    "render_reverse",
]

FORMATS: Final = ("xml", "geojson", "geocodejson", "json", "jsonv2")

#: Nominatim's answer, with status 200, where nothing is near.
UNABLE: Final = {"error": "Unable to geocode"}

_JSON: Final = "application/json"
_XML: Final = "text/xml"
CONTENT_TYPES: Final = dict.fromkeys(FORMATS, _JSON) | {
    "photon": _JSON,
    "text": "text/plain",
    "xml": _XML,
}

_CLASS_KEYS: Final = {"json": "class", "jsonv2": "category"}
_encode = msgspec.json.Encoder().encode


def answer(result: ReverseResult, output: str = "jsonv2") -> dict[str, Any]:
    """Return a result with its address, in one of FORMATS except xml."""
    place = result.place
    if place is None:
        return dict(UNABLE)
    lat, lon = _point(result, place)
    described = Described(
        place=place,
        lat=lat,
        lon=lon,
        distance=result.distance,
        index_version=result.index_version,
    )
    return _members(described, PLAIN, output)


def render_reverse(
    geocoder: Geocoder, result: ReverseResult, output: str, details: Details, *, query: str = ""
) -> bytes:
    """Return the body of an answer to /reverse. `query` is the request that xml repeats."""
    place = result.place
    if output == "xml":
        from geoservice.web.formats import xml

        described = _describe(geocoder, result, place, output, details) if place else None
        return xml.reverse_answer(described, details, query=query, timestamp=_timestamp())
    if place is None:
        return _encode(UNABLE)
    return _encode(_members(_describe(geocoder, result, place, output, details), details, output))


def render_list(
    geocoder: Geocoder,
    places: Sequence[Place],
    output: str,
    details: Details,
    *,
    query: str | None = None,
    attributes: Mapping[str, str] | None = None,
) -> bytes:
    """Return the body of an answer to /search or /lookup. `attributes` go into xml's root."""
    found = [
        describe(geocoder, place, details, rows=output == "geocodejson", ref=output == "xml")
        for place in places
    ]
    if output == "xml":
        from geoservice.web.formats import xml

        return xml.search_answer(
            found,
            details,
            query=query or "",
            timestamp=_timestamp(),
            attributes=attributes or {},
        )
    if output == "geojson":
        return _encode(geojson.collection(found, details))
    if output == "geocodejson":
        return _encode(geocodejson.collection(found, details, query))
    class_key = _CLASS_KEYS[output]
    return _encode([plain_json.members(item, details, class_key=class_key) for item in found])


def render_photon(
    geocoder: Geocoder, found: Sequence[ReverseResult] | Sequence[Place], details: Details
) -> bytes:
    """Return the body of an answer in Photon's format."""
    described: list[Described] = []
    for item in found:
        if isinstance(item, Place):
            described.append(describe(geocoder, item, details, rows=True))
        elif item.place is not None:
            point = _point(item, item.place)
            described.append(describe(geocoder, item.place, details, point=point, rows=True))
    return _encode(photon.collection(described))


def render_error(message: str, status: int, output: str) -> bytes:
    """Return the body of an error in the requested format ("text" if there is none)."""
    content_type = CONTENT_TYPES[output]
    if output == "photon":
        return _encode({"message": message})
    if content_type == _XML:
        from geoservice.web.formats import xml

        return xml.error_answer(message, status)
    if content_type == _JSON:
        return _encode({"error": {"code": status, "message": message}})
    return f"ERROR {status}: {message}".encode()


def _describe(
    geocoder: Geocoder, result: ReverseResult, place: Place, output: str, details: Details
) -> Described:
    return describe(
        geocoder,
        place,
        details,
        point=_point(result, place),
        distance=result.distance,
        rows=output == "geocodejson",
        ref=output == "xml",
    )


def _members(described: Described, details: Details, output: str) -> dict[str, Any]:
    if output == "geojson":
        return geojson.collection([described], details)
    if output == "geocodejson":
        return geocodejson.collection([described], details, "")
    return plain_json.members(described, details, class_key=_CLASS_KEYS[output])


def _point(result: ReverseResult, place: Place) -> tuple[float, float]:
    if place.lat is None or place.lon is None or is_world_area(place):
        # The index has no point of a country; the requested point is in it.
        return result.lat, result.lon
    return place.lat, place.lon


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S +00:00")
