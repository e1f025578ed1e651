"""The data about one place that all formats write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from geoservice.index.street_shapes import simplified
from geoservice.reverse.geocoder import AddressRow, Geocoder, Place
from geoservice.reverse.postal import postal_lines

LICENCE: Final = "Data © GeoNames (CC BY 4.0), https://geonames.org; Natural Earth"
LICENCE_OSM: Final = "Data © OpenStreetMap contributors, ODbL 1.0. http://osm.org/copyright"

#: Half the side of the box around a place of which only a point is known, in degrees.
_EXTENTS: Final[dict[str, dict[str, float]]] = {
    "place": {
        "continent": 25.0,
        "country": 7.0,
        "state": 2.6,
        "province": 2.6,
        "region": 1.0,
        "county": 0.7,
        "island": 0.32,
    }
    | dict.fromkeys(("city", "municipality", "postcode"), 0.16)
    | {"town": 0.04, "airport": 0.015}
    | dict.fromkeys(("village", "hamlet", "district", "borough", "suburb"), 0.02)
    | dict.fromkeys(("locality", "neighbourhood", "quarter", "city_block", "farm"), 0.01),
    "landuse": {"farm": 0.01},
    "aeroway": {"aerodrome": 0.015},
    "railway": {"station": 0.005},
}
_EXTENT_OTHERS: Final = 0.00005

Box = tuple[float, float, float, float]  # south, north, west, east


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """The members that were requested, and the preferred languages of names, best first."""

    addressdetails: bool = True
    extratags: bool = False
    namedetails: bool = False
    entrances: bool = False
    geojson: bool = False
    geojson_threshold: float = 0.0  # tolerance of the simplification, in degrees
    postal: bool = False  # adds the address in postal format; not in Nominatim
    languages: tuple[str, ...] = ()


PLAIN: Final = Details()


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """One place, ready to be written in any format."""

    place: Place
    lat: float  # of the place, or the requested point if the index has no point of it
    lon: float
    index_version: str
    distance: float | None = None  # in metres
    rows: Sequence[AddressRow] = ()  # for geocodejson only
    names: dict[str, str] | None = None
    ref: str | None = None  # the object's tag ref, for xml only
    tags: dict[str, str] | None = None
    geometry: dict[str, Any] | None = None
    postal: list[str] | None = None  # lines

    @property
    def licence(self) -> str:
        """The licence of the place's data."""
        if self.place.osm_type is not None or self.place.type in ("postcode", "house_number"):
            return LICENCE_OSM
        return LICENCE

    @property
    def category(self) -> str:
        """The key of the main tag."""
        return "boundary" if is_world_area(self.place) else self.place.category

    @property
    def type(self) -> str:
        """The value of the main tag."""
        return "administrative" if is_world_area(self.place) else self.place.type

    @property
    def importance(self) -> float:
        """Nominatim's importance, computed from the rank if it is not known."""
        if self.place.importance is not None:
            return self.place.importance
        return 0.40001 - self.place.place_rank / 75

    @property
    def box(self) -> Box:
        """The bounding box, or a box around the point whose size depends on the main tag."""
        if self.place.boundingbox is not None:
            return self.place.boundingbox
        kinds = _EXTENTS.get(self.place.category)
        extent = kinds.get(self.place.type, _EXTENT_OTHERS) if kinds else _EXTENT_OTHERS
        return self.lat - extent, self.lat + extent, self.lon - extent, self.lon + extent


def is_world_area(place: Place) -> bool:
    """Return whether it is a country or state of the world index, which has no point of it."""
    return place.osm_type is None and place.type in ("country", "state")


def describe(
    geocoder: Geocoder,
    place: Place,
    details: Details,
    *,
    point: tuple[float, float] | None = None,
    distance: float | None = None,
    rows: bool = False,
    ref: bool = False,
) -> Described:
    """Gather the requested data; `point` (lat, lon) is used for a place without one."""
    lat, lon = place.lat, place.lon
    if lat is None or lon is None or is_world_area(place):
        lat, lon = point or (lat or 0.0, lon or 0.0)
    return Described(
        place=place,
        lat=lat,
        lon=lon,
        distance=distance,
        index_version=geocoder.index_version,
        rows=geocoder.address_rows(place, details.languages)
        if rows and details.addressdetails
        else (),
        ref=geocoder.namedetails(place).get("ref") if ref else None,
        names=(geocoder.namedetails(place) or None) if details.namedetails else None,
        tags=(geocoder.extratags(place) or None) if details.extratags else None,
        geometry=_geometry(geocoder, place, details),
        postal=postal_lines(place) if details.postal else None,
    )


def _geometry(geocoder: Geocoder, place: Place, details: Details) -> dict[str, Any] | None:
    geometry = geocoder.geometry(place) if details.geojson else None
    if geometry is not None and details.geojson_threshold > 0:
        return simplified(geometry, details.geojson_threshold)
    return geometry


def point_geometry(described: Described) -> dict[str, Any]:
    """Return the point of a place as GeoJSON."""
    return {"type": "Point", "coordinates": [round(described.lon, 7), round(described.lat, 7)]}


def own_members(described: Described) -> dict[str, Any]:
    """Return our members that Nominatim does not have."""
    members: dict[str, Any] = {}
    if described.postal is not None:
        members["formatted_address"] = described.postal
    if described.distance is not None:
        members["distance"] = described.distance
    if described.place.timezone is not None:
        members["timezone"] = described.place.timezone
    members["index_version"] = described.index_version
    return members
