"""Reverse geocoding in process: the API that everything else here is a thin shell around."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from geoservice.index.places import (
    DEFAULT_LAYERS,
    DISTANCES,
    LAYERS,
    ZOOM_COUNTRY,
    ZOOM_MAX,
    AddressRow,
    Place,
    ReverseResult,
    check_options,
    format_coordinates,
    is_point,
)
from geoservice.index.store import WORLD_PATH, IndexFile
from geoservice.index.street_layer import StreetLayer
from geoservice.index.street_shapes import object_geometry
from geoservice.index.world_layer import (
    CITY_POPULATION,
    TOWN_DISTANCE_M_MAX,
    TOWN_POPULATION,
    WorldLayer,
    doubles,
)

__all__ = [
    "CITY_POPULATION",
    "DEFAULT_LAYERS",
    "DISTANCES",
    "LAYERS",
    "TOWN_DISTANCE_M_MAX",
    "TOWN_POPULATION",
    "ZOOM_MAX",
    "AddressRow",
    "Geocoder",
    "Place",
    "ReverseResult",
    "format_coordinates",
    "is_point",
]


class Geocoder:
    """Answers which place a point is in, out of an index of streets above one of the world.

    Holds no state that a lookup changes but a cache, so one object serves one thread well and many
    threads correctly. Processes share the files' memory.
    """

    def __init__(self, index: IndexFile, world: IndexFile | None = None) -> None:
        """Take an index of the world, or one of streets and one of the world below it."""
        self._index = index
        self._version = index.version
        self._streets: StreetLayer | None = None
        if index.streets is not None:
            world = world if world is not None else IndexFile(WORLD_PATH)
            both = f"{index.version} {world.version}".encode()
            self._version = hashlib.blake2b(both, digest_size=6).hexdigest()
            self._streets = StreetLayer(index, self._version, self._town)
        self._world_index = world if world is not None else index
        self._world = WorldLayer(self._world_index, self._version)

    @classmethod
    def open(cls, index: Path | None = None) -> Geocoder:
        """Open an index file, by default the embedded world; raises IndexUnavailable."""
        return cls(IndexFile(index if index is not None else WORLD_PATH))

    @property
    def index(self) -> IndexFile:
        """The file behind it; of an index of streets that one, not the world's."""
        return self._index

    @property
    def world_index(self) -> IndexFile:
        """The file of the world."""
        return self._world_index

    @property
    def index_version(self) -> str:
        """Stands for the content of the index: changes when, and only when, that changes."""
        return self._version

    @property
    def streets(self) -> StreetLayer | None:
        """The streets; None of an index of the world alone."""
        return self._streets

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

        With distance "degrees" an index of streets answers what Nominatim would over the same
        extracts: where these have nothing, the country, and no town of the world.
        """
        check_options(layers, distance)
        if self._streets is not None:
            result = self._streets.reverse(
                lat, lon, zoom, layers, distance == "degrees", tuple(languages)
            )
            if result is not None:
                return result
            if distance == "degrees":
                return self._country(lat, lon, layers, languages)
        return _of_layers(self._world.reverse(lat, lon, zoom), layers)

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
        check_options(layers, distance)
        if self._streets is None:
            found = self._world.reverse_batch(lats, lons, zoom)
            if "address" in layers:
                return found
            return [_of_layers(result, layers) for result in found]
        results = self._streets.reverse_batch(
            doubles(lats), doubles(lons), zoom, layers, distance == "degrees", tuple(languages)
        )
        return [
            result
            if result is not None
            else self._country(lat, lon, layers, languages)
            if distance == "degrees"
            else _of_layers(self._world.reverse(lat, lon, zoom), layers)
            for lat, lon, result in zip(lats, lons, results, strict=True)
        ]

    def town(self, number: int) -> Place:
        """A town by its number in section `towns` of the world; behind them are the countries.

        Raises IndexError.
        """
        return self._world.town(number)

    def namedetails(self, place: Place) -> dict[str, str]:
        """All names of a place as OpenStreetMap's tags: "name", "name:de", "ref"."""
        if self._streets is not None and place.osm_type is not None:
            return self._streets.names(place)
        return {"name": place.name} if place.name else {}

    def address_rows(self, place: Place, languages: Sequence[str] = ()) -> list[AddressRow]:
        """The address of a place line by line, the finest first."""
        if self._streets is not None and place.osm_type is not None:
            return self._streets.address_rows(place, tuple(languages))
        return self._world.address_rows(place)

    def geometry(self, place: Place) -> dict[str, Any] | None:
        """Its shape as a GeoJSON geometry; None where only a point is known."""
        if self._streets is None or place.osm_type is None:
            return None
        return object_geometry(self._index, place.place_id - 1)

    def lookup(self, osm_type: str, osm_id: int, *, languages: Sequence[str] = ()) -> list[Place]:
        """What OpenStreetMap's object ("node", "way", "relation" and its id) is in this index."""
        if self._streets is None:
            return []
        return self._streets.lookup(osm_type, osm_id, tuple(languages))

    def extratags(self, place: Place) -> dict[str, str]:
        """Other tags of a place: "wikidata", "population"."""
        if self._streets is not None and place.osm_type is not None:
            return self._streets.extratags(place)
        return {"population": str(place.population)} if place.population else {}

    def _country(
        self, lat: float, lon: float, layers: frozenset[str], languages: Sequence[str]
    ) -> ReverseResult:
        """The country alone, under the name that the extracts have for it."""
        result = _of_layers(self._world.reverse(lat, lon, ZOOM_COUNTRY), layers)
        if result.place is None or self._streets is None:
            return result
        name = self._streets.country_name(result.place.address["country_code"], tuple(languages))
        if name is None:
            return result
        address = result.place.address | {"country": name}
        place = msgspec.structs.replace(result.place, name=name, display_name=name, address=address)
        return msgspec.structs.replace(result, place=place)

    def _town(self, lat: float, lon: float) -> Place | None:
        return self._world.reverse(lat, lon, ZOOM_MAX).place


def _of_layers(result: ReverseResult, layers: frozenset[str]) -> ReverseResult:
    """Towns and countries are of layer address: who asks for others wants nothing instead."""
    if result.place is None or "address" in layers:
        return result
    return msgspec.structs.replace(result, place=None, distance=None)
