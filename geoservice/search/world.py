"""Forward search in the world index: towns and countries by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from geoservice.index import format as file_format
from geoservice.index.format import TOWN_COLUMNS, IndexFormatError
from geoservice.reverse.geocoder import Geocoder, Place
from geoservice.search.query import Box, House
from geoservice.search.sections import Named, Numbers, WordIndex, build_search_sections, integers
from geoservice.search.words import plain

# Sections of the world index: names of large towns in other languages.
OTHER_TOWNS: Final = "other towns"  # int32 x 2: town, end of its other names; ascending
OTHER_NAMES: Final = "other names"  # UTF-8, one name per line

_COLUMNS: Final = {name: number for number, name in enumerate(TOWN_COLUMNS)}
_COUNTRY_WIDTH: Final = 4  # code, name, first town, end of towns
_RANK_TOWN: Final = 16
_RANK_SUBURB: Final = 20
_RANK_COUNTRY: Final = 4
_IMPORTANCE_TOWN: Final = 0.1
_IMPORTANCE_COUNTRY: Final = 0.6


def build_town_search(
    content: Mapping[str, Any], other_names: Sequence[Sequence[str]]
) -> dict[str, bytes]:
    """Build the sections that make the world index searchable from its other sections.

    `other_names` has the other names of each town. Countries are numbered after the towns.
    """
    strings = bytes(content[file_format.STRINGS])
    ends = integers(content[file_format.STRING_ENDS], file_format.STRING_ENDS)
    towns = integers(content[file_format.TOWNS], file_format.TOWNS).reshape(-1, len(TOWN_COLUMNS))
    countries = integers(content[file_format.COUNTRIES], file_format.COUNTRIES)
    countries = countries.reshape(-1, _COUNTRY_WIDTH)

    def text(number: int) -> str:
        start = int(ends[number - 1]) if number else 0
        return strings[start : int(ends[number])].decode()

    others = [_distinct(names) for names in other_names]
    objects: list[Named] = [
        (number, (text(name), *others[number]))
        for number, name in enumerate(towns[:, _COLUMNS["name"]].tolist())
    ]
    objects += [
        (len(towns) + number, (text(code), text(name)))
        for number, (code, name) in enumerate(countries[:, :2].tolist())
    ]
    keys, _ = _contexts_of(towns, countries)
    contexts: list[Named] = []
    for number, key in enumerate(keys.tolist()):
        country, state = divmod(key, 1 << 32)
        code, name = countries[country, :2].tolist()
        names = (text(code), text(name), *((text(state - 1),) if state else ()))
        contexts.append((number, names))
    lines = ["\n".join(names).encode() for names in others]
    named = [number for number, line in enumerate(lines) if line]
    line_ends = np.cumsum([len(lines[number]) for number in named], dtype=np.int64)
    return build_search_sections(objects, contexts) | {
        OTHER_TOWNS: np.stack([named, line_ends], axis=1).astype("<i4").tobytes(),
        OTHER_NAMES: b"".join(lines),
    }


def _distinct(names: Sequence[str]) -> list[str]:
    """Drop names that differ only in case and accents; keep the last of each group."""
    return list({plain(name): name for name in names}.values())


def _contexts_of(towns: Numbers, countries: Numbers) -> tuple[NDArray[np.int64], Numbers]:
    """Return all pairs of country and state, and the number of the pair of each town."""
    of_towns = np.searchsorted(countries[:, 3], np.arange(len(towns)), side="right")
    keys = of_towns.astype(np.int64) << 32 | (towns[:, _COLUMNS["state"]] + 1)
    unique, inverse = np.unique(keys, return_inverse=True)
    return unique, inverse.astype(np.int32)


class WorldLayer:
    """The searchable layer of the world index."""

    bonus: float = 0.0

    def __init__(self, geocoder: Geocoder) -> None:
        """Open the layer; raises IndexFormatError when the index was built without the search."""
        index = geocoder.world_index
        self._geocoder = geocoder
        self.words = WordIndex(index.section)
        width = len(TOWN_COLUMNS)
        towns = np.asarray(index.towns)
        self._towns = towns[: len(towns) // width * width].reshape(-1, width)
        countries = np.asarray(index.countries)
        if len(countries) % _COUNTRY_WIDTH:
            raise IndexFormatError("damaged: section 'countries' ends within a row")
        countries = countries.reshape(-1, _COUNTRY_WIDTH)
        # The order is the same as when the index was built, so that it need not be stored.
        keys, self._contexts = _contexts_of(self._towns, countries)
        self._other_names = memoryview(index.section(OTHER_NAMES))
        others = integers(index.section(OTHER_TOWNS), OTHER_TOWNS)
        self._other_towns, self._other_ends = others[::2], others[1::2]
        self.object_count = len(self._towns) + len(countries)
        self.context_count = len(keys)

    def contexts(self, numbers: Numbers) -> Numbers:
        """Return the country and state of each town; countries have no context."""
        contexts = np.full(len(numbers), -1, dtype=np.int32)
        towns = self._are_towns(numbers)
        contexts[towns] = self._contexts[numbers[towns]]
        return contexts

    def parents(self, numbers: Numbers) -> Numbers:
        """Return -1 for all: no object here belongs to a street."""
        return np.full(len(numbers), -1, dtype=np.int32)

    def importances(self, numbers: Numbers) -> NDArray[np.float64]:
        """Return importances by population; all countries have the same."""
        importances = np.full(len(numbers), _IMPORTANCE_COUNTRY)
        towns = self._are_towns(numbers)
        people = self._towns[numbers[towns], _COLUMNS["population"]]
        importances[towns] = _IMPORTANCE_TOWN + np.log10(np.maximum(people, 1)) / 20
        return importances

    def ranks(self, numbers: Numbers) -> Numbers:
        """Return Nominatim's address rank of each object."""
        ranks = np.full(len(numbers), _RANK_COUNTRY, dtype=np.int32)
        towns = self._are_towns(numbers)
        is_part = self._towns[numbers[towns], _COLUMNS["part_of"]] >= 0
        ranks[towns] = np.where(is_part, _RANK_SUBURB, _RANK_TOWN)
        return ranks

    def inside(self, numbers: Numbers, box: Box) -> NDArray[np.bool_]:
        """Return a mask of the towns in a box; countries have no point and never match."""
        inside = np.zeros(len(numbers), dtype=bool)
        towns = self._are_towns(numbers)
        rows = self._towns[numbers[towns]]
        lons, lats = rows[:, _COLUMNS["lon"]] / 1e7, rows[:, _COLUMNS["lat"]] / 1e7
        west, south, east, north = box
        inside[towns] = (lons >= west) & (lons <= east) & (lats >= south) & (lats <= north)
        return inside

    def names(self, number: int) -> Iterable[str]:
        """Return the name, and the names of a large town in other languages."""
        names = [self._geocoder.town(number).name]
        place = int(np.searchsorted(self._other_towns, number))
        if place < len(self._other_ends) and self._other_towns[place] == number:
            start = max(0, int(self._other_ends[place - 1])) if place else 0
            others = bytes(self._other_names[start : max(0, int(self._other_ends[place]))])
            names += others.decode("utf-8", "replace").splitlines()
        return names

    def house(self, _number: int, _house_number: str) -> None:
        """Return None: the world index has no houses."""

    def place(self, number: int, _languages: Sequence[str], _house: House | None) -> Place:
        """Return the town or country."""
        return self._geocoder.town(number)

    def postcodes(self, _text: str, _languages: Sequence[str]) -> list[Place]:
        """Return no places: the world index has no postcodes."""
        return []

    def _are_towns(self, numbers: Numbers) -> NDArray[np.bool_]:
        return numbers < len(self._towns)
