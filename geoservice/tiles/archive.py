"""Reading of a PMTiles archive (specification version 3) by tile numbers."""

from __future__ import annotations

import gzip
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import msgspec
from pmtiles.tile import (
    Compression,
    Entry,
    HeaderDict,
    MagicNumberNotFound,
    SpecVersionUnsupported,
    TileType,
    deserialize_directory,
    deserialize_header,
    find_tile,
    serialize_header,
    zxy_to_tileid,
)

from waylog.malformed import MALFORMED

_HEADER_BYTES: Final = 127
_DEPTH_MAX: Final = 4
#: Bytes of directories and metadata, packed; larger ones are taken for damage.
_PART_BYTES_MAX: Final = 16 * 1024 * 1024
#: Directories that are kept unpacked. One of tippecanoe has some thousand entries of 100 bytes.
_DIRECTORIES_KEPT: Final = 32
_ZOOM_MAX: Final = 24


def tiles_path(index: Path) -> Path:
    """Return where the tiles of an index are."""
    return index.with_name(f"{index.name}.pmtiles")


class ArchiveUnavailable(Exception):
    """A file is not an archive of vector tiles, or cannot be read; the message says why."""


class StoredTile(NamedTuple):
    """A tile as it is stored."""

    content: bytes
    is_gzip: bool


class Archive:
    """An open archive. Not thread-safe: one caller at a time."""

    def __init__(self, path: Path) -> None:
        """Open the file; raises ArchiveUnavailable."""
        self.path = path
        self._directories: OrderedDict[int, list[Entry]] = OrderedDict()
        try:
            # Read and not mapped: to read beyond the end of a mapped file that somebody has cut
            # would end the process.
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ArchiveUnavailable(f"{path}: {error.strerror}") from error
        try:
            status = os.fstat(self._file)
            #: Differs between two files, also of the same name.
            self.version = f"{status.st_mtime_ns:x}-{status.st_size:x}"
            self.header: HeaderDict = deserialize_header(os.pread(self._file, _HEADER_BYTES, 0))
            self._check(self.header)
            self.metadata = self._read_metadata()
        except (MagicNumberNotFound, UnicodeDecodeError):
            self._refuse("not a PMTiles archive")
        except SpecVersionUnsupported:
            self._refuse("not version 3 of PMTiles")
        except ArchiveUnavailable:
            self.close()
            raise
        except (*MALFORMED, IndexError, EOFError, OSError) as error:
            self._refuse(f"damaged: {error}")

    def _refuse(self, reason: str) -> NoReturn:
        self.close()
        raise ArchiveUnavailable(f"{self.path}: {reason}") from None

    def _check(self, header: HeaderDict) -> None:
        if header["tile_type"] is not TileType.MVT:
            raise ArchiveUnavailable(f"{self.path}: its tiles are not vector tiles (MVT)")
        if header["internal_compression"] is not Compression.GZIP or header[
            "tile_compression"
        ] not in (Compression.GZIP, Compression.NONE):
            raise ArchiveUnavailable(
                f"{self.path}: packed with another method than gzip, which alone is read"
            )
        if not header["min_zoom"] <= header["max_zoom"] <= _ZOOM_MAX:
            raise ArchiveUnavailable(f"{self.path}: its zoom levels are out of range")

    def tile(self, z: int, x: int, y: int) -> StoredTile | None:
        """Return a tile, or None. Raises ArchiveUnavailable where the archive is damaged."""
        header = self.header
        if not header["min_zoom"] <= z <= header["max_zoom"]:
            return None
        if not (0 <= x < 1 << z and 0 <= y < 1 << z):
            return None
        tile_id = zxy_to_tileid(z, x, y)
        offset, length = header["root_offset"], header["root_length"]
        try:
            for _ in range(_DEPTH_MAX):
                entry = find_tile(self._directory(offset, length), tile_id)
                if entry is None:
                    return None
                if entry.run_length:
                    start = header["tile_data_offset"] + entry.offset
                    is_gzip = header["tile_compression"] is Compression.GZIP
                    return StoredTile(self._part(start, entry.length), is_gzip)
                offset, length = header["leaf_directory_offset"] + entry.offset, entry.length
        except (*MALFORMED, IndexError, EOFError, OSError) as error:
            raise ArchiveUnavailable(f"{self.path}: damaged: {error}") from error
        raise ArchiveUnavailable(f"{self.path}: damaged: its directories are too deep")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _directory(self, offset: int, length: int) -> list[Entry]:
        kept = self._directories.get(offset)
        if kept is not None:
            self._directories.move_to_end(offset)
            return kept
        directory = deserialize_directory(self._part(offset, length))
        self._directories[offset] = directory
        if len(self._directories) > _DIRECTORIES_KEPT:
            self._directories.popitem(last=False)
        return directory

    def _read_metadata(self) -> dict[str, Any]:
        part = self._part(self.header["metadata_offset"], self.header["metadata_length"])
        return msgspec.json.decode(gzip.decompress(part), type=dict[str, Any])

    def _part(self, offset: int, length: int) -> bytes:
        if length > _PART_BYTES_MAX:
            raise ValueError(f"a part of {length} bytes")
        part = os.pread(self._file, length, offset)
        if len(part) < length:
            raise ValueError(f"{length} bytes at {offset} are beyond its end")
        return part


def replace_metadata(path: Path, metadata: dict[str, Any]) -> None:
    """Append other metadata to an archive and point its header there.

    The specification allows any order of the parts behind the header and the root directory.
    """
    packed = gzip.compress(msgspec.json.encode(metadata, order="sorted"), mtime=0)
    with path.open("r+b") as file:
        header = deserialize_header(file.read(_HEADER_BYTES))
        header["metadata_offset"] = file.seek(0, os.SEEK_END)
        header["metadata_length"] = len(packed)
        file.write(packed)
        file.seek(0)
        file.write(serialize_header(header))
