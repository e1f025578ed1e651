"""Forward search in a street index: streets, houses, places and points of interest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from geoservice.index import format as file_format
from geoservice.index import street_format as sections
from geoservice.index.format import IndexFormatError
from geoservice.reverse.geocoder import Geocoder, Place
from geoservice.search.query import Box, House
from geoservice.search.sections import Named, Numbers, WordIndex, build_search_sections, integers
from geoservice.search.words import plain, split_words

_NAMED_COLUMNS: Final = ("names", "text", "ranks")
_OBJECT: Final = {name: number for number, name in enumerate(sections.OBJECT_COLUMNS)}
_SHAPE: Final = {name: number for number, name in enumerate(sections.SHAPE_COLUMNS)}
_TAIL: Final = {name: number for number, name in enumerate(sections.TAIL_COLUMNS)}
_INTERPOLATION: Final = {name: number for number, name in enumerate(sections.INTERPOLATION_COLUMNS)}

#: Limit of the houses of one street that are searched.
_HOUSES_MAX: Final = 20_000
#: Number of split house numbers in the cache; most streets share the same few.
_HOUSE_NUMBERS_MAX: Final = 16_384

#: Nominatim's ranks of a postcode.
_RANK_POSTCODE: Final = 21
_ADDRESS_RANK_POSTCODE: Final = 5


def build_street_search(content: Mapping[str, Any]) -> dict[str, bytes]:
    """Build the sections that make an index searchable from its other sections."""
    texts = _Texts(content)
    return build_search_sections(texts.named_objects(), texts.tails())


class _Texts:
    """The names in the sections of an index that is being built."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._strings = bytes(content[file_format.STRINGS])
        self._string_ends = integers(content[file_format.STRING_ENDS], file_format.STRING_ENDS)
        self._objects = _table(content[sections.OBJECTS], sections.OBJECT_COLUMNS)
        self._name_ends = integers(content[sections.NAME_ENDS], sections.NAME_ENDS)
        self._names = integers(content[sections.NAMES], sections.NAMES)
        self._tails = _table(content[sections.TAILS], sections.TAIL_COLUMNS)
        self._tail_lines = integers(content[sections.TAIL_LINES], sections.TAIL_LINES)
        self._countries = integers(content[sections.COUNTRIES], sections.COUNTRIES)

    def named_objects(self) -> Iterator[Named]:
        """Yield the objects that have a name. Houses without one are found by their street."""
        names, texts, ranks = (self._objects[:, _OBJECT[name]] for name in _NAMED_COLUMNS)
        is_linked = ranks >> 16 & sections.FLAG_LINKED != 0
        for number in np.flatnonzero(((names >= 0) | (texts >= 0)) & ~is_linked):
            yield int(number), self._object_names(int(names[number]), int(texts[number]))

    def tails(self) -> Iterator[Named]:
        """Yield each address tail with the names in it."""
        first_lines = self._tails[:, _TAIL["first_line"]]
        for number in range(len(self._tails) - 1):
            lines = self._tail_lines[first_lines[number] : first_lines[number + 1]]
            texts: set[str] = set()
            for area in lines.tolist():
                names, text = self._objects[area, [_OBJECT["names"], _OBJECT["text"]]].tolist()
                texts |= self._object_names(names, text)
            row = self._tails[number]
            if row[_TAIL["postcode"]] >= 0:
                texts.add(self._string(int(row[_TAIL["postcode"]])))
            country = int(row[_TAIL["country"]])
            if country >= 0:
                code, names = self._countries[2 * country : 2 * country + 2].tolist()
                texts |= {self._string(code)} | self._object_names(names, -1)
            yield number, texts

    def _object_names(self, names: int, text: int) -> set[str]:
        texts = {self._string(text)} if text >= 0 else set()
        if names >= 0:
            first = int(self._name_ends[names - 1]) if names else 0
            pairs = self._names[2 * first : 2 * int(self._name_ends[names])].tolist()
            texts |= {
                self._string(value)
                for key, value in zip(pairs[::2], pairs[1::2], strict=True)
                if not self._string(key).startswith("ISO3166")
            }
        return texts

    def _string(self, number: int) -> str:
        start = int(self._string_ends[number - 1]) if number else 0
        return self._strings[start : int(self._string_ends[number])].decode("utf-8", "replace")


class StreetSearch:
    """The searchable layer of a street index."""

    #: An extract was imported on purpose, so its places rank before those of the world.
    bonus: float = 0.3

    def __init__(self, geocoder: Geocoder) -> None:
        """Open the layer; raises IndexFormatError when the index was built without the search."""
        if geocoder.streets is None:
            raise IndexFormatError("not an index of streets")
        index = geocoder.index
        self._index = index
        self._streets = geocoder.streets
        self.words = WordIndex(index.section)
        self._objects = _table(index.section(sections.OBJECTS), sections.OBJECT_COLUMNS)
        self._shapes = _table(index.section(sections.SHAPES), sections.SHAPE_COLUMNS)
        self._house_ends = integers(index.section(sections.HOUSE_ENDS), sections.HOUSE_ENDS)
        self._houses = integers(index.section(sections.HOUSES), sections.HOUSES)
        self._tails = _table(index.section(sections.TAILS), sections.TAIL_COLUMNS)
        self._interpolations = _table(
            index.section(sections.INTERPOLATIONS), sections.INTERPOLATION_COLUMNS
        )
        self._vertices = _table(index.section(sections.VERTICES), ("lon", "lat"))
        self.context_count = len(self._tails)
        self.object_count = len(self._objects)

        @lru_cache(maxsize=_HOUSE_NUMBERS_MAX)
        def house_numbers(string: int) -> tuple[str, ...]:
            return tuple(_numbers_of(index.string(string)))

        self._house_numbers = house_numbers

    def contexts(self, numbers: Numbers) -> Numbers:
        """Return the address tail of each object."""
        contexts = self._column(numbers, "tail")
        return np.where(contexts < self.context_count, contexts, -1)

    def parents(self, numbers: Numbers) -> Numbers:
        """Return the street of each object; -1 for none."""
        return self._column(numbers, "parent")

    def importances(self, numbers: Numbers) -> NDArray[np.float64]:
        """Return importances by search rank, as Nominatim does without Wikipedia's statistics."""
        return np.maximum(0.0, 0.40001 - (self._column(numbers, "ranks") & 0xFF) / 75.0)

    def ranks(self, numbers: Numbers) -> Numbers:
        """Return Nominatim's address rank of each object."""
        return self._column(numbers, "ranks") >> 8 & 0xFF

    def inside(self, numbers: Numbers, box: Box) -> NDArray[np.bool_]:
        """Return a mask of the objects in a box."""
        lons = self._column(numbers, "lon") / 1e7
        lats = self._column(numbers, "lat") / 1e7
        west, south, east, north = box
        return (lons >= west) & (lons <= east) & (lats >= south) & (lats <= north)

    def names(self, number: int) -> Iterable[str]:
        """Return all names in all languages."""
        text = int(self._objects[number, _OBJECT["text"]])
        shown = self._index.string(text) if text >= 0 else ""
        return [shown, *(name for name in self._streets.all_names(number) if name != shown)]

    def house(self, number: int, house_number: str) -> House | None:
        """Return the house of a street or place with this number, or None."""
        if not 0 <= number < len(self._house_ends):
            return None
        start = max(0, int(self._house_ends[number - 1])) if number else 0
        shapes = self._houses[start : max(0, int(self._house_ends[number]))][:_HOUSES_MAX]
        shapes = shapes[(shapes >= 0) & (shapes < len(self._shapes))]
        houses = self._shapes[shapes, _SHAPE["object"]]
        named: House | None = None
        for house in houses[(houses >= 0) & (houses < len(self._objects))].tolist():
            text = int(self._objects[house, _OBJECT["number"]])
            if text >= 0 and house_number in self._house_numbers(text):
                if self._objects[house, _OBJECT["text"]] < 0:
                    return House(int(house))
                # The house itself is a better answer than a shop in it.
                named = named or House(int(house))
        return named or self._counted_house(number, house_number)

    def _counted_house(self, street: int, house_number: str) -> House | None:
        """Return a house on an interpolation line between two mapped houses, or None."""
        if not house_number.isdecimal() or len(house_number) > 6:
            return None
        counted = int(house_number)
        lines = self._interpolations
        first, last, step = (lines[:, _INTERPOLATION[name]] for name in ("first", "last", "step"))
        numbers = np.clip(lines[:, _INTERPOLATION["object"]], 0, len(self._objects) - 1)
        on_street = self._objects[numbers, _OBJECT["parent"]] == street
        fits = on_street & (counted >= first) & (counted <= last)
        fits &= (counted - first) % np.maximum(step, 1) == 0
        found = np.flatnonzero(fits)
        return House(int(numbers[found[0]]), counted) if len(found) else None

    def place(self, number: int, languages: Sequence[str], house: House | None) -> Place:
        """Return the place for an object, or for its house."""
        if house is None:
            return self._streets.place(number, languages=tuple(languages))
        place = self._streets.place(house.number, counted=house.counted, languages=tuple(languages))
        if house.counted < 0:
            return place
        lon, lat = self._counted_point(house)
        return msgspec.structs.replace(place, lat=lat, lon=lon, boundingbox=None)

    def _counted_point(self, house: House) -> tuple[float, float]:
        """Return (lon, lat) of a house on its interpolation line."""
        shapes = np.flatnonzero(self._shapes[:-1, _SHAPE["object"]] == house.number)
        starts = self._shapes[:, _SHAPE["first_vertex"]]
        pieces = [
            self._vertices[max(0, int(starts[shape])) : max(0, int(starts[shape + 1]))]
            for shape in shapes.tolist()
        ]
        points = np.concatenate([np.empty((0, 2)), *pieces]) / 1e7
        if not len(points):
            row = self._objects[house.number]
            return row[_OBJECT["lon"]] / 1e7, row[_OBJECT["lat"]] / 1e7
        along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
        lines = self._interpolations[self._interpolations[:, 0] == house.number]
        first, last = lines[0, _INTERPOLATION["first"]], lines[0, _INTERPOLATION["last"]]
        at = along[-1] * (house.counted - first) / max(1, last - first)
        return float(np.interp(at, along, points[:, 0])), float(np.interp(at, along, points[:, 1]))

    def postcodes(self, text: str, languages: Sequence[str]) -> list[Place]:
        """Return the postcode in each country, at the mean of all objects with it."""
        wanted = "".join(text.upper().split())
        codes = self._tails[:-1, _TAIL["postcode"]]
        tails = [
            tail
            for tail in self._tails_with(text)
            if 0 <= tail < len(codes)
            and codes[tail] >= 0
            and "".join(self._index.string(int(codes[tail])).upper().split()) == wanted
        ]
        of_objects = self._objects[:, _OBJECT["tail"]]
        by_country: dict[int, list[int]] = {}
        for tail in tails:
            by_country.setdefault(int(self._tails[tail, _TAIL["country"]]), []).append(tail)
        found: list[Place] = []
        for group in by_country.values():
            members = np.flatnonzero(np.isin(of_objects, group))
            if not len(members):
                continue
            some = self._streets.place(int(members[0]), languages=tuple(languages))
            kept = ("country", "country_code")
            address = {"postcode": some.address.get("postcode", text)}
            address |= {key: some.address[key] for key in kept if key in some.address}
            found.append(
                Place(
                    place_id=len(self._objects) + group[0] + 1,
                    type="postcode",
                    addresstype="postcode",
                    name=address["postcode"],
                    display_name=", ".join(name for key, name in address.items() if key != kept[1]),
                    address=address,
                    lat=round(float(self._objects[members, _OBJECT["lat"]].mean()) / 1e7, 7),
                    lon=round(float(self._objects[members, _OBJECT["lon"]].mean()) / 1e7, 7),
                    place_rank=_RANK_POSTCODE,
                    address_rank=_ADDRESS_RANK_POSTCODE,
                )
            )
        return found

    def _tails_with(self, text: str) -> list[int]:
        """Return the address tails that contain all words of a text."""
        groups = []
        for forms in split_words(text):
            found = [self.words.contexts(form) for form in forms]
            groups.append(np.unique(np.concatenate(found)))
        if not groups:
            return []
        common = groups[0]
        for group in groups[1:]:
            common = np.intersect1d(common, group, assume_unique=True)
        return [int(tail) for tail in common]

    def _column(self, numbers: Numbers, name: str) -> Numbers:
        # Clip numbers of a damaged file to the table: the result is wrong, but there is no error.
        column: Numbers = self._objects[np.clip(numbers, 0, len(self._objects) - 1), _OBJECT[name]]
        return column


def _numbers_of(text: str) -> list[str]:
    """Split the text of one or several house numbers: "7", "3;5", "12 a"."""
    parts = plain(text).replace(";", ",").split(",")
    return ["".join(part.split()) for part in parts]


def _table(section: Any, columns: Sequence[str]) -> Numbers:
    values = np.frombuffer(section, dtype="<i4", count=len(section) // 4)
    return values[: len(values) // len(columns) * len(columns)].reshape(-1, len(columns))
