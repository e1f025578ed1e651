"""The types of an answer: a place, an address line, and the result for a point."""

from __future__ import annotations

import math
from typing import Final

import msgspec

#: The lowest Nominatim zoom at which a country, state, town or suburb is answered.
ZOOM_COUNTRY: Final = 3
ZOOM_STATE: Final = 5
ZOOM_TOWN: Final = 10
ZOOM_SUBURB: Final = 13
ZOOM_MAX: Final = 18

#: Measures of the nearest object: on the ground, or in degrees on a flat map as Nominatim does.
DISTANCES: Final = ("metres", "degrees")

#: Nominatim's layers, and those that it searches by default.
LAYERS: Final = frozenset({"address", "poi", "railway", "natural", "manmade"})
DEFAULT_LAYERS: Final = frozenset({"address", "poi"})


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place that a point is named after. Results share it, so its address must not be changed."""

    place_id: int  # GeoNames id of a town, object number + 1 in a street index, 0 for a country
    type: str  # value of OpenStreetMap's main tag: "city", "residential", "restaurant"
    name: str
    display_name: str
    address: dict[str, str]  # keys and order as in Nominatim
    population: int = 0
    timezone: str | None = None  # IANA name
    lat: float | None = None  # of the town or object
    lon: float | None = None
    category: str = "place"  # key of the main tag: "place", "highway", "building", "amenity"
    addresstype: str = ""  # key of this object in an address: "road", "city", "building"
    place_rank: int = 30  # Nominatim's rank_search
    address_rank: int = 30  # Nominatim's rank_address: its level in an address
    importance: float | None = None
    osm_type: str | None = None  # "node", "way", "relation"; None for data of GeoNames
    osm_id: int | None = None
    #: south, north, west, east in degrees
    boundingbox: tuple[float, float, float, float] | None = None


class AddressRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of an address, with its rank and administrative level."""

    key: str  # as in Nominatim: "road", "suburb", "city", "postcode"
    name: str
    address_rank: int  # 4 country .. 26 street, 30 house; 5 for a postcode
    admin_level: int | None = None  # of an administrative boundary


class ReverseResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer for one point."""

    lat: float  # the requested point
    lon: float
    place: Place | None  # None at sea and on land that belongs to no country
    distance: float | None  # metres to the town or object; None if only a country is answered
    index_version: str

    @property
    def found(self) -> bool:
        """Return whether the point is in a country or within twelve nautical miles of its coast."""
        return self.place is not None

    @property
    def display_name(self) -> str:
        """One line for display; the coordinates of a point without a place."""
        if self.place is not None:
            return self.place.display_name
        return format_coordinates(self.lat, self.lon)

    @property
    def address(self) -> dict[str, str]:
        """The address with Nominatim's keys, empty without a place. Shared: do not change it."""
        return self.place.address if self.place is not None else NO_ADDRESS


NO_ADDRESS: Final[dict[str, str]] = {}


def format_coordinates(lat: float, lon: float) -> str:
    """Return a point in the notation "12.345 N, 23.456 W"."""
    return f"{abs(lat):.3f} {'S' if lat < 0 else 'N'}, {abs(lon):.3f} {'W' if lon < 0 else 'E'}"


def check_options(layers: frozenset[str], distance: str) -> None:
    """Raise ValueError for unknown layers or an unknown way to measure distances."""
    if not layers or not layers <= LAYERS:
        raise ValueError(f"layers are some of {', '.join(sorted(LAYERS))}")
    if distance not in DISTANCES:
        raise ValueError(f"distance is one of {', '.join(DISTANCES)}")


def is_point(lat: float, lon: float) -> bool:
    """Return whether these are the coordinates of a point on earth."""
    return (
        math.isfinite(lat)
        and math.isfinite(lon)
        and -90.0 <= lat <= 90.0
        and -180.0 <= lon <= 180.0
    )
