"""The places read from extracts: columns in memory, geometries and tags in temporary files.

A country has millions of places. The few numbers of each place that every step needs are in arrays.
The rest is written to disk once, and read through the page cache when it is needed.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import shapely
from numpy.typing import NDArray

from geoservice.importer.memory import give_back

NODE: Final = 0
WAY: Final = 1
RELATION: Final = 2
OSM_TYPES: Final = ("node", "way", "relation")

POINT: Final = 0
LINE: Final = 1
AREA: Final = 2

#: Coordinates are stored as integers; this many make one degree.
DEGREE: Final = 10_000_000

Integers = NDArray[np.int64]
Geometries = NDArray[Any]

_FLUSH_BYTES: Final = 256 * 1024


class Spool:
    """A temporary file of appended bytes, which are read back by offset and length."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w+b", buffering=_FLUSH_BYTES)
        self._size = 0
        self._view: memoryview | None = None
        self._map: mmap.mmap | None = None

    def __len__(self) -> int:
        return self._size

    def append(self, data: bytes | memoryview) -> int:
        """Append bytes; return their offset."""
        offset = self._size
        self._file.write(data)
        self._size += len(data)
        return offset

    def finish(self) -> None:
        """End writing; `read` works only afterwards."""
        self._file.flush()
        if self._size:
            self._map = mmap.mmap(self._file.fileno(), 0)
            self._view = memoryview(self._map)

    def read(self, offset: int, length: int) -> memoryview:
        """Return the bytes that were appended at an offset."""
        if self._view is None:
            return memoryview(bytearray())
        return self._view[offset : offset + length]

    def release(self) -> None:
        """Drop the pages that reading has mapped into the process."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def all(self) -> memoryview:
        """Return all that was appended; changes to it are written to the file."""
        return self.read(0, self._size)

    def close(self) -> None:
        """Remove the file. Memory that was read from it stays valid as long as it is referenced."""
        self._view = self._map = None
        self._file.close()
        self._path.unlink(missing_ok=True)


class RowTags(msgspec.Struct, array_like=True, gc=False):
    """The names and tags of one place."""

    names: dict[str, str]
    address: dict[str, str]
    extratags: dict[str, str]


_encode_tags = msgspec.msgpack.Encoder().encode
_decode_tags = msgspec.msgpack.Decoder(RowTags).decode


class Words:
    """Numbers for the few thousand different values of main tags."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.texts: list[str] = []

    def number(self, text: str) -> int:
        """Return the number of a text, always the same for the same text."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number


class Rows:
    """All places. Columns are arrays that grow until `finish`, and numpy arrays afterwards."""

    def __init__(self, directory: Path) -> None:
        self.words = Words()
        self._geometries = Spool(directory / "geometries")
        self._tags = Spool(directory / "tags")
        self._columns: dict[str, array[Any]] = {
            "osm_type": array("b"),
            "osm_id": array("q"),
            "category": array("i"),
            "type": array("i"),
            "admin_level": array("b"),
            "kind": array("b"),
            "lon": array("i"),
            "lat": array("i"),
            "geometry_at": array("q"),
            "geometry_length": array("i"),
            "tags_at": array("q"),
            "tags_length": array("i"),
        }
        self.osm_type: Integers
        self.osm_id: Integers
        self.category: Integers
        self.type: Integers
        self.admin_level: Integers
        self.kind: Integers
        self.lon: Integers
        self.lat: Integers
        self._geometry_at: Integers
        self._geometry_length: Integers
        self._tags_at: Integers
        self._tags_length: Integers

    def __len__(self) -> int:
        return len(self._columns["osm_id"]) if self._columns else len(self.osm_id)

    def append_geometry(self, wkb: bytes) -> tuple[int, int]:
        """Store a line or an area given as WKB; return its offset and length."""
        return self._geometries.append(wkb), len(wkb)

    def append(
        self,
        osm_type: int,
        osm_id: int,
        category: str,
        type_: str,
        admin_level: int,
        kind: int,
        point: tuple[int, int],
        geometry: tuple[int, int],
        tags: RowTags,
    ) -> int:
        """Add a place; return its row. `point` is (lon, lat) of a node, in 1e-7 degrees."""
        encoded = _encode_tags(tags)
        columns = self._columns
        for name, value in (
            ("osm_type", osm_type),
            ("osm_id", osm_id),
            ("category", self.words.number(category)),
            ("type", self.words.number(type_)),
            ("admin_level", admin_level),
            ("kind", kind),
            ("lon", point[0]),
            ("lat", point[1]),
            ("geometry_at", geometry[0]),
            ("geometry_length", geometry[1]),
            ("tags_at", self._tags.append(encoded)),
            ("tags_length", len(encoded)),
        ):
            columns[name].append(value)
        return len(columns["osm_id"]) - 1

    def finish(self) -> None:
        """End reading. Of an object that is in several extracts only the first copy is kept."""
        self._geometries.finish()
        self._tags.finish()
        columns, self._columns = self._columns, {}
        keys = [
            np.frombuffer(column, dtype=column.typecode)
            for column in (columns[name] for name in ("osm_type", "osm_id", "category", "type"))
        ]
        order = np.lexsort(keys[::-1])
        same = np.ones(len(order), dtype=bool)
        same[:1] = False
        for key in keys:
            same[1:] &= key[order[1:]] == key[order[:-1]]
        # Objects have the order of Nominatim's own import: nodes, ways, relations, each by id.
        kept = order[~same]
        del keys, order, same
        for name in tuple(columns):
            attribute = f"_{name}" if name.startswith(("geometry", "tags")) else name
            column = columns.pop(name)
            setattr(self, attribute, np.frombuffer(column, dtype=column.typecode)[kept])

    def tags(self, row: int) -> RowTags:
        """Return the names and tags of a place."""
        return _decode_tags(self._tags.read(int(self._tags_at[row]), int(self._tags_length[row])))

    def geometries(self, rows: Sequence[int] | Integers) -> Geometries:
        """Return geometries as shapely objects, in degrees."""
        rows = np.asarray(rows, dtype=np.int64)
        result = np.empty(len(rows), dtype=object)
        points = self.kind[rows] == POINT
        result[points] = shapely.points(
            self.lon[rows[points]] / DEGREE, self.lat[rows[points]] / DEGREE
        )
        others = np.flatnonzero(~points)
        if len(others):
            result[others] = shapely.from_wkb([self._wkb(row) for row in rows[others].tolist()])
        return result

    def _wkb(self, row: int) -> bytes:
        return bytes(
            self._geometries.read(int(self._geometry_at[row]), int(self._geometry_length[row]))
        )

    def where(self, category: str, type_: str | None = None) -> NDArray[np.bool_]:
        """Return a mask of the rows with a main tag."""
        found: NDArray[np.bool_] = self.category == self.words.number(category)
        if type_ is not None:
            found = found & (self.type == self.words.number(type_))
        return found

    def release(self) -> None:
        """Release the memory that reading has used."""
        self._geometries.release()
        self._tags.release()
        give_back()

    def close(self) -> None:
        """Remove the temporary files."""
        self._geometries.close()
        self._tags.close()


def batches(rows: Integers, size: int) -> Iterable[Integers]:
    """Cut rows into batches of at most `size`."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
