"""The collection of objects, shapes and addresses, and the sections made of them."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import shapely
from numpy.typing import NDArray

from geoservice.importer.areas import Area
from geoservice.importer.country_names import CountryNames
from geoservice.importer.rows import DEGREE, Spool
from geoservice.index import format as file_format
from geoservice.index import street_format as sections
from geoservice.index.display_names import display_name

#: Segments in one piece of a street, so that a search need not test all of a long street.
_PIECES_MAX: Final = 16

#: Nominatim's search radius in 1e-7 degrees: an outline is found only this near to its centre.
_REACH: Final = 70_000

_EMPTY_KEY: Final = -1
_INT_MAX: Final = 2**31 - 1

_OBJECT: Final = struct.Struct(f"<{len(sections.OBJECT_COLUMNS)}i")
_BOX: Final = struct.Struct("<4i")
_SHAPE: Final = struct.Struct(f"<{len(sections.SHAPE_COLUMNS)}i")

IntArray = NDArray[np.int32]


class Strings:
    """The pool of strings."""

    def __init__(self, directory: Path) -> None:
        self._numbers: dict[str, int] = {}
        self._texts = Spool(directory / "strings")
        self._ends = array("i")

    def number(self, text: str) -> int:
        """Return the number of a string, always the same for the same string."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._ends)
            self._texts.append(text.encode())
            if len(self._texts) > _INT_MAX:
                raise OverflowError("the names of these extracts are too many for one index")
            self._ends.append(len(self._texts))
        return number

    def sections(self) -> dict[str, memoryview]:
        """Return the sections of the pool. No strings can be added afterwards."""
        self._numbers.clear()
        self._texts.finish()
        return {
            file_format.STRING_ENDS: memoryview(self._ends).cast("B"),
            file_format.STRINGS: self._texts.all(),
        }

    def close(self) -> None:
        """Remove the temporary file."""
        self._texts.close()


class Addresses:
    """The address tails, which many objects share."""

    def __init__(self, strings: Strings, country_names: CountryNames, directory: Path) -> None:
        self._strings = strings
        self._country_names = country_names
        self._numbers: dict[bytes, int] = {}
        self._rows = array("i")
        self._lines = array("i")
        self._texts = Spool(directory / "tails")
        self.countries: list[str] = []

    def number(self, areas: Sequence[Area], postcode: str | None, country: str | None) -> int:
        """Return the number of an address tail, always the same for the same tail."""
        if country is not None and country not in self.countries:
            self.countries.append(country)
        members = array("i", [area.number for area in areas])
        members.append(-1 if postcode is None else self._strings.number(postcode))
        members.append(-1 if country is None else self.countries.index(country))
        key = members.tobytes()
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
            # The country is added last, with its name in Nominatim's table.
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
            country_number = self.countries.index(country)
        shown = [
            name for number, name in enumerate(shown) if not number or shown[number - 1] != name
        ]
        first_line = len(self._lines)
        self._lines.extend(area.number for rank, area in rows if rank > 4)
        first_text = len(self._texts)
        self._texts.append(msgspec.json.encode(members)[1:-1])
        display = self._texts.append(msgspec.json.encode(", ".join(shown))[1:-1])
        self._rows.extend(
            (
                first_line,
                -1 if postcode is None else self._strings.number(postcode),
                country_number,
                first_text,
                display,
            )
        )

    def sections(self) -> dict[str, memoryview]:
        """Return the sections of the tails. No tails can be added afterwards."""
        self._numbers.clear()
        self._rows.extend((len(self._lines), -1, -1, len(self._texts), len(self._texts)))
        self._texts.finish()
        return {
            sections.TAILS: memoryview(self._rows).cast("B"),
            sections.TAIL_LINES: memoryview(self._lines).cast("B"),
            sections.TAIL_TEXTS: self._texts.all(),
        }

    def close(self) -> None:
        """Remove the temporary file."""
        self._texts.close()


class NameSets:
    """The sets of names of objects, which have more than the one name that is shown."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings
        self._numbers: dict[bytes, int] = {}
        self._ends = array("i")
        self._pairs = array("i")

    def number(self, names: Mapping[str, str]) -> int:
        """Return the number of a set of names, always the same for the same set; -1 if empty."""
        if not names:
            return -1
        string = self._strings.number
        pairs = array("i", [string(text) for pair in names.items() for text in pair])
        key = pairs.tobytes()
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._ends)
            self._pairs.extend(pairs)
            self._ends.append(len(self._pairs) // 2)
        return number

    def sections(self) -> dict[str, memoryview]:
        """Return the sections of the names. No names can be added afterwards."""
        self._numbers.clear()
        return {
            sections.NAME_ENDS: memoryview(self._ends).cast("B"),
            sections.NAMES: memoryview(self._pairs).cast("B"),
        }


class Objects:
    """The objects and their shapes."""

    def __init__(self, strings: Strings, directory: Path) -> None:
        self.strings = strings
        self.names = NameSets(strings)
        self._kinds: dict[tuple[str, str, str], int] = {}
        self._count = 0
        self._objects = Spool(directory / "objects")
        self._boxes = Spool(directory / "boxes")
        self._extras = array("i")
        self._shape_count = 0
        self._shapes = Spool(directory / "shapes")
        self._vertices = Spool(directory / "vertices")
        self._vertex_count = 0
        self._centred = array("i")  # shape, lon, lat
        self.interpolations = array("i")

    def __len__(self) -> int:
        return self._count

    def kind(self, category: str, type_: str, label: str) -> int:
        """Return the number of a combination of main tag and label."""
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
        """Add an object; return its number."""
        object_number = self._count
        self._count += 1
        key = osm_id * 4 + osm_type
        string = self.strings.number
        self._objects.append(
            _OBJECT.pack(
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
        self._boxes.append(_BOX.pack(*box))
        if extratags:
            self._extras.extend((object_number, self.names.number(extratags)))
        return object_number

    def add_point(self, number: int, tail: int, layers: int, point: tuple[int, int]) -> None:
        """Add a shape that is a point."""
        self._add_shape(number, tail, layers, np.empty((0, 2), dtype=np.int32), point + point)

    def add_line(self, number: int, tail: int, layers: int, line: Any) -> None:
        """Add shapes for the pieces of a line, which is in degrees."""
        for part in shapely.get_parts(line):
            points = _integers(part)
            for start in range(0, max(1, len(points) - 1), _PIECES_MAX):
                piece = points[start : start + _PIECES_MAX + 1]
                box = (*piece.min(axis=0).tolist(), *piece.max(axis=0).tolist())
                self._add_shape(number, tail, layers | sections.SHAPE_LINE, piece, box)

    def add_area(
        self, number: int, tail: int, layers: int, area: Any, centre: tuple[int, int]
    ) -> None:
        """Add a polygon, which is in degrees. It is found only near its centre."""
        rings: list[IntArray] = []
        for polygon in shapely.get_parts(area):
            for ring in (polygon.exterior, *polygon.interiors):
                if rings:
                    rings.append(np.full((1, 2), sections.RING_END, dtype=np.int32))
                rings.append(_integers(ring))
        points = np.concatenate(rings)
        box = np.rint(np.array(shapely.bounds(area)) * DEGREE).astype(np.int64)
        shape = self._add_shape(number, tail, layers | sections.SHAPE_AREA, points, box.tolist())
        self._centred.extend((shape, *centre))

    def _add_shape(
        self, number: int, tail: int, layers: int, points: IntArray, box: Sequence[int]
    ) -> int:
        shape = self._shape_count
        self._shape_count += 1
        self._shapes.append(_SHAPE.pack(number, tail, self._vertex_count, layers, *box))
        if len(points):
            self._vertices.append(np.ascontiguousarray(points, dtype="<i4").tobytes())
            self._vertex_count += len(points)
        return shape

    def finish(self) -> None:
        """End adding objects. The methods below work only afterwards."""
        end = np.zeros(len(sections.SHAPE_COLUMNS), dtype="<i4")
        end[0], end[2] = -1, self._vertex_count
        self._shapes.append(end.tobytes())
        for spool in (self._objects, self._boxes, self._shapes, self._vertices):
            spool.finish()

    def column(self, name: str) -> IntArray:
        """Return one column of the objects, which can be changed in place."""
        width = len(sections.OBJECT_COLUMNS)
        table = np.frombuffer(self._objects.all(), dtype="<i4").reshape(-1, width)
        column: IntArray = table[:, sections.OBJECT_COLUMNS.index(name)]
        return column

    def order(self) -> bytes:
        """Return the objects sorted by OSM number and type."""
        keys = self.column("osm_high").astype(np.int64) << 32
        keys |= self.column("osm_low").view(np.uint32)
        return np.argsort(keys, kind="stable").astype("<i4").tobytes()

    def first_shapes(self) -> IntArray:
        """Return the first shape of each object, -1 where it has none."""
        first = np.full(len(self), -1, dtype=np.int32)
        numbers = np.arange(self._shape_count, dtype=np.int32)
        # The last assignment wins, so assign in reverse order.
        first[self._shape_table()[::-1, 0]] = numbers[::-1]
        return first

    def _shape_table(self) -> IntArray:
        width = len(sections.SHAPE_COLUMNS)
        table: IntArray = np.frombuffer(self._shapes.all(), dtype="<i4").reshape(-1, width)
        return table[: self._shape_count]

    def sections(self) -> dict[str, bytes | memoryview]:
        """Return the sections of objects and shapes."""
        cells, entries = build_cells(
            self._shape_boxes(), np.arange(self._shape_count, dtype=np.int32), sections.CELL_SHIFT
        )
        kinds = [self.strings.number(text) for kind in self._kinds for text in kind]
        return {
            sections.OBJECTS: self._objects.all(),
            sections.BOXES: self._boxes.all(),
            sections.SHAPES: self._shapes.all(),
            sections.VERTICES: self._vertices.all(),
            sections.CELLS: cells,
            sections.ENTRIES: entries,
            sections.KINDS: np.array(kinds, dtype="<i4").tobytes(),
            sections.EXTRAS: memoryview(self._extras).cast("B"),
            sections.INTERPOLATIONS: memoryview(self.interpolations).cast("B"),
        }

    def _shape_boxes(self) -> NDArray[np.int64]:
        boxes = self._shape_table()[:, 4:].astype(np.int64)
        centred = np.frombuffer(self._centred, dtype=np.int32).reshape(-1, 3).astype(np.int64)
        # Clip the box of an outline to the reach around its centre. Longitude gets eight times as
        # much, because its degrees are shorter far north.
        reach = np.array([_REACH * 8, _REACH])
        shapes, middles = centred[:, 0], centred[:, 1:]
        boxes[shapes, :2] = np.maximum(boxes[shapes, :2], middles - reach)
        boxes[shapes, 2:] = np.minimum(boxes[shapes, 2:], middles + reach)
        return boxes

    def close(self) -> None:
        """Remove the temporary files."""
        for spool in (self._objects, self._boxes, self._shapes, self._vertices):
            spool.close()


def _integers(line: Any) -> IntArray:
    points: IntArray = np.rint(shapely.get_coordinates(line) * DEGREE).astype(np.int32)
    return points


def build_cells(boxes: NDArray[np.int64], values: IntArray, shift: int) -> tuple[bytes, bytes]:
    """Return a hash table of the cells that boxes touch, as (cells, entries)."""
    origin = np.array([1_800_000_000, 900_000_000], dtype=np.int64)
    first = ((boxes[:, :2] + origin) >> shift).astype(np.int32)
    last = ((boxes[:, 2:] + origin) >> shift).astype(np.int32)
    widths = last[:, 0] - first[:, 0] + 1
    counts = widths * (last[:, 1] - first[:, 1] + 1)
    owners = np.repeat(np.arange(len(boxes), dtype=np.int32), counts)
    steps = np.arange(len(owners), dtype=np.int32)
    steps -= np.repeat((np.cumsum(counts) - counts).astype(np.int32), counts)
    widths = widths[owners]
    keys = (first[owners, 1] + steps // widths).astype(np.int64) << 32
    keys |= first[owners, 0] + steps % widths
    del steps, widths
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    entries = values[owners[order]].astype("<i4").tobytes()
    del owners, order
    starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
    unique = keys[starts]
    ends = np.append(starts[1:], len(keys))
    del keys
    size = 16
    while size < 2 * len(unique):
        size *= 2
    table = np.zeros(size, dtype=[("key", "<i8"), ("first", "<i4"), ("end", "<i4")])
    table["key"] = _EMPTY_KEY
    slots = hash_slots(unique, size)
    pending = np.arange(len(unique))
    while len(pending):
        # Of several keys for one slot the first gets it, and the others try the next slot.
        free = table["key"][slots[pending]] == _EMPTY_KEY
        chosen, where = np.unique(slots[pending[free]], return_index=True)
        winners = pending[free][where]
        table["key"][chosen] = unique[winners]
        table["first"][chosen] = starts[winners]
        table["end"][chosen] = ends[winners]
        pending = np.setdiff1d(pending, winners, assume_unique=True)
        slots[pending] = (slots[pending] + 1) % size
    return table.tobytes(), entries


def hash_slots(keys: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the first slot to try for each key. The kernel computes the same."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(32)).astype(np.int64) % size


def group_by(owners: IntArray, members: IntArray, count: int) -> tuple[bytes, bytes]:
    """Return (ends, members) of the members grouped by owner."""
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners, minlength=count))
    return ends.astype("<i4").tobytes(), members[order].astype("<i4").tobytes()
