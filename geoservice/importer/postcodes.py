"""Postcodes, estimated from all objects that have one, as Nominatim does.

The centre of a postcode is the mean of the points tagged with it. A street gets the postcode with
the nearest centre, if its reach covers the street. Where postcode boundaries are mapped, they take
precedence.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import shapely

from geoservice.importer.addresses import square_around
from geoservice.importer.centres import Centres
from geoservice.importer.countries import Countries
from geoservice.importer.reading import Source
from geoservice.importer.rows import Geometries, batches

_REACH_M: Final = 5_000.0

#: Reach in metres in countries whose postcode areas are smaller.
_REACH_BY_COUNTRY_M: Final = {
    "ch": 3_000.0,
    "gb": 700.0,
    "ie": 50.0,
    "li": 4_000.0,
    "lu": 1_000.0,
    "nl": 800.0,
    "sg": 50.0,
}

#: Formats by country: d is a digit, l a letter, the rest a regular expression. The second member of
#: a pair is the template of the normal form.
_FORMATS: Final[dict[str, str | tuple[str, str]]] = {
    **dict.fromkeys(("at", "au", "be", "bg", "ch", "cy", "dk", "hu", "li", "lu", "no"), "dddd"),
    **dict.fromkeys(("nz", "ph", "si", "tn", "za", "ge", "am", "lv"), "dddd"),
    **dict.fromkeys(("de", "ee", "es", "fi", "fr", "hr", "id", "it", "kr", "lt", "me"), "ddddd"),
    **dict.fromkeys(("ma", "mx", "my", "rs", "sa", "th", "tr", "ua", "uy", "tw"), "ddddd"),
    **dict.fromkeys(("by", "cn", "in", "kg", "kz", "ro", "ru", "sg", "uz", "vn"), "dddddd"),
    **dict.fromkeys(("fo", "is"), "ddd"),
    "mc": "980dd",
    "sm": "4789d",
    "ad": ("(ddd)", r"AD\1"),
    "br": ("(ddddd)-?(ddd)", r"\1-\2"),
    "ca": ("(ldl) ?(dld)", r"\1 \2"),
    "cz": ("(ddd) ?(dd)", r"\1 \2"),
    "gb": ("(l?ld[A-Z0-9]?) ?(dll)", r"\1 \2"),
    "gr": ("(ddd) ?(dd)", r"\1 \2"),
    "jp": ("(ddd)-?(dddd)", r"\1-\2"),
    "mt": ("(lll) ?(dddd)", r"\1 \2"),
    "nl": ("(dddd) ?(ll)", r"\1 \2"),
    "pl": ("(dd)[ -]?(ddd)", r"\1-\2"),
    "pt": ("dddd(?:-ddd)?", r"\g<0>"),
    "se": ("(ddd) ?(dd)", r"\1 \2"),
    "sk": ("(ddd) ?(dd)", r"\1 \2"),
    "us": ("(ddddd)(?:-dddd)?", r"\1"),
}
_ANY: Final = re.compile(r"[A-Z0-9 -]{3,12}")
_ZERO: Final = re.compile(r"[0 -]+")
_BATCH: Final = 50_000


class _Format:
    """The format of a country's postcodes."""

    def __init__(self, country: str, pattern: str, output: str) -> None:
        expression = pattern.replace("d", "[0-9]").replace("l", "[A-Z]")
        self._expression = re.compile(expression)
        self._prefixed = re.compile(rf"\s*(?:{country.upper()}[ -]?)?({expression})\s*")
        self._output = output

    def read(self, text: str) -> str | None:
        """Return a postcode in the normal form, or None if the text is not one."""
        found = self._prefixed.fullmatch(text.upper())
        match = self._expression.fullmatch(found.group(1)) if found else None
        if match is None or _ZERO.fullmatch(match.group(0)):
            return None
        return match.expand(self._output)


_READERS: Final = {
    country: _Format(country, *(form if isinstance(form, tuple) else (form, r"\g<0>")))
    for country, form in _FORMATS.items()
}


def read_postcode(country: str | None, text: str) -> str | None:
    """Return a postcode in the normal form of its country, or None if the text is not one."""
    if country is None or "," in text or ";" in text:
        return None
    reader = _READERS.get(country)
    if reader is not None:
        return reader.read(text)
    text = text.strip().upper()
    return text if _ANY.fullmatch(text) else None


class _Sums:
    """The sums of the points of each postcode, for their mean."""

    def __init__(self, covered: Any) -> None:
        """Create empty sums; points that lie in `covered` will be ignored."""
        self._covered = covered
        self._texts: dict[tuple[str | None, str], int] = {}  # keys as written in the tags
        self._postcodes: dict[tuple[str, str], int] = {}
        self._postcode_of_text = array("i")
        self._points = array("d")
        self._point_texts = array("i")

    def add(self, codes: Sequence[str | None], texts: Sequence[str], points: Geometries) -> None:
        """Count points; the same point with the same text counts once."""
        numbers = np.array(
            [self._number(code, text) for code, text in zip(codes, texts, strict=True)],
            dtype=np.int32,
        )
        counts = np.frombuffer(self._postcode_of_text, dtype=np.int32)[numbers] >= 0
        if self._covered is not None:
            counts[counts] = ~shapely.intersects(self._covered, points[counts])
        self._points.frombytes(shapely.get_coordinates(points[counts]).tobytes())
        self._point_texts.frombytes(numbers[counts].tobytes())

    def _number(self, country: str | None, text: str) -> int:
        number = self._texts.get((country, text))
        if number is None:
            number = self._texts[country, text] = len(self._texts)
            postcode = read_postcode(country, text)
            found = -1
            if country is not None and postcode is not None:
                found = self._postcodes.setdefault((country, postcode), len(self._postcodes))
            self._postcode_of_text.append(found)
        return number

    def middles(self) -> Iterator[tuple[str, str, Any]]:
        """Yield (country, postcode, centre), in the order of the postcodes' first points."""
        points = np.frombuffer(self._points).reshape(-1, 2)
        texts = np.frombuffer(self._point_texts, dtype=np.int32)
        # An object with several main tags occurs several times but counts once.
        order = np.lexsort((points[:, 1], points[:, 0], texts))
        first = np.ones(len(order), dtype=bool)
        before, after = order[:-1], order[1:]
        first[1:] = (texts[before] != texts[after]) | (points[before] != points[after]).any(axis=1)
        kept = np.sort(order[first])
        postcodes = np.frombuffer(self._postcode_of_text, dtype=np.int32)[texts[kept]]
        counts = np.bincount(postcodes)
        x = np.bincount(postcodes, weights=points[kept, 0])
        y = np.bincount(postcodes, weights=points[kept, 1])
        found, firsts = np.unique(postcodes, return_index=True)
        names = list(self._postcodes)
        for number in found[np.argsort(firsts)].tolist():
            count = int(counts[number])
            yield *names[number], shapely.Point(x[number] / count, y[number] / count)


def _collect(sums: _Sums, source: Source, centres: Centres, codes: Any) -> None:
    for rows in batches(np.arange(len(source.rows)), _BATCH):
        found = [
            (row, postcode)
            for row in rows.tolist()
            if (postcode := source.rows.tags(row).address.get("postcode")) is not None
        ]
        numbers = np.array([row for row, _ in found], dtype=np.int64)
        texts = [postcode for _, postcode in found]
        sums.add(codes[numbers].tolist(), texts, centres.points(numbers))
        source.rows.release()


class Postcodes:
    """The postcodes of points that have none in their tags."""

    def __init__(self, source: Source, centres: Centres, codes: Any, countries: Countries) -> None:
        areas = [point for point in source.postcodes if point.is_area]
        covered = shapely.union_all([area.geometry for area in areas]) if areas else None
        if covered is not None:
            shapely.prepare(covered)
        self._shapes: list[Any] = []
        self._texts: list[tuple[str, str]] = []  # country, postcode
        self._centres: list[Any] = []
        self._is_area: list[bool] = []
        area_codes = countries.codes(np.array([a.geometry.centroid for a in areas], dtype=object))
        for area, country in zip(areas, area_codes.tolist(), strict=True):
            postcode = read_postcode(country, area.postcode)
            if postcode is not None:
                self._shapes.append(area.geometry)
                self._centres.append(area.geometry.centroid)
                self._texts.append((country, postcode))
                self._is_area.append(True)
        known = set(self._texts)
        sums = _Sums(covered)
        _collect(sums, source, centres, codes)
        loose = [point for point in source.postcodes if not point.is_area]
        points = np.array([point.geometry for point in loose], dtype=object)
        loose_codes = countries.codes(points).tolist()
        sums.add(loose_codes, [point.postcode for point in loose], points)
        for country, postcode, centre in sums.middles():
            if (country, postcode) not in known:
                reach = _REACH_BY_COUNTRY_M.get(country, _REACH_M)
                self._shapes.append(square_around(centre, reach))
                self._centres.append(centre)
                self._texts.append((country, postcode))
                self._is_area.append(False)
        shapely.prepare(self._shapes)
        self._tree = shapely.STRtree(self._shapes)
        self._countries = np.array([country for country, _ in self._texts], dtype=object)
        self._coordinates = np.array([(centre.x, centre.y) for centre in self._centres])
        self._areas = np.array(self._is_area, dtype=bool)

    def __len__(self) -> int:
        return len(self._texts)

    def nearest(self, points: Geometries, codes: Any) -> list[str | None]:
        """Return the postcode of each point, given its country."""
        result: list[str | None] = [None] * len(points)
        if not len(points) or not self._shapes:
            return result
        numbers, shapes = self._tree.query(points, predicate="covered_by")
        same = self._countries[shapes] == np.asarray(codes, dtype=object)[numbers]
        numbers, shapes = numbers[same], shapes[same]
        gaps = shapely.get_coordinates(points)[numbers] - self._coordinates[shapes]
        distances = np.hypot(gaps[:, 0], gaps[:, 1])
        order = np.lexsort((distances, ~self._areas[shapes], numbers))
        chosen, first = np.unique(numbers[order], return_index=True)
        for number, shape in zip(chosen.tolist(), shapes[order[first]].tolist(), strict=True):
            result[number] = self._texts[shape][1]
        return result

    def inside(self, area: Any, country: str | None) -> str | None:
        """Return the postcode of an area that contains the centre of only one, or None."""
        found = {
            self._texts[number][1]
            for number in self._tree.query(area, predicate="intersects").tolist()
            if self._texts[number][0] == country and shapely.contains(area, self._centres[number])
        }
        return found.pop() if len(found) == 1 else None
