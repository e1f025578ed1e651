"""Reverse geocoding in process: the API that everything else here is a thin shell around."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from geoservice.format import TOWN_COLUMNS
from geoservice.store import WORLD_PATH, IndexFile

#: Beyond, a town says nothing about where somebody is; country alone is answered.
TOWN_DISTANCE_M_MAX: Final = 100_000.0

#: People from whom a place is called city or town rather than village; OpenStreetMap's mappers
#: decide by importance, GeoNames has only the population.
CITY_POPULATION: Final = 50_000
TOWN_POPULATION: Final = 5_000

#: Nominatim's zoom from which the next finer member is answered.
ZOOM_STATE: Final = 5
ZOOM_TOWN: Final = 10
ZOOM_SUBURB: Final = 13
ZOOM_MAX: Final = 18

#: How to measure what is nearest: on the ground, or as Nominatim does, in degrees on a flat map.
DISTANCES: Final = ("metres", "degrees")

#: Nominatim's layers, and those that it asks without being told.
LAYERS: Final = frozenset({"address", "poi", "railway", "natural", "manmade"})
DEFAULT_LAYERS: Final = frozenset({"address", "poi"})

#: Nominatim's ranks of places.
_RANKS: Final = {"country": 4, "state": 8, "city": 16, "town": 18, "village": 19, "suburb": 19}

#: Nominatim's address ranks of the keys that a town index answers.
_ADDRESS_RANKS: Final = _RANKS | {"town": 16, "village": 16, "suburb": 20}

#: Places kept ready; each is some 800 bytes.
_PLACES_MAX: Final = 8_000

_Columns = {name: number for number, name in enumerate(TOWN_COLUMNS)}
_WIDTH: Final = len(TOWN_COLUMNS)


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
        return self.place.address if self.place is not None else _NO_ADDRESS


_NO_ADDRESS: Final[dict[str, str]] = {}


def format_coordinates(lat: float, lon: float) -> str:
    """A point as people write it: "12.345 N, 23.456 W"."""
    return f"{abs(lat):.3f} {'S' if lat < 0 else 'N'}, {abs(lon):.3f} {'W' if lon < 0 else 'E'}"


class Geocoder:
    """Answers which place a point is in, out of one index file.

    Holds no state that a lookup changes but a cache, so one object serves one thread well and many
    threads correctly. Processes share the file's memory.
    """

    def __init__(self, index: IndexFile) -> None:
        self._index = index
        self._world = index.world
        self._towns = index.towns
        self._countries = index.countries
        self._version = index.version
        self._places: dict[int, Place] = {}
        self._country_places = [
            self._make_country(number) for number in range(self._world.country_count)
        ]
        self._texts: dict[int, str] = {}

    @classmethod
    def open(cls, index: Path | None = None) -> Geocoder:
        """Open an index file, by default the embedded world; raises IndexUnavailable."""
        return cls(IndexFile(index if index is not None else WORLD_PATH))

    @property
    def index(self) -> IndexFile:
        """The file behind it."""
        return self._index

    @property
    def index_version(self) -> str:
        """Stands for the content of the index: changes when, and only when, that changes."""
        return self._version

    def reverse(
        self,
        lat: float,
        lon: float,
        *,
        zoom: int = ZOOM_MAX,
        layers: frozenset[str] = DEFAULT_LAYERS,
        distance: str = "metres",
        languages: Sequence[str] = (),
    ) -> ReverseResult:
        """Look one point up; raises ValueError when it is not a point on earth.

        `zoom` is Nominatim's: how fine the answer shall be, 3 for the country alone. `layers` and
        `distance` are out of LAYERS and DISTANCES. `languages` are the wanted ones, best first,
        for objects that have names in several; without any their local names are answered.
        """
        _check_options(layers, distance)
        town, country, metres = self._world.reverse(lat, lon)
        result = self._result(lat, lon, town, country, metres)
        return result if zoom >= ZOOM_SUBURB else self._coarser(result, country, zoom)

    def reverse_batch(
        self,
        lats: Sequence[float],
        lons: Sequence[float],
        *,
        zoom: int = ZOOM_MAX,
        layers: frozenset[str] = DEFAULT_LAYERS,
        distance: str = "metres",
        languages: Sequence[str] = (),
    ) -> list[ReverseResult]:
        """Look many points up, the answers in order; raises ValueError as `reverse` does.

        Arrays of float64 (of numpy or of the standard library) are used as they are.
        """
        _check_options(layers, distance)
        towns, countries, metres = self._world.reverse_batch(_doubles(lats), _doubles(lons))
        results: list[ReverseResult] = []
        for lat, lon, town, country, far in zip(lats, lons, towns, countries, metres, strict=True):
            result = self._result(lat, lon, town, country, far)
            results.append(result if zoom >= ZOOM_SUBURB else self._coarser(result, country, zoom))
        return results

    def town(self, number: int) -> Place:
        """A town by its number in section `towns`; behind the towns are the countries.

        Raises IndexError.
        """
        of_country = number - len(self._towns) // _WIDTH
        if of_country >= 0:
            return self._country_places[of_country]
        if number < 0:
            raise IndexError(number)
        ends = range(self._world.country_count)
        country = next(n for n in ends if number < self._countries[4 * n + 3])
        return self._places.get(number) or self._make_place(number, country)

    def namedetails(self, place: Place) -> dict[str, str]:
        """All names of a place as OpenStreetMap's tags: "name", "name:de", "ref"."""
        return {"name": place.name} if place.name else {}

    def address_rows(self, place: Place, languages: Sequence[str] = ()) -> list[AddressRow]:
        """The address of a place line by line, the finest first."""
        return [
            AddressRow(key=key, name=name, address_rank=_ADDRESS_RANKS[key])
            for key, name in place.address.items()
            if key in _ADDRESS_RANKS
        ]

    def geometry(self, place: Place) -> dict[str, Any] | None:
        """Its shape as a GeoJSON geometry; None where only a point is known."""
        return None

    def lookup(self, osm_type: str, osm_id: int, *, languages: Sequence[str] = ()) -> list[Place]:
        """What OpenStreetMap's object ("node", "way", "relation" and its id) is in this index."""
        return []

    def extratags(self, place: Place) -> dict[str, str]:
        """Other tags of a place: "wikidata", "population"."""
        return {"population": str(place.population)} if place.population else {}

    def _result(
        self, lat: float, lon: float, town: int, country: int, distance: float
    ) -> ReverseResult:
        place: Place | None
        metres: float | None
        if town >= 0 and distance <= TOWN_DISTANCE_M_MAX:
            place = self._places.get(town) or self._make_place(town, country)
            metres = round(distance, 1)
        else:
            place = self._country_places[country] if country >= 0 else None
            metres = None
        return ReverseResult(
            lat=lat, lon=lon, place=place, distance=metres, index_version=self._version
        )

    def _make_place(self, town: int, country: int) -> Place:
        row = self._towns[town * _WIDTH : (town + 1) * _WIDTH].tolist()
        lat, lon, geoname_id, population, name, state, timezone, part_of = row
        text = self._text(name)
        address: dict[str, str] = {}
        kind = _kind(population)
        if part_of >= 0:
            city = self._towns[part_of * _WIDTH + _Columns["name"]]
            city_population = self._towns[part_of * _WIDTH + _Columns["population"]]
            address["suburb"] = text
            address[_kind(city_population)] = self._text(city)
            kind = "suburb"
        else:
            address[kind] = text
        if state >= 0:
            address["state"] = self._text(state)
        address |= self._country_places[country].address
        if len(self._places) >= _PLACES_MAX:
            self._places.clear()
        place = self._places[town] = Place(
            place_id=geoname_id,
            type=kind,
            addresstype=kind,
            place_rank=_RANKS[kind],
            address_rank=_ADDRESS_RANKS[kind],
            name=text,
            display_name=_display_name(address),
            address=address,
            population=population,
            timezone=self._text(timezone) if timezone >= 0 else None,
            lat=lat / 1e7,
            lon=lon / 1e7,
        )
        return place

    def _make_country(self, country: int) -> Place:
        code, name = self._countries[4 * country : 4 * country + 2].tolist()
        text = self._index.string(name)
        return Place(
            place_id=0,
            type="country",
            addresstype="country",
            place_rank=_RANKS["country"],
            address_rank=_ADDRESS_RANKS["country"],
            name=text,
            display_name=text,
            address={"country": text, "country_code": self._index.string(code).lower()},
        )

    def _text(self, number: int) -> str:
        # Names of states and time zones are few and common: one object each.
        text = self._texts.get(number)
        if text is None:
            if len(self._texts) >= _PLACES_MAX:
                self._texts.clear()
            text = self._texts[number] = self._index.string(number)
        return text

    def _coarser(self, result: ReverseResult, country: int, zoom: int) -> ReverseResult:
        """The same answer without what is finer than the zoom."""
        place = result.place
        if place is None or place.type == "country":
            return result
        of_country = self._country_places[country]
        if zoom < ZOOM_STATE or (zoom < ZOOM_TOWN and "state" not in place.address):
            return msgspec.structs.replace(result, place=of_country, distance=None)
        address = {key: text for key, text in place.address.items() if key != "suburb"}
        if zoom < ZOOM_TOWN:
            kind = "state"
            address = {"state": address["state"]} | of_country.address
        else:
            kind = next(iter(address))
        coarse = msgspec.structs.replace(
            place,
            type=kind,
            addresstype=kind,
            place_rank=_RANKS[kind],
            address_rank=_ADDRESS_RANKS[kind],
            name=address[kind],
            display_name=_display_name(address),
            address=address,
            place_id=place.place_id if kind == place.type else 0,
            population=place.population if kind == place.type else 0,
        )
        distance = result.distance if kind == place.type else None
        return msgspec.structs.replace(result, place=coarse, distance=distance)


def _check_options(layers: frozenset[str], distance: str) -> None:
    if not layers or not layers <= LAYERS:
        raise ValueError(f"layers are some of {', '.join(sorted(LAYERS))}")
    if distance not in DISTANCES:
        raise ValueError(f"distance is one of {', '.join(DISTANCES)}")


def _kind(population: int) -> str:
    if population >= CITY_POPULATION:
        return "city"
    return "town" if population >= TOWN_POPULATION else "village"


def _display_name(address: dict[str, str]) -> str:
    # A city that is its own state is named once.
    names = (text for key, text in address.items() if key != "country_code")
    return ", ".join(dict.fromkeys(names))


def _doubles(values: Iterable[float]) -> Any:
    try:
        view = memoryview(values)  # type: ignore[arg-type]
    except TypeError:
        return array("d", values)
    return values if view.format == "d" else array("d", values)


def is_point(lat: float, lon: float) -> bool:
    """Are these the coordinates of a point on earth?"""
    return (
        math.isfinite(lat)
        and math.isfinite(lon)
        and -90.0 <= lat <= 90.0
        and -180.0 <= lon <= 180.0
    )
