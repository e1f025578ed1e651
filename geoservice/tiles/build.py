"""Tiles of extracts in one archive, as made by `waylog geo import` beside the index."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import shapely

from geoservice.importer.build import work_directory
from geoservice.importer.reading import Report
from geoservice.tiles.archive import Archive, replace_metadata
from geoservice.tiles.land import sea
from geoservice.tiles.reading import Read, write_features
from geoservice.tiles.tiling import TilingFailed, tippecanoe

ATTRIBUTION: Final = "© OpenStreetMap contributors (ODbL)"
#: The first level on which the world's simplified coast would be seen to be wrong.
_LAND_ZOOM: Final = 9
_READ_PART: Final = 0.7
#: Degrees: the outline tells the page where the world's own labels give way.
_OUTLINE_TOLERANCE: Final = 0.005


@dataclass(frozen=True)
class BuiltTiles:
    """The outcome of a build."""

    path: Path
    features: int
    tiles: int
    size_bytes: int


def build_tiles(
    paths: Sequence[Path], output: Path, report: Report = lambda _text, _part: None
) -> BuiltTiles:
    """Make tiles of one or many extracts and replace `output` by them atomically.

    Raises SourceError for an extract that cannot be read, TilingFailed, and ImportFailed if another
    import to the same file is running.
    """
    with work_directory(output) as directory:
        made = directory / "made.pmtiles"
        with tippecanoe(directory, made) as out:
            read = write_features(
                list(paths), directory, out, lambda text, part: report(text, part * _READ_PART)
            )
            if not read.features:
                raise TilingFailed(
                    f"{', '.join(map(str, paths))}: nothing to draw; --no-tiles leaves tiles out"
                )
            _write_ground(out, read)
            report("cutting tiles", _READ_PART)
        _describe(made, read)
        archive = Archive(made)
        tiles = archive.header["addressed_tiles_count"]
        archive.close()
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(output)
    return BuiltTiles(output, read.features, tiles, output.stat().st_size)


def _write_ground(out: IO[bytes], read: Read) -> None:
    """Write the areas of land and sea: layer `ocean` of Shortbread, `extract` of our own."""
    # One tile more covers the world's coast and borders, which may be some hundred metres off.
    outline = read.land.outline(margin=1)
    water = sea(outline, read.coastlines)
    for layer, area in (("extract", outline), ("ocean", water)):
        if not area.is_empty:
            out.write(
                b'{"type":"Feature","tippecanoe":{"layer":"%b","minzoom":%d},"properties":{},'
                b'"geometry":%b}\n'
                % (layer.encode(), _LAND_ZOOM, shapely.to_geojson(area).encode())
            )


def _describe(path: Path, read: Read) -> None:
    """Replace tippecanoe's metadata, which have its command line, by what a page needs."""
    archive = Archive(path)
    layers = archive.metadata.get("vector_layers", [])
    archive.close()
    simplified = shapely.simplify(read.land.outline(), _OUTLINE_TOLERANCE)
    metadata: dict[str, Any] = {
        "name": "OpenStreetMap",
        "attribution": ATTRIBUTION,
        "type": "baselayer",
        "vector_layers": layers,
        "outline": msgspec.json.decode(shapely.to_geojson(simplified)),
    }
    if read.data_time:
        metadata["data_time"] = read.data_time
    replace_metadata(path, metadata)
