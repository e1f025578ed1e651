"""The file format of a geocoding index: a header, a table of sections, the sections.

Everything is little-endian, so that a memory-mapped file can be used in place on every machine we
run on. A reader ignores sections that it does not know. A street index has sections of its own
instead of those of the world.

    offset  bytes
    0       8      magic "WAYLOGEO"
    8       4      byte order mark 0x01020304
    12      2      format version
    14      2      number of sections n
    16      8      size of the file
    24      16     content hash: BLAKE2b of the section table
    40      4      CRC-32C of header (with this field 0) and section table
    44      4      0
    48      40 n   section table: name (16 bytes, ASCII), offset (8), length (8), CRC-32C (4), 0 (4)
                   the sections, each at a multiple of 64
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import google_crc32c

MAGIC: Final = b"WAYLOGEO"
FORMAT_VERSION: Final = 1
SECTIONS_MAX: Final = 256

# Sections of the world: countries and towns.
META: Final = "meta"  # JSON: sources, attribution, counts
CELLS: Final = "cells"  # int32: quadtree over the earth, see index.pyx
LEAVES: Final = "leaves"  # int32: first piece of each leaf, then the number of pieces
PIECES: Final = "pieces"  # int32 pairs: country, first vertex; the last pair is the end
VERTICES: Final = "vertices"  # int32 pairs: longitude, latitude, in 1e-7 degrees
COUNTRIES: Final = "countries"  # int32 x 4: code, name (strings), first town, end of towns
TREE: Final = "tree"  # int32 x 3: unit vector of each town, in 2**-30, in k-d tree order
TREE_AXES: Final = "tree axes"  # uint8: the axis at which the tree splits at each town
TOWNS: Final = "towns"  # int32 x 8, see TOWN_COLUMNS
STRAY_ENDS: Final = "stray ends"  # int32: 0, then the end of each country's strays and of the sea's
STRAY_TREE: Final = "stray tree"  # like TREE, of the strays: towns that the borders misplace
STRAY_AXES: Final = "stray axes"
STRAYS: Final = "strays"  # int32: the town number of each stray
STRING_ENDS: Final = "string ends"  # int32: end of each string in the pool
STRINGS: Final = "strings"  # UTF-8

#: Columns of section `towns`. Strings are indexes into the string pool; `part_of` is a town or -1.
TOWN_COLUMNS: Final = (
    "lat",
    "lon",
    "geoname_id",
    "population",
    "name",
    "state",
    "timezone",
    "part_of",
)

_HEADER: Final = struct.Struct("<8sIHHQ16sII")
_ENTRY: Final = struct.Struct("<16sQQII")
_BYTE_ORDER: Final = 0x01020304
_ALIGNMENT: Final = 64
_CHUNK_BYTES: Final = 256 * 1024


class IndexFormatError(ValueError):
    """A file is not a geocoding index, is damaged, or was written by another version."""


@dataclass(frozen=True)
class Section:
    """The position and checksum of one section in the file."""

    offset: int
    length: int
    crc32c: int


@dataclass(frozen=True)
class Header:
    """The parsed header and section table of a file."""

    content_hash: str
    sections: Mapping[str, Section]


def write_index(path: Path, sections: Mapping[str, bytes]) -> str:
    """Write an index, replace `path` atomically, and return the content hash.

    Processes that have mapped the old file keep it.
    """
    offset = _align(_HEADER.size + _ENTRY.size * len(sections))
    table = bytearray()
    for name, data in sections.items():
        table += _ENTRY.pack(name.encode("ascii"), offset, len(data), _crc(data), 0)
        offset = _align(offset + len(data))
    content_hash = hashlib.blake2b(table, digest_size=16).digest()
    fields = [MAGIC, _BYTE_ORDER, FORMAT_VERSION, len(sections), offset, content_hash]
    header = _HEADER.pack(*fields, _crc(_HEADER.pack(*fields, 0, 0) + table), 0)

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("wb") as file:
            file.write(header + table)
            for data in sections.values():
                file.write(bytes(_align(file.tell()) - file.tell()))
                file.write(data)
            file.write(bytes(_align(file.tell()) - file.tell()))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return content_hash.hex()


def read_header(data: memoryview) -> Header:
    """Parse and check the header and the section table; raises IndexFormatError."""
    if len(data) < _HEADER.size or bytes(data[:8]) != MAGIC:
        raise IndexFormatError("not a geocoding index")
    fields = _HEADER.unpack(data[: _HEADER.size])
    _, byte_order, version, count, size, content_hash, crc32c, _ = fields
    if byte_order != _BYTE_ORDER or version != FORMAT_VERSION:
        raise IndexFormatError(
            f"written in format {version}, this program reads format {FORMAT_VERSION}; "
            "build the index again"
        )
    table = data[_HEADER.size : _HEADER.size + _ENTRY.size * count]
    if size != len(data) or count > SECTIONS_MAX or len(table) != _ENTRY.size * count:
        raise IndexFormatError(f"damaged: {len(data)} bytes long, should have {size}")
    if _crc(_HEADER.pack(*fields[:6], 0, 0) + bytes(table)) != crc32c:
        raise IndexFormatError("damaged: the checksum of the header does not match")
    sections: dict[str, Section] = {}
    for name, offset, length, section_crc32c, _ in _ENTRY.iter_unpack(table):
        text = name.rstrip(b"\0").decode("ascii", "replace")
        if offset % _ALIGNMENT or offset + length > size:
            raise IndexFormatError(f"damaged: section {text!r} is outside of the file")
        sections[text] = Section(offset, length, section_crc32c)
    return Header(content_hash.hex(), sections)


def read_section(data: memoryview, header: Header, name: str) -> memoryview:
    """Return one section after verifying its checksum; raises IndexFormatError."""
    try:
        section = header.sections[name]
    except KeyError:
        raise IndexFormatError(f"section {name!r} is missing; build the index again") from None
    content = data[section.offset : section.offset + section.length]
    if _crc(content) != section.crc32c:
        raise IndexFormatError(f"damaged: the checksum of section {name!r} does not match")
    return content


def _align(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _crc(data: bytes | bytearray | memoryview) -> int:
    # The library accepts only `bytes`. Copying small pieces costs less than one large copy.
    crc32c = 0
    with memoryview(data) as view:
        for start in range(0, len(view), _CHUNK_BYTES):
            crc32c = google_crc32c.extend(crc32c, bytes(view[start : start + _CHUNK_BYTES]))
    return crc32c
