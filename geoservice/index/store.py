"""An opened index file: memory-mapped, verified, and shared by all processes that open it."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from geoservice.index import format as file_format
from geoservice.index import street_format
from geoservice.index.format import IndexFormatError
from geoservice.index.index import WorldIndex
from geoservice.index.street_check import check_streets
from geoservice.index.streets import StreetIndex
from waylog.malformed import MALFORMED

#: The world index built at set-up, which is used where no other index is named.
WORLD_PATH: Final = Path(__file__).parents[1] / "world" / "world.bin"


_Part = TypeVar("_Part")


class IndexUnavailable(Exception):
    """There is no usable index at a path. The message says why, and what to do."""


def check_header(path: Path) -> None:
    """Check the header without reading the whole file; raises IndexUnavailable."""
    try:
        file_format.read_header(memoryview(_mapped(path)))
    except IndexFormatError as error:
        raise IndexUnavailable(f"{path}: {error}") from error


def _mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise IndexUnavailable(
            f"{path}: there is no such index; `waylog geo world` builds the one of the world"
        ) from None
    except (OSError, ValueError) as error:
        raise IndexUnavailable(f"{path}: cannot be mapped: {error}") from error


class IndexFile:
    """The sections of one index file.

    The memory map lives as long as this object or any view taken from it. When the file is replaced
    on disk, processes that have it open keep the old one.
    """

    def __init__(self, path: Path) -> None:
        """Map and verify the file; raises IndexUnavailable."""
        self.path = path
        self._map = _mapped(path)
        self._data = memoryview(self._map)
        try:
            self._header = file_format.read_header(self._data)
            # Verify all sections once, so that damage shows at start-up and not at the first
            # search.
            self._sections = {
                name: file_format.read_section(self._data, self._header, name)
                for name in self._header.sections
            }
            self.meta = msgspec.json.decode(self.section(file_format.META), type=dict[str, Any])
            self._string_ends = self._integers(file_format.STRING_ENDS)
            self._strings = self.section(file_format.STRINGS)
            self._countries: memoryview | None = None
            self._towns: memoryview | None = None
            self._world: WorldIndex | None = None
            self.streets: StreetIndex | None = None
            if file_format.TOWNS in self._header.sections:
                self._countries = self._integers(file_format.COUNTRIES)
                self._towns = self._integers(file_format.TOWNS)
                self._world = self._open_world()
            elif street_format.OBJECTS in self._header.sections:
                self.streets = self._open_streets()
            else:
                raise IndexFormatError("neither a world nor streets; build the index again")
            # Verification has read every page. Drop the pages: the process maps only those again
            # that its lookups touch, and the others stay in the system's page cache.
            self._map.madvise(mmap.MADV_DONTNEED)
        except (*MALFORMED, IndexFormatError) as error:
            raise IndexUnavailable(f"{path}: {error}") from error

    @property
    def world(self) -> WorldIndex:
        """The lookup kernel of towns and borders; raises IndexUnavailable if the index has none."""
        return self._of_world(self._world)

    @property
    def towns(self) -> memoryview:
        """Section `towns`; raises IndexUnavailable if the index has none."""
        return self._of_world(self._towns)

    @property
    def countries(self) -> memoryview:
        """Section `countries`; raises IndexUnavailable if the index has none."""
        return self._of_world(self._countries)

    def _of_world(self, part: _Part | None) -> _Part:
        if part is None:
            raise IndexUnavailable(f"{self.path}: holds streets, not the towns of the world")
        return part

    @property
    def version(self) -> str:
        """Twelve hexadecimal digits of the content hash, which identify the whole content."""
        return self._header.content_hash[:12]

    @property
    def size_bytes(self) -> int:
        """The length of the file, in bytes."""
        return len(self._data)

    @property
    def section_bytes(self) -> dict[str, int]:
        """The length of each section, in bytes."""
        return {name: section.length for name, section in self._header.sections.items()}

    def section(self, name: str) -> memoryview:
        """Return the verified bytes of one section; raises IndexFormatError if it is missing."""
        section = self._sections.get(name)
        if section is None:
            raise IndexFormatError(f"section {name!r} is missing; build the index again")
        return section

    def string(self, number: int) -> str:
        """Return a string of the pool."""
        start = self._string_ends[number - 1] if number else 0
        # The pool is too large to be decoded at open, so invalid UTF-8 is replaced here.
        return str(self._strings[start : self._string_ends[number]], "utf-8", "replace")

    def _integers(self, name: str) -> memoryview:
        section = self.section(name)
        if len(section) % 4:
            raise IndexFormatError(f"damaged: section {name!r} ends within a number")
        return section.cast("i")

    def integers(self, name: str) -> memoryview:
        """Return one verified section as int32; raises IndexFormatError."""
        return self._integers(name)

    def _open_world(self) -> WorldIndex:
        try:
            return WorldIndex(
                self._integers(file_format.CELLS),
                self._integers(file_format.LEAVES),
                self._integers(file_format.PIECES),
                self._integers(file_format.VERTICES),
                self.countries,
                self._integers(file_format.TREE),
                self.section(file_format.TREE_AXES),
                self.towns,
                self._integers(file_format.STRAY_ENDS),
                self._integers(file_format.STRAY_TREE),
                self.section(file_format.STRAY_AXES),
                self._integers(file_format.STRAYS),
                self._string_ends,
                len(self._strings),
            )
        except ValueError as error:
            raise IndexFormatError(f"damaged: {error}") from error

    def _open_streets(self) -> StreetIndex:
        sections = {name: self.section(name) for name in street_format.SECTIONS}
        try:
            check_streets(sections)
            return StreetIndex(sections)
        except ValueError as error:
            raise IndexFormatError(f"damaged: {error}") from error
