"""Collects the objects, shapes and addresses of a street index and writes its sections."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import shapely
from numpy.typing import NDArray

from geoservice import street_format as sections
from geoservice.display_names import display_name
from geoservice.importer.areas import Area
from geoservice.importer.country_names import CountryNames
from geoservice.importer.rows import DEGREE, Spool

#: Streets are cut after so many pieces, so that a search need not look at all of a long one.
_PIECES_MAX: Final = 16

#: Outlines count only near their middle: what Nominatim searches, in 1e-7 degrees.
_REACH: Final = 70_000

_EMPTY_KEY: Final = -1

IntArray = NDArray[np.int32]


class Strings:
    """The pool of strings."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[bytes] = []

    def number(self, text: str) -> int:
        """The number of a string, the same each time."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text.encode())
        return number

    def sections(self) -> tuple[bytes, bytes]:
        """(ends, strings)."""
        ends = np.cumsum([len(text) for text in self._texts], dtype=np.int64)
        if len(ends) and ends[-1] > 2**31 - 1:
            raise OverflowError("the names of these extracts are too many for one index")
        return ends.astype("<i4").tobytes(), b"".join(self._texts)


class Addresses:
    """The part of addresses that many objects share."""

    def __init__(self, strings: Strings, country_names: CountryNames) -> None:
        self._strings = strings
        self._country_names = country_names
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._rows = array("i")
        self._lines = array("i")
        self._texts = bytearray()
        self.countries: list[str] = []

    def number(self, areas: Sequence[Area], postcode: str | None, country: str | None) -> int:
        """The number of an address, the same each time."""
        key = (tuple(area.number for area in areas), postcode, country)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._append(areas, postcode, country)
        return number

    def _append(self, areas: Sequence[Area], postcode: str | None, country: str | None) -> None:
        members: dict[str, str] = {}
        shown: list[str] = []
        rows = [(area.rank_address, area) for area in areas]
        for rank, area in rows:
            # Countries are named by Nominatim's table, and come last.
            if rank <= 4:
                continue
            text = display_name(area.shown_names)
            if text:
                members.setdefault(area.label, text)
                shown.append(text)
            code = area.names.get("ISO3166-2")
            if code is not None:
                members[f"ISO3166-2-lvl{area.admin_level}"] = code
        if postcode is not None:
            members.setdefault("postcode", postcode)
            shown.append(postcode)
        country_number = -1
        if country is not None:
            name = display_name(self._country_names.names(country))
            if name:
                members.setdefault("country", name)
                shown.append(name)
            members["country_code"] = country
            if country not in self.countries:
                self.countries.append(country)
            country_number = self.countries.index(country)
        shown = [
            name for number, name in enumerate(shown) if not number or shown[number - 1] != name
        ]
        first_line = len(self._lines)
        self._lines.extend(area.number for rank, area in rows if rank > 4)
        first_text = len(self._texts)
        self._texts += msgspec.json.encode(members)[1:-1]
        display = len(self._texts)
        self._texts += msgspec.json.encode(", ".join(shown))[1:-1]
        self._rows.extend(
            (
                first_line,
                -1 if postcode is None else self._strings.number(postcode),
                country_number,
                first_text,
                display,
            )
        )

    def sections(self) -> dict[str, bytes]:
        """Their sections."""
        self._rows.extend((len(self._lines), -1, -1, len(self._texts), len(self._texts)))
        return {
            sections.TAILS: self._rows.tobytes(),
            sections.TAIL_LINES: self._lines.tobytes(),
            sections.TAIL_TEXTS: bytes(self._texts),
        }


class NameSets:
    """All names of objects, where there are more than the one that is shown."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._numbers: dict[tuple[tuple[str, str], ...], int] = {}
        self._ends = array("i")
        self._pairs = array("i")

    def number(self, names: Mapping[str, str]) -> int:
        """The number of a set of names, the same each time."""
        if not names:
            return -1
        key = tuple(names.items())
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._ends)
            for name, text in key:
                self._pairs.append(self._strings.number(name))
                self._pairs.append(self._strings.number(text))
            self._ends.append(len(self._pairs) // 2)
        return number

    def sections(self) -> dict[str, bytes]:
        """Their sections."""
        return {sections.NAME_ENDS: self._ends.tobytes(), sections.NAMES: self._pairs.tobytes()}


class Objects:
    """Objects and their shapes."""

    def __init__(self, strings: Strings, directory: Path) -> None:
        self.strings = strings
        self.names = NameSets(strings)
        self._kinds: dict[tuple[str, str, str], int] = {}
        self._objects = array("i")
        self._boxes = array("i")
        self._extras = array("i")
        self._shapes = array("i")
        self._vertices = Spool(directory / "vertices")
        self._vertex_count = 0
        self._centred: dict[int, tuple[int, int]] = {}
        self.interpolations = array("i")

    def __len__(self) -> int:
        return len(self._objects) // len(sections.OBJECT_COLUMNS)

    def kind(self, category: str, type_: str, label: str) -> int:
        """The number of a combination of main tag and label."""
        return self._kinds.setdefault((category, type_, label), len(self._kinds))

    def append(
        self,
        *,
        osm_type: int,
        osm_id: int,
        kind: int,
        names: Mapping[str, str],
        shown: str,
        extratags: Mapping[str, str],
        parent: int,
        number: str | None,
        unlisted: str | None,
        tail: int,
        point: tuple[int, int],
        box: Sequence[int],
        ranks: tuple[int, int],
        flags: int,
    ) -> int:
        """Add an object; returns its number."""
        object_number = len(self)
        key = osm_id * 4 + osm_type
        string = self.strings.number
        self._objects.extend(
            (
                (key & 0xFFFFFFFF) - ((key & 0x80000000) << 1),
                key >> 32,
                kind,
                self.names.number(names),
                parent,
                -1 if number is None else string(number),
                -1 if unlisted is None else string(unlisted),
                tail,
                point[0],
                point[1],
                ranks[0] | ranks[1] << 8 | flags << 16,
                string(shown) if shown else -1,
            )
        )
        self._boxes.extend(int(edge) for edge in box)
        if extratags:
            self._extras.extend((object_number, self.names.number(extratags)))
        return object_number

    def add_point(self, number: int, tail: int, layers: int, point: tuple[int, int]) -> None:
        """A shape that is one point."""
        self._add_shape(number, tail, layers, np.empty((0, 2), dtype=np.int32), point + point)

    def add_line(self, number: int, tail: int, layers: int, line: Any) -> None:
        """A shape for each stretch of a line, in degrees."""
        for part in shapely.get_parts(line):
            points = _integers(part)
            for start in range(0, max(1, len(points) - 1), _PIECES_MAX):
                piece = points[start : start + _PIECES_MAX + 1]
                box = (*piece.min(axis=0).tolist(), *piece.max(axis=0).tolist())
                self._add_shape(number, tail, layers | sections.SHAPE_LINE, piece, box)

    def add_area(
        self, number: int, tail: int, layers: int, area: Any, centre: tuple[int, int]
    ) -> None:
        """A shape with an inside, in degrees. It counts near its middle only."""
        rings: list[IntArray] = []
        for polygon in shapely.get_parts(area):
            for ring in (polygon.exterior, *polygon.interiors):
                if rings:
                    rings.append(np.full((1, 2), sections.RING_END, dtype=np.int32))
                rings.append(_integers(ring))
        points = np.concatenate(rings)
        box = np.rint(np.array(shapely.bounds(area)) * DEGREE).astype(np.int64)
        shape = self._add_shape(number, tail, layers | sections.SHAPE_AREA, points, box.tolist())
        self._centred[shape] = centre

    def _add_shape(
        self, number: int, tail: int, layers: int, points: IntArray, box: Sequence[int]
    ) -> int:
        shape = len(self._shapes) // len(sections.SHAPE_COLUMNS)
        self._shapes.extend((number, tail, self._vertex_count, layers, *box))
        if len(points):
            self._vertices.append(np.ascontiguousarray(points, dtype="<i4").tobytes())
            self._vertex_count += len(points)
        return shape

    def column(self, name: str) -> IntArray:
        """One column of the objects."""
        width = len(sections.OBJECT_COLUMNS)
        table = np.frombuffer(self._objects, dtype=np.int32).reshape(-1, width)
        column: IntArray = table[:, sections.OBJECT_COLUMNS.index(name)]
        return column

    def order(self) -> bytes:
        """The objects by OSM number and type."""
        low = self.column("osm_low").astype(np.int64) & 0xFFFFFFFF
        keys = self.column("osm_high").astype(np.int64) << 32 | low
        return np.argsort(keys, kind="stable").astype("<i4").tobytes()

    def first_shapes(self) -> NDArray[np.int64]:
        """The first shape of each object, -1 where it has none."""
        width = len(sections.SHAPE_COLUMNS)
        owners = np.frombuffer(self._shapes, dtype=np.int32).reshape(-1, width)[:, 0]
        first = np.full(len(self), -1, dtype=np.int64)
        numbers, shapes = np.unique(owners, return_index=True)
        first[numbers] = shapes
        return first

    def sections(self) -> dict[str, bytes | memoryview]:
        """Their sections."""
        width = len(sections.SHAPE_COLUMNS)
        shapes = np.frombuffer(self._shapes, dtype=np.int32).reshape(-1, width)
        cells, entries = build_cells(*self._shape_cells(shapes), sections.CELL_SHIFT)
        end = np.zeros((1, width), dtype=np.int32)
        end[0, 0] = -1
        end[0, 2] = self._vertex_count
        self._vertices.finish()
        kinds = [self.strings.number(text) for kind in self._kinds for text in kind]
        return {
            sections.OBJECTS: self._objects.tobytes(),
            sections.BOXES: self._boxes.tobytes(),
            sections.SHAPES: shapes.tobytes() + end.tobytes(),
            sections.VERTICES: self._vertices.read(0, self._vertex_count * 8),
            sections.CELLS: cells,
            sections.ENTRIES: entries,
            sections.KINDS: np.array(kinds, dtype="<i4").tobytes(),
            sections.EXTRAS: self._extras.tobytes(),
            sections.INTERPOLATIONS: self.interpolations.tobytes(),
            **self.names.sections(),
        }

    def _shape_cells(self, shapes: IntArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        boxes = shapes[:, 4:].astype(np.int64)
        for shape, (lon, lat) in self._centred.items():
            # Nearer than the reach to the middle, with room for what a degree is worth far north.
            boxes[shape, 0] = max(boxes[shape, 0], lon - _REACH * 8)
            boxes[shape, 1] = max(boxes[shape, 1], lat - _REACH)
            boxes[shape, 2] = min(boxes[shape, 2], lon + _REACH * 8)
            boxes[shape, 3] = min(boxes[shape, 3], lat + _REACH)
        return boxes, np.arange(len(shapes), dtype=np.int64)

    def close(self) -> None:
        """Remove the temporary file."""
        self._vertices.close()


def _integers(line: Any) -> IntArray:
    points: IntArray = np.rint(shapely.get_coordinates(line) * DEGREE).astype(np.int32)
    return points


def build_cells(
    boxes: NDArray[np.int64], values: NDArray[np.int64], shift: int
) -> tuple[bytes, bytes]:
    """A hash table of the cells that boxes touch: (cells, entries)."""
    origin = np.array([1_800_000_000, 900_000_000], dtype=np.int64)
    first = (boxes[:, :2] + origin) >> shift
    last = (boxes[:, 2:] + origin) >> shift
    widths = last[:, 0] - first[:, 0] + 1
    heights = last[:, 1] - first[:, 1] + 1
    counts = widths * heights
    owners = np.repeat(np.arange(len(boxes)), counts)
    steps = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns = first[owners, 0] + steps % widths[owners]
    rows = first[owners, 1] + steps // widths[owners]
    keys = (rows << 32) | columns
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    entries = values[owners[order]].astype("<i4")
    unique, starts = np.unique(keys, return_index=True)
    ends = np.append(starts[1:], len(keys))
    size = 16
    while size < 2 * len(unique):
        size *= 2
    table = np.zeros(size, dtype=[("key", "<i8"), ("first", "<i4"), ("end", "<i4")])
    table["key"] = _EMPTY_KEY
    slots = hash_slots(unique, size)
    pending = np.arange(len(unique))
    while len(pending):
        # Of several keys for one slot the first gets it, the others try the next slot.
        free = table["key"][slots[pending]] == _EMPTY_KEY
        chosen, where = np.unique(slots[pending[free]], return_index=True)
        winners = pending[free][where]
        table["key"][chosen] = unique[winners]
        table["first"][chosen] = starts[winners]
        table["end"][chosen] = ends[winners]
        pending = np.setdiff1d(pending, winners, assume_unique=True)
        slots[pending] = (slots[pending] + 1) % size
    return table.tobytes(), entries.tobytes()


def hash_slots(keys: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Where the search for a key begins; the kernel computes the same."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(32)).astype(np.int64) % size


def group_by(owners: NDArray[Any], members: NDArray[np.int64], count: int) -> tuple[bytes, bytes]:
    """(ends, members) of the members of each owner."""
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=count))
    return ends.astype("<i4").tobytes(), members[order].astype("<i4").tobytes()
