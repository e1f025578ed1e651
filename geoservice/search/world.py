"""Forward search in the index of the world: its towns and countries, by name."""

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

# Sections of the world: names of larger towns in other languages.
OTHER_TOWNS: Final = "other towns"  # int32 x 2: town, and the end of its other names; ascending
OTHER_NAMES: Final = "other names"  # UTF-8, a line each

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
    """The sections that make the other sections of the world searchable.

    `other_names` are what each town is called too. Countries are numbered behind the towns.
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
    """Without those that differ in case and accents alone."""
    return list({plain(name): name for name in names}.values())


def _contexts_of(towns: Numbers, countries: Numbers) -> tuple[NDArray[np.int64], Numbers]:
    """(all pairs of country and state, which of them each town lies in)."""
    of_towns = np.searchsorted(countries[:, 3], np.arange(len(towns)), side="right")
    keys = of_towns.astype(np.int64) << 32 | (towns[:, _COLUMNS["state"]] + 1)
    unique, inverse = np.unique(keys, return_inverse=True)
    return unique, inverse.astype(np.int32)


class WorldLayer:
    """The towns and countries of an index file."""

    bonus: float = 0.0

    def __init__(self, geocoder: Geocoder) -> None:
        """Raises IndexFormatError when the index was built without the search."""
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
        # The same order as when the index was built: nothing of it needs to be stored.
        keys, self._contexts = _contexts_of(self._towns, countries)
        self._other_names = memoryview(index.section(OTHER_NAMES))
        others = integers(index.section(OTHER_TOWNS), OTHER_TOWNS)
        self._other_towns, self._other_ends = others[::2], others[1::2]
        self.object_count = len(self._towns) + len(countries)
        self.context_count = len(keys)

    def contexts(self, numbers: Numbers) -> Numbers:
        """Country and state of towns; countries lie in nothing."""
        contexts = np.full(len(numbers), -1, dtype=np.int32)
        towns = self._are_towns(numbers)
        contexts[towns] = self._contexts[numbers[towns]]
        return contexts

    def parents(self, numbers: Numbers) -> Numbers:
        """Nothing here is on a street."""
        return np.full(len(numbers), -1, dtype=np.int32)

    def importances(self, numbers: Numbers) -> NDArray[np.float64]:
        """By the number of people."""
        importances = np.full(len(numbers), _IMPORTANCE_COUNTRY)
        towns = self._are_towns(numbers)
        people = self._towns[numbers[towns], _COLUMNS["population"]]
        importances[towns] = _IMPORTANCE_TOWN + np.log10(np.maximum(people, 1)) / 20
        return importances

    def ranks(self, numbers: Numbers) -> Numbers:
        """Nominatim's address ranks."""
        ranks = np.full(len(numbers), _RANK_COUNTRY, dtype=np.int32)
        towns = self._are_towns(numbers)
        is_part = self._towns[numbers[towns], _COLUMNS["part_of"]] >= 0
        ranks[towns] = np.where(is_part, _RANK_SUBURB, _RANK_TOWN)
        return ranks

    def inside(self, numbers: Numbers, box: Box) -> NDArray[np.bool_]:
        """Which of them are in a box. Countries are nowhere: the index has no point of them."""
        inside = np.zeros(len(numbers), dtype=bool)
        towns = self._are_towns(numbers)
        rows = self._towns[numbers[towns]]
        lons, lats = rows[:, _COLUMNS["lon"]] / 1e7, rows[:, _COLUMNS["lat"]] / 1e7
        west, south, east, north = box
        inside[towns] = (lons >= west) & (lons <= east) & (lats >= south) & (lats <= north)
        return inside

    def names(self, number: int) -> Iterable[str]:
        """The name, and of larger towns those in other languages."""
        names = [self._geocoder.town(number).name]
        place = int(np.searchsorted(self._other_towns, number))
        if place < len(self._other_ends) and self._other_towns[place] == number:
            start = max(0, int(self._other_ends[place - 1])) if place else 0
            others = bytes(self._other_names[start : max(0, int(self._other_ends[place]))])
            names += others.decode("utf-8", "replace").splitlines()
        return names

    def house(self, _number: int, _house_number: str) -> None:
        """Towns have no houses here."""

    def place(self, number: int, _languages: Sequence[str], _house: House | None) -> Place:
        """The town or country."""
        return self._geocoder.town(number)

    def postcodes(self, _text: str, _languages: Sequence[str]) -> list[Place]:
        """Postcodes are not in this index."""
        return []

    def _are_towns(self, numbers: Numbers) -> NDArray[np.bool_]:
        return numbers < len(self._towns)
