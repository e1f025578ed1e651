"""Answers in the shapes of Nominatim's /reverse, so that its clients can ask us.

Members that a town index cannot have are left out: osm_type, osm_id, importance. Beside Nominatim's
there are `distance` (m to the named place), `timezone` and `index_version`.
"""

from __future__ import annotations

from typing import Any, Final

from geoservice.reverse import Place, ReverseResult

FORMATS: Final = ("json", "jsonv2", "geojson")
LICENCE: Final = "Data © GeoNames (CC BY 4.0), https://geonames.org; Natural Earth"

#: What Nominatim answers, with status 200, where nothing is near.
UNABLE: Final = {"error": "Unable to geocode"}

#: Nominatim's ranks of places.
_RANKS: Final = {"country": 4, "state": 8, "city": 16, "town": 18, "village": 19, "suburb": 19}


def answer(result: ReverseResult, output: str = "jsonv2") -> dict[str, Any]:
    """The result as one of FORMATS."""
    place = result.place
    if place is None:
        return dict(UNABLE)
    if output == "geojson":
        return _geojson(result, place)
    members = _members(result, place)
    lat, lon = _point(result, place)
    rank = members.pop("place_rank")
    category = members.pop("category")
    head: dict[str, Any] = {
        "place_id": place.place_id,
        "licence": LICENCE,
        "lat": str(lat),
        "lon": str(lon),
    }
    if output == "json":
        return head | {"class": category} | members
    return head | {"category": category, "place_rank": rank} | members


def _geojson(result: ReverseResult, place: Place) -> dict[str, Any]:
    lat, lon = _point(result, place)
    return {
        "type": "FeatureCollection",
        "licence": LICENCE,
        "features": [
            {
                "type": "Feature",
                "properties": {"place_id": place.place_id} | _members(result, place),
                "geometry": {"type": "Point", "coordinates": [lon, lat]},
            }
        ],
    }


def _members(result: ReverseResult, place: Place) -> dict[str, Any]:
    members: dict[str, Any] = {
        "category": "boundary" if place.type in ("country", "state") else "place",
        "place_rank": _RANKS[place.type],
        "type": "administrative" if place.type in ("country", "state") else place.type,
        "addresstype": place.type,
        "name": place.name,
        "display_name": place.display_name,
        "address": place.address,
    }
    if result.distance is not None:
        members["distance"] = result.distance
    if place.timezone is not None:
        members["timezone"] = place.timezone
    members["index_version"] = result.index_version
    return members


def _point(result: ReverseResult, place: Place) -> tuple[float, float]:
    # A country has no point of its own in the index: the one that was asked is in it.
    if place.lat is None or place.lon is None or place.type in ("country", "state"):
        return result.lat, result.lon
    return place.lat, place.lon
