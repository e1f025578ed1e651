"""What an answer is: a place, and how a point relates to it."""

from __future__ import annotations

import math
from typing import Final

import msgspec

#: Nominatim's zoom from which the next finer member is answered.
ZOOM_COUNTRY: Final = 3
ZOOM_STATE: Final = 5
ZOOM_TOWN: Final = 10
ZOOM_SUBURB: Final = 13
ZOOM_MAX: Final = 18

#: How to measure what is nearest: on the ground, or as Nominatim does, in degrees on a flat map.
DISTANCES: Final = ("metres", "degrees")

#: Nominatim's layers, and those that it asks without being told.
LAYERS: Final = frozenset({"address", "poi", "railway", "natural", "manmade"})
DEFAULT_LAYERS: Final = frozenset({"address", "poi"})


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a point is named after. Shared between results: its address must not be changed."""

    place_id: int  # GeoNames' id of a town, the object's number in a street index; 0 for a country
    type: str  # the value of OpenStreetMap's main tag: "city", "residential", "restaurant"
    name: str
    display_name: str
    address: dict[str, str]  # Nominatim's keys, in its order
    population: int = 0
    timezone: str | None = None  # IANA name
    lat: float | None = None  # of the town or object
    lon: float | None = None
    category: str = "place"  # the main tag: "place", "highway", "building", "amenity"
    addresstype: str = ""  # the address's key of this object: "road", "city", "building"
    place_rank: int = 30  # Nominatim's rank_search
    address_rank: int = 30  # Nominatim's rank_address: where it stands in an address
    importance: float | None = None
    osm_type: str | None = None  # "node", "way", "relation"; None for what GeoNames says
    osm_id: int | None = None
    #: south, north, west, east in degrees
    boundingbox: tuple[float, float, float, float] | None = None


class AddressRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of an address, with what its key alone does not say."""

    key: str  # Nominatim's: "road", "suburb", "city", "postcode"
    name: str
    address_rank: int  # 4 country .. 26 street, 30 house; 5 for a postcode
    admin_level: int | None = None  # of an administrative boundary


class ReverseResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer for one point."""

    lat: float  # of the point that was asked
    lon: float
    place: Place | None  # None: at sea, or nobody's land
    distance: float | None  # m to the town; None where no town is named
    index_version: str

    @property
    def found(self) -> bool:
        """Is the point in (or within twelve nautical miles of) a country?"""
        return self.place is not None

    @property
    def display_name(self) -> str:
        """One line for people. A point without a place is named by its coordinates."""
        if self.place is not None:
            return self.place.display_name
        return format_coordinates(self.lat, self.lon)

    @property
    def address(self) -> dict[str, str]:
        """Nominatim's keys, empty without a place. Shared: do not change it."""
        return self.place.address if self.place is not None else NO_ADDRESS


NO_ADDRESS: Final[dict[str, str]] = {}


def format_coordinates(lat: float, lon: float) -> str:
    """A point as people write it: "12.345 N, 23.456 W"."""
    return f"{abs(lat):.3f} {'S' if lat < 0 else 'N'}, {abs(lon):.3f} {'W' if lon < 0 else 'E'}"


def check_options(layers: frozenset[str], distance: str) -> None:
    """Raise ValueError if there are no such layers, or no such way to measure."""
    if not layers or not layers <= LAYERS:
        raise ValueError(f"layers are some of {', '.join(sorted(LAYERS))}")
    if distance not in DISTANCES:
        raise ValueError(f"distance is one of {', '.join(DISTANCES)}")


def is_point(lat: float, lon: float) -> bool:
    """Are these the coordinates of a point on earth?"""
    return (
        math.isfinite(lat)
        and math.isfinite(lon)
        and -90.0 <= lat <= 90.0
        and -180.0 <= lon <= 180.0
    )
