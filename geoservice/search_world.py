"""Forward search in the index of the world: its towns and countries, by their one name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from geoservice.format import TOWN_COLUMNS, IndexFormatError
from geoservice.reverse import Geocoder, Place
from geoservice.search_query import Box, House
from geoservice.search_sections import Numbers, WordIndex, build_search_sections, integers

#: Section of the world: the number of the context (country and state) of each town.
TOWN_CONTEXTS: Final = "town contexts"
OTHER_NAME_ENDS: Final = "other name ends"  # int32: of each town the end of its other names
OTHER_NAMES: Final = "other names"  # UTF-8, a line each

_COLUMNS: Final = {name: number for number, name in enumerate(TOWN_COLUMNS)}
_RANK_TOWN: Final = 16
_RANK_SUBURB: Final = 20
_RANK_COUNTRY: Final = 4
_IMPORTANCE_TOWN: Final = 0.1
_IMPORTANCE_COUNTRY: Final = 0.6


def name_towns(
    towns: Sequence[Sequence[str]],
    contexts: Sequence[tuple[str, ...]],
    countries: Sequence[Sequence[str]],
) -> dict[str, bytes]:
    """The sections of the search: all names of each town, what it lies in, names of countries.

    Countries are numbered behind the towns.
    """
    numbers: dict[tuple[str, ...], int] = {}
    of_towns = [numbers.setdefault(context, len(numbers)) for context in contexts]
    sections = build_search_sections(
        enumerate([*towns, *countries]),
        ((number, context) for context, number in numbers.items()),
    )
    others = ["\n".join(names[1:]).encode() for names in towns]
    return sections | {
        TOWN_CONTEXTS: np.array(of_towns, dtype="<i4").tobytes(),
        OTHER_NAME_ENDS: np.cumsum([len(names) for names in others]).astype("<i4").tobytes(),
        OTHER_NAMES: b"".join(others),
    }


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
        self._contexts = integers(index.section(TOWN_CONTEXTS), TOWN_CONTEXTS)
        self._other_names = memoryview(index.section(OTHER_NAMES))
        self._other_name_ends = integers(index.section(OTHER_NAME_ENDS), OTHER_NAME_ENDS)
        if not len(self._contexts) == len(self._other_name_ends) == len(self._towns):
            raise IndexFormatError("damaged: the sections of towns do not fit each other")
        self.object_count = len(self._towns) + geocoder.world_index.world.country_count
        self.context_count = int(self._contexts.max(initial=-1)) + 1

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
        if number < len(self._towns):
            start = int(self._other_name_ends[number - 1]) if number else 0
            others = bytes(
                self._other_names[max(0, start) : max(0, int(self._other_name_ends[number]))]
            )
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
