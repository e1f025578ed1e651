"""The reader of archives: what is not one, or is damaged, is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from pmtiles.tile import Compression, TileType, deserialize_header, serialize_header

from geoservice.tiles.archive import Archive, ArchiveUnavailable


def changed(source: Path, target: Path, **members: object) -> Path:
    """Return a copy with other members of the header."""
    content = source.read_bytes()
    header = deserialize_header(content[:127]) | members
    target.write_bytes(serialize_header(header) + content[127:])  # type: ignore[arg-type]
    return target


def test_what_is_no_archive_of_vector_tiles_is_refused(harbour_tiles: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.pmtiles"
    with pytest.raises(ArchiveUnavailable, match=r"a\.pmtiles: No such file"):
        Archive(path)
    for content, reason in (
        (b"", "damaged|not a PMTiles"),
        (b"no archive at all" * 100, "not a PMTiles archive"),
        (b"\xff" * 200, "not a PMTiles archive"),
        (b"PMTiles\x02" + b"\0" * 200, "not version 3"),
        (harbour_tiles.read_bytes()[:100], "damaged"),
        (harbour_tiles.read_bytes()[:5000], "damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(ArchiveUnavailable, match=reason):
            Archive(path)
    for members, reason in (
        ({"tile_type": TileType.PNG}, "not vector tiles"),
        ({"tile_compression": Compression.ZSTD}, "gzip"),
        ({"min_zoom": 9, "max_zoom": 3}, "zoom"),
        ({"metadata_length": 1 << 40}, "damaged"),
    ):
        with pytest.raises(ArchiveUnavailable, match=reason):
            Archive(changed(harbour_tiles, path, **members))


def test_damage_inside_is_found_where_it_is_read(harbour_tiles: Path, tmp_path: Path) -> None:
    whole = Archive(harbour_tiles)
    z, x, y = 6, 33, 23
    assert whole.tile(z, x, y) is not None
    header = whole.header
    for members in (
        {"tile_data_offset": 1 << 40},
        {"root_offset": header["metadata_offset"]},
        {"root_length": 3},
    ):
        archive = Archive(changed(harbour_tiles, tmp_path / "a.pmtiles", **members))
        with pytest.raises(ArchiveUnavailable, match="damaged"):
            archive.tile(z, x, y)
        archive.close()
    whole.close()


def test_numbers_outside_of_the_map_have_no_tile(harbour_tiles: Path) -> None:
    archive = Archive(harbour_tiles)
    for z, x, y in ((6, 64, 23), (6, 33, 64), (6, -1, 23), (31, 0, 0), (99, 0, 0), (14, 0, 0)):
        assert archive.tile(z, x, y) is None
    archive.close()
