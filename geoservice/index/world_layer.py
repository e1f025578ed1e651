"""The world at town level, which answers where no extract was imported."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from geoservice.index.format import TOWN_COLUMNS
from geoservice.index.places import (
    ZOOM_STATE,
    ZOOM_SUBURB,
    ZOOM_TOWN,
    AddressRow,
    Place,
    ReverseResult,
)
from geoservice.index.store import IndexFile

#: Metres to a town beyond which only the country is answered: such a town says nothing about a
#: place.
TOWN_DISTANCE_M_MAX: Final = 100_000.0

#: Inhabitants from which a place is called city or town rather than village. OpenStreetMap's
#: mappers decide by importance, but GeoNames has only the population.
CITY_POPULATION: Final = 50_000
TOWN_POPULATION: Final = 5_000

#: Nominatim's search ranks of places.
_RANKS: Final = {"country": 4, "state": 8, "city": 16, "town": 18, "village": 19, "suburb": 19}

#: Nominatim's address ranks of the keys in a town's address.
_ADDRESS_RANKS: Final = _RANKS | {"town": 16, "village": 16, "suburb": 20}

#: Number of places in the cache; each takes some 800 bytes.
_PLACES_MAX: Final = 8_000

_Columns = {name: number for number, name in enumerate(TOWN_COLUMNS)}
_WIDTH: Final = len(TOWN_COLUMNS)


class WorldLayer:
    """A layer that answers which town a point is in."""

    def __init__(self, index: IndexFile, version: str) -> None:
        self._index = index
        self._world = index.world
        self._towns = index.towns
        self._countries = index.countries
        self._version = version
        self._places: dict[int, Place] = {}
        self._country_places = [
            self._make_country(number) for number in range(self._world.country_count)
        ]
        self._texts: dict[int, str] = {}

    def reverse(self, lat: float, lon: float, zoom: int) -> ReverseResult:
        """Look one point up; raises ValueError when it is not a point on earth."""
        town, country, metres = self._world.reverse(lat, lon)
        result = self._result(lat, lon, town, country, metres)
        return result if zoom >= ZOOM_SUBURB else self._coarser(result, country, zoom)

    def reverse_batch(
        self, lats: Sequence[float], lons: Sequence[float], zoom: int
    ) -> list[ReverseResult]:
        """Look many points up; raises ValueError as `reverse` does."""
        towns, countries, metres = self._world.reverse_batch(doubles(lats), doubles(lons))
        results: list[ReverseResult] = []
        for lat, lon, town, country, far in zip(lats, lons, towns, countries, metres, strict=True):
            result = self._result(lat, lon, town, country, far)
            results.append(result if zoom >= ZOOM_SUBURB else self._coarser(result, country, zoom))
        return results

    def town(self, number: int) -> Place:
        """Return a town by its number in section `towns`; higher numbers are countries.

        Raises IndexError for a negative number or one beyond the countries.
        """
        of_country = number - len(self._towns) // _WIDTH
        if of_country >= 0:
            return self._country_places[of_country]
        if number < 0:
            raise IndexError(number)
        ends = range(self._world.country_count)
        country = next(n for n in ends if number < self._countries[4 * n + 3])
        return self._places.get(number) or self._make_place(number, country)

    def address_rows(self, place: Place) -> list[AddressRow]:
        """Return the address of a place line by line, the finest first."""
        return [
            AddressRow(key=key, name=name, address_rank=_ADDRESS_RANKS[key])
            for key, name in place.address.items()
            if key in _ADDRESS_RANKS
        ]

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
        # There are few names of states and time zones, and many towns share them: keep one object
        # each.
        text = self._texts.get(number)
        if text is None:
            if len(self._texts) >= _PLACES_MAX:
                self._texts.clear()
            text = self._texts[number] = self._index.string(number)
        return text

    def _coarser(self, result: ReverseResult, country: int, zoom: int) -> ReverseResult:
        """Return the same answer without the levels that are finer than the zoom."""
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


def _kind(population: int) -> str:
    if population >= CITY_POPULATION:
        return "city"
    return "town" if population >= TOWN_POPULATION else "village"


def _display_name(address: dict[str, str]) -> str:
    # A city that is a state of its own is named once.
    names = (text for key, text in address.items() if key != "country_code")
    return ", ".join(dict.fromkeys(names))


def doubles(values: Iterable[float]) -> Any:
    """Return an array of float64, or `values` itself if it has that type."""
    try:
        view = memoryview(values)  # type: ignore[arg-type]
    except TypeError:
        return array("d", values)
    return values if view.format == "d" else array("d", values)
