"""In-process reverse geocoding: the API that the server and the commands wrap."""

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
    """A reverse geocoder over a street index and the world index, or the world index alone.

    A lookup changes nothing but a cache. Several threads can share one object, but it serves one
    thread best. Processes share the memory of the mapped files.
    """

    def __init__(self, index: IndexFile, world: IndexFile | None = None) -> None:
        """Take a world index, or a street index and the world index to fall back to."""
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
        """The index file: the street index if there is one, else that of the world."""
        return self._index

    @property
    def world_index(self) -> IndexFile:
        """The file of the world index."""
        return self._world_index

    @property
    def index_version(self) -> str:
        """An identifier of the content, which changes only when the content of an index changes."""
        return self._version

    @property
    def streets(self) -> StreetLayer | None:
        """The street layer; None if there is only a world index."""
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

        `zoom` is Nominatim's level of detail, 3 for the country alone. `layers` and `distance` are
        values of LAYERS and DISTANCES. `languages` are the preferred languages of names, best
        first; without any, local names are used.

        With distance "degrees", a street index answers as Nominatim would with the same extracts:
        outside of them it answers the country, not a town of the world index.
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
        """Look many points up, in order; raises ValueError as `reverse` does.

        Arrays of float64 (of numpy or of the standard library) are not copied.
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
        """Return a town of the world by its number in section `towns`; higher ones are countries.

        Raises IndexError for an unknown number.
        """
        return self._world.town(number)

    def namedetails(self, place: Place) -> dict[str, str]:
        """Return all names of a place under OpenStreetMap's keys: "name", "name:de", "ref"."""
        if self._streets is not None and place.osm_type is not None:
            return self._streets.names(place)
        return {"name": place.name} if place.name else {}

    def address_rows(self, place: Place, languages: Sequence[str] = ()) -> list[AddressRow]:
        """Return the address of a place line by line, the finest first."""
        if self._streets is not None and place.osm_type is not None:
            return self._streets.address_rows(place, tuple(languages))
        return self._world.address_rows(place)

    def geometry(self, place: Place) -> dict[str, Any] | None:
        """Return the shape of a place as a GeoJSON geometry; None where only a point is known."""
        if self._streets is None or place.osm_type is None:
            return None
        return object_geometry(self._index, place.place_id - 1)

    def lookup(self, osm_type: str, osm_id: int, *, languages: Sequence[str] = ()) -> list[Place]:
        """Return the places of an OSM object; `osm_type` is "node", "way" or "relation"."""
        if self._streets is None:
            return []
        return self._streets.lookup(osm_type, osm_id, tuple(languages))

    def extratags(self, place: Place) -> dict[str, str]:
        """Return other tags of a place: "wikidata", "population"."""
        if self._streets is not None and place.osm_type is not None:
            return self._streets.extratags(place)
        return {"population": str(place.population)} if place.population else {}

    def _country(
        self, lat: float, lon: float, layers: frozenset[str], languages: Sequence[str]
    ) -> ReverseResult:
        """Return the country alone, with its name in the extracts."""
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
    """Remove the place unless layer address is wanted: the world's places are all in that layer."""
    if result.place is None or "address" in layers:
        return result
    return msgspec.structs.replace(result, place=None, distance=None)
