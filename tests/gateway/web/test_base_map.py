"""The base map as set-up builds it: land is land and sea is sea, also in the difficult places."""

from __future__ import annotations

import base64
import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from gateway.web import base_map
from gateway.web.base_map import LAND_ZOOM_MAX, PACK_ZOOM_MAX, TOWN_ZOOM_MAX, TileId, mercator
from tests.tile_reader import read_tile

WORLD = base_map.FOLDER / "world"
FILE_BYTES_MAX = 1_000_000

pytestmark = pytest.mark.usefixtures("page_files")


def unit(lat: float, lon: float) -> tuple[float, float]:
    """Return a position in Mercator units."""
    x, y = mercator(np.array([[lon, lat]], dtype=np.float64))[0]
    return float(x), float(y)


@cache
def layers(kind: str, z: int, x: int, y: int) -> dict[str, dict[str, Any]]:
    path = WORLD / kind / str(z) / str(x) / f"{y}.mvt"
    return read_tile(path.read_bytes()) if path.is_file() else {}


def is_land(z: int, lat: float, lon: float, name: str = "land") -> bool:
    """Tell whether a tile has an area at a position, by the non-zero rule of its rings."""
    x, y = unit(lat, lon)
    column = min(2**z - 1, int(x * 2**z))
    row = min(2**z - 1, int(y * 2**z))
    found = layers("land", z, column, row).get(name)
    if found is None:
        return False
    extent = found["extent"]
    point = shapely.Point((x * 2**z - column) * extent, (y * 2**z - row) * extent)
    inside = 0
    for feature in found["features"]:
        for ring, area in zip(feature["parts"], feature["areas"], strict=True):
            if len(ring) > 2 and shapely.make_valid(shapely.Polygon(ring)).contains(point):
                inside += 1 if area > 0 else -1
    return inside > 0


@pytest.mark.parametrize("z", range(LAND_ZOOM_MAX + 1))
@pytest.mark.parametrize(
    ("place", "lat", "lon"),
    [
        ("Bavaria", 48.6, 11.6),
        ("Brazil", -10.0, -52.0),
        ("west of the antimeridian, in Chukotka", 67.5, 178.5),
        ("east of the antimeridian, in Chukotka", 66.2, -172.0),
        ("Antarctica, near the pole", -84.5, 100.0),
        ("Antarctica, at the antimeridian", -84.9, 179.9),
        ("Lesotho, which is a hole in another country", -29.5, 28.2),
    ],
)
def test_land_is_land(z: int, place: str, lat: float, lon: float) -> None:
    assert is_land(z, lat, lon), place


@pytest.mark.parametrize("z", range(LAND_ZOOM_MAX + 1))
@pytest.mark.parametrize(
    ("place", "lat", "lon"),
    [
        ("the Norwegian Sea", 66.0, 0.0),
        ("the Arctic Ocean", 84.9, 10.0),
        ("the Pacific at the antimeridian", 0.0, 179.99),
        ("the Pacific at the other side of it", 0.0, -179.99),
        ("the Southern Ocean", -58.0, -120.0),
        ("the Caspian Sea, a hole", 41.5, 50.8),
        ("the Atlantic at latitude 0", 0.0, -25.0),
    ],
)
def test_sea_is_sea(z: int, place: str, lat: float, lon: float) -> None:
    assert not is_land(z, lat, lon), place


def test_lakes_and_rivers_are_where_they_are() -> None:
    for lat, lon in ((47.6, 9.4), (45.0, -82.5), (-1.0, 33.0)):  # Constance, Huron, Victoria
        assert is_land(5, lat, lon, "lake")
        assert not is_land(5, lat, lon, "lake_island")
    assert is_land(5, 45.75, -82.2, "lake_island")  # Manitoulin
    assert not is_land(5, 48.6, 11.6, "lake")
    rivers = layers("land", 4, 8, 5)["river"]["features"]  # the Rhine and the Danube are in it
    assert sum(len(feature["parts"]) for feature in rivers) > 5


@pytest.mark.long
def test_the_land_of_the_world_is_valid_and_as_large_as_it_should_be() -> None:
    world = base_map.read_world()
    assert shapely.is_valid(world.land).all()
    bounds = shapely.total_bounds(world.land)
    assert bounds.min() >= -1e-9
    assert bounds.max() <= 1 + 1e-9
    # Equal-area check: sin(latitude) against longitude. Land is 29.2 % of the Earth; the source
    # leaves out the Caspian Sea, but includes the lakes.
    equal_area = shapely.transform(
        world.land,
        lambda xy: np.column_stack((xy[:, 0], np.tanh((0.5 - xy[:, 1]) * 2 * np.pi) / 2)),
    )
    assert shapely.area(equal_area).sum() == pytest.approx(0.289, abs=0.006)


def test_no_border_or_coast_runs_along_the_antimeridian() -> None:
    for layer in ("coast", "border"):
        for row in range(2**3):
            for column, edge in ((0, 0.0), (7, 1.0)):
                found = layers("land", 3, column, row).get(layer)
                if found is None:
                    continue
                along = [
                    abs(y2 - y1)
                    for feature in found["features"]
                    for part in feature["parts"]
                    for (x1, y1), (x2, y2) in itertools.pairwise(part)
                    if x1 == x2 == round(edge * found["extent"])
                ]
                assert sum(along) <= 40, (layer, row, column)


def test_countries_keep_their_borders_and_names() -> None:
    found = layers("land", 4, 8, 5)  # the Alps are in it
    assert sum(len(feature["parts"]) for feature in found["border"]["features"]) > 5
    names = {feature["members"]["name"] for feature in found["country"]["features"]}
    assert {"Germany", "Austria", "Switzerland"} <= names


def test_a_town_is_in_every_tile_from_its_zoom_level_on() -> None:
    x, y = unit(48.20849, 16.37208)  # Vienna
    seen = []
    for z in range(TOWN_ZOOM_MAX + 1):
        found = layers("towns", z, int(x * 2**z), int(y * 2**z)).get("town", {"features": []})
        seen.append(any(each["members"]["name"] == "Vienna" for each in found["features"]))
    assert seen[4:] == [True] * (TOWN_ZOOM_MAX - 3)
    assert seen == sorted(seen)
    vienna = next(
        each
        for each in layers("towns", 6, int(x * 64), int(y * 64))["town"]["features"]
        if each["members"]["name"] == "Vienna"
    )
    ((px, py),) = vienna["parts"][0]
    assert px == pytest.approx((x * 64 % 1) * 4096, abs=1)
    assert py == pytest.approx((y * 64 % 1) * 4096, abs=1)


def test_a_pack_holds_the_tiles_below_it() -> None:
    x, y = unit(47.14151, 9.52154)  # Vaduz
    names = []
    for z in range(TOWN_ZOOM_MAX + 1, PACK_ZOOM_MAX + 1):
        tile = TileId(z, int(x * 2**z), int(y * 2**z))
        column, row, place = base_map.pack_position(tile)
        content = (WORLD / "towns" / "pack" / str(column) / f"{row}.pbf").read_bytes()
        offsets = np.frombuffer(content, dtype="<u4", count=85)
        assert offsets[0] == 4 * 85
        assert offsets[-1] == len(content)
        found = read_tile(content[offsets[place] : offsets[place + 1]])["town"]
        names.append({each["members"]["name"] for each in found["features"]})
    assert all("Vaduz" in each for each in names)
    assert names[0] < names[0] | names[-1]
    assert 10 < len(names[-1]) < 600


def test_no_file_is_larger_than_a_megabyte() -> None:
    assert max(path.stat().st_size for path in WORLD.rglob("*") if path.is_file()) < FILE_BYTES_MAX


def test_the_index_names_exactly_the_tiles_that_exist() -> None:
    index = json.loads((WORLD / "index.json").read_text())
    named = set()
    for kind, levels in index["sets"].items():
        for z, text in enumerate(levels):
            zoom, name = (
                (6, "towns/pack/{x}/{y}.pbf")
                if kind == "town_packs"
                else (z, kind + "/{z}/{x}/{y}.mvt")
            )
            bits = np.unpackbits(
                np.frombuffer(base64.b64decode(text), dtype=np.uint8), bitorder="little"
            )
            for position in np.flatnonzero(bits).tolist():
                y, x = divmod(position, 2**zoom)
                named.add(name.format(z=zoom, x=x, y=y))
    assert named == {path.relative_to(WORLD).as_posix() for path in WORLD.glob("*/**/*.*")}


def test_every_outer_ring_has_an_area_and_comes_first() -> None:
    for x in range(8):
        for y in range(8):
            found = layers("land", 3, x, y).get("land")
            if found is None:
                continue
            for feature in found["features"]:
                assert feature["areas"][0] > 0
                assert all(feature["areas"])


def test_nothing_is_built_when_everything_is_there() -> None:
    said: list[str] = []
    before = (WORLD / "index.json").stat().st_mtime_ns
    base_map.build(WORLD, said.append)
    assert (WORLD / "index.json").stat().st_mtime_ns == before
    assert said == ["base map: in place"]


def test_a_tile_of_a_shape_is_cut_to_it_with_a_margin(tmp_path: Path) -> None:
    square = shapely.box(0.1, 0.1, 0.9, 0.9)
    found = dict(base_map.tiles(np.array([square], dtype=object), 1))
    assert set(found) == {TileId(1, x, y) for x in (0, 1) for y in (0, 1)}
    margin = 64 / 4096 / 2
    assert shapely.total_bounds(found[TileId(1, 0, 0)]).tolist() == pytest.approx(
        [0.1, 0.1, 0.5 + margin, 0.5 + margin]
    )
