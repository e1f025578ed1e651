"""The places read from extracts: columns in memory, geometries and tags in temporary files.

A country has millions of places. What every step needs of each is a few numbers in arrays; the
rest is written to disk once and read where it is needed, through the page cache.
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

#: Members of section and spool are in these units.
DEGREE: Final = 10_000_000

Integers = NDArray[np.int64]
Geometries = NDArray[Any]

_FLUSH_BYTES: Final = 256 * 1024


class Spool:
    """Bytes appended to a temporary file, read back by offset and length."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w+b", buffering=_FLUSH_BYTES)
        self._size = 0
        self._view: memoryview | None = None
        self._map: mmap.mmap | None = None

    def __len__(self) -> int:
        return self._size

    def append(self, data: bytes | memoryview) -> int:
        """Write; returns the offset."""
        offset = self._size
        self._file.write(data)
        self._size += len(data)
        return offset

    def finish(self) -> None:
        """Writing is over; from now on `read` works."""
        self._file.flush()
        if self._size:
            self._map = mmap.mmap(self._file.fileno(), 0)
            self._view = memoryview(self._map)

    def read(self, offset: int, length: int) -> memoryview:
        """What was appended at an offset."""
        if self._view is None:
            return memoryview(bytearray())
        return self._view[offset : offset + length]

    def release(self) -> None:
        """Give the pages back that reading has brought in."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def all(self) -> memoryview:
        """All that was appended; what is changed there is changed in the file."""
        return self.read(0, self._size)

    def close(self) -> None:
        """Remove the file. What has been read of it stays until nobody uses it any more."""
        self._view = self._map = None
        self._file.close()
        self._path.unlink(missing_ok=True)


class RowTags(msgspec.Struct, array_like=True, gc=False):
    """The texts of one place."""

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
        """The number of a text, the same each time."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return number


class Rows:
    """All places. Columns are lists of numbers until `finish`, numpy arrays afterwards."""

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
        """Keep a line or an area, in WKB."""
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
        """Add a place; returns its row. `point` is (lon, lat) of a node, in 1e-7 degrees."""
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
        """Reading is over. Of an object that several extracts hold the first copy stays."""
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
        # Objects stand in the order of Nominatim's own import: nodes, ways, relations, by number.
        kept = order[~same]
        del keys, order, same
        for name in tuple(columns):
            attribute = f"_{name}" if name.startswith(("geometry", "tags")) else name
            column = columns.pop(name)
            setattr(self, attribute, np.frombuffer(column, dtype=column.typecode)[kept])

    def tags(self, row: int) -> RowTags:
        """The texts of a place."""
        return _decode_tags(self._tags.read(int(self._tags_at[row]), int(self._tags_length[row])))

    def geometries(self, rows: Sequence[int] | Integers) -> Geometries:
        """Geometries in degrees, as shapely objects."""
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
        """Which rows have a main tag."""
        found: NDArray[np.bool_] = self.category == self.words.number(category)
        if type_ is not None:
            found = found & (self.type == self.words.number(type_))
        return found

    def release(self) -> None:
        """Give memory back that reading has brought in."""
        self._geometries.release()
        self._tags.release()
        give_back()

    def close(self) -> None:
        """Remove the temporary files."""
        self._geometries.close()
        self._tags.close()


def batches(rows: Integers, size: int) -> Iterable[Integers]:
    """Cut into pieces that are worked on at once."""
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
