"""The reading of extracts for tiles: every object that is drawn, as a line of GeoJSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import osmium
import shapely

from geoservice.importer.reading import Report, SourceError, node_storage, read_header
from geoservice.tiles import areas, points, streets
from geoservice.tiles.features import ZOOM_MAX, Attributes, Drawn
from geoservice.tiles.land import LandCells

_BATCH: Final = 5000
_REPORT_EVERY: Final = 20_000
#: Of an area, these keys may be drawn.
_AREA_KEYS: Final = (
    *("aeroway", "amenity", "building", "highway", "historic", "landuse", "leisure", "man_made"),
    *("military", "natural", "railway", "shop", "tourism", "waterway", "wetland"),
    *("addr:housenumber", "addr:housename"),
)
#: Levels of borders of countries and of their states.
_ADMIN_LEVELS: Final = {"2": 2, "4": 4}
_BORDER_ZOOM: Final = {2: 6, 4: 7}
#: Layers whose objects stand on land, so that what is under them is not drawn as sea.
_ON_LAND: Final = frozenset(("streets", "land", "buildings", "addresses", "sites"))
_TILE_PIXELS: Final = 512
_encode = msgspec.json.Encoder().encode

Geometries = npt.NDArray[np.object_]


@dataclass
class Read:
    """What was found beside the features."""

    features: int = 0
    land: LandCells = field(default_factory=LandCells)
    coastlines: list[Any] = field(default_factory=list)
    data_time: str | None = None


def write_features(paths: list[Path], directory: Path, out: IO[bytes], report: Report) -> Read:
    """Write a line for each feature of the extracts to `out`; return what else was found.

    An object that several extracts have is written once. Temporary files go to `directory`. Raises
    SourceError for an extract that cannot be read.
    """
    read = Read()
    seen = _Seen() if len(paths) > 1 else None
    for number, path in enumerate(paths):
        try:
            header = read_header(path)
            if header.data_time:
                read.data_time = min(header.data_time, read.data_time or header.data_time)
            reader = _Reader(path, directory, out, read, seen)
            for part in reader.read():
                report(f"drawing {path.name}", (number + part) / len(paths))
        except BrokenPipeError:
            raise
        except (RuntimeError, OSError) as error:
            raise SourceError(f"{path}: {error}") from error
    return read


class _Seen:
    """The objects that an earlier extract had."""

    def __init__(self) -> None:
        self._ids: dict[str, set[int]] = {"n": set(), "w": set(), "a": set()}

    def add(self, kind: str, number: int) -> bool:
        """Remember an object; return whether it is new."""
        ids = self._ids[kind]
        before = len(ids)
        ids.add(number)
        return len(ids) > before


class _Reader:
    """A reader of one extract."""

    def __init__(
        self, path: Path, directory: Path, out: IO[bytes], read: Read, seen: _Seen | None
    ) -> None:
        self._path = path
        self._directory = directory
        self._out = out
        self._read = read
        self._seen = seen
        self._wkb = osmium.geom.WKBFactory()
        self._shapes: list[str] = []  # WKB in hexadecimal digits
        self._drawn: list[tuple[int, Drawn]] = []  # with the number of the shape
        self._borders: dict[int, int] = {}  # way -> level

    def read(self) -> Iterator[float]:
        """Write all features; yield how much has been done, 0..1."""
        for relation in osmium.FileProcessor(str(self._path), osmium.osm.RELATION):
            self._note_border(relation)
        # A rough estimate of the number of objects with tags, from the size of the file.
        expected = max(1.0, self._path.stat().st_size / 40)
        tagged = osmium.filter.EmptyTagFilter()
        # A way may be a part of a border without any tags of its own.
        tagged.enable_for(osmium.osm.NODE)
        processor = (
            osmium.FileProcessor(str(self._path))
            .with_locations(node_storage(self._path, self._directory))
            .with_areas(osmium.filter.KeyFilter(*_AREA_KEYS))
            .with_filter(tagged)
        )
        entity: Any
        for count, entity in enumerate(processor):
            if count % _REPORT_EVERY == 0:
                yield min(0.99, count / expected)
            if entity.is_node():
                self._node(entity)
            elif entity.is_way():
                self._way(entity)
            elif entity.is_area():
                self._area(entity)
        self._flush()

    def _note_border(self, relation: Any) -> None:
        tags = relation.tags
        level = _ADMIN_LEVELS.get(tags.get("admin_level", ""))
        if level is None or tags.get("boundary") != "administrative":
            return
        for member in relation.members:
            if member.type == "w":
                self._borders[member.ref] = min(level, self._borders.get(member.ref, level))

    def _node(self, node: Any) -> None:
        tags = {tag.k: tag.v for tag in node.tags}
        drawn = [*points.of_place(tags), *points.of_point(tags)]
        if drawn and node.location.valid() and self._is_new("n", node.id):
            self._add(self._wkb.create_point(node), drawn)

    def _way(self, way: Any) -> None:
        tags = {tag.k: tag.v for tag in way.tags}
        is_coast = tags.get("natural") == "coastline"
        drawn = list(streets.of_line(tags, closed=way.is_closed()))
        level = self._borders.get(way.id)
        if level is not None:
            maritime = tags.get("maritime") == "yes"
            attributes: Attributes = {"admin_level": level}
            drawn.append(
                Drawn("boundaries", _BORDER_ZOOM[level], attributes | {"maritime": maritime})
            )
        if not drawn and not is_coast:
            return
        shape = self._line(way)
        if shape is None or not self._is_new("w", way.id):
            return
        if is_coast:
            self._read.coastlines.append(shapely.from_wkb(shape))
        if drawn:
            self._add(shape, drawn)

    def _line(self, way: Any) -> str | None:
        try:
            line: str = self._wkb.create_linestring(way)
        except (RuntimeError, osmium.InvalidLocationError):
            # An extract may lack nodes of ways that cross its edge.
            located = [(node.lon, node.lat) for node in way.nodes if node.location.valid()]
            if len(set(located)) < 2:
                return None
            line = shapely.to_wkb(shapely.LineString(located), hex=True)
        return line

    def _area(self, area: Any) -> None:
        tags = {tag.k: tag.v for tag in area.tags}
        drawn = [
            *streets.of_area(tags, from_way=area.from_way()),
            *areas.of_area(tags),
            *points.of_point(tags),
        ]
        if not drawn or not self._is_new("a", area.id):
            return
        try:
            shape = self._wkb.create_multipolygon(area)
        except RuntimeError:
            return  # its rings could not be put together
        self._add(shape, drawn)

    def _is_new(self, kind: str, number: int) -> bool:
        return self._seen is None or self._seen.add(kind, number)

    def _add(self, shape: str, drawn: list[Drawn]) -> None:
        self._drawn += [(len(self._shapes), each) for each in drawn]
        self._shapes.append(shape)
        if len(self._shapes) >= _BATCH:
            self._flush()

    def _flush(self) -> None:
        if not self._shapes:
            return
        shapes = shapely.from_wkb(np.array(self._shapes, dtype=object))
        zooms = _full_zooms(shapes)
        texts = shapely.to_geojson(shapes)
        on_land = np.zeros(len(shapes), dtype=np.bool_)
        inner: dict[int, str] = {}
        lines = []
        for number, drawn in self._drawn:
            zoom = drawn.zoom
            if drawn.pixels:
                pixels = float(np.log2(drawn.pixels)) / 2
                zoom = max(zoom, min(ZOOM_MAX, int(np.ceil(zooms[number] + pixels))))
            text = texts[number]
            if drawn.as_point:
                if number not in inner:
                    inner[number] = shapely.to_geojson(shapely.point_on_surface(shapes[number]))
                text = inner[number]
            lines.append(
                b'{"type":"Feature","tippecanoe":{"layer":"%b","minzoom":%d},"properties":%b,'
                b'"geometry":%b}\n'
                % (drawn.layer.encode(), zoom, _encode(drawn.attributes), text.encode())
            )
            on_land[number] |= drawn.layer in _ON_LAND
        self._read.land.add(shapely.get_coordinates(shapes[on_land]))
        self._read.features += len(lines)
        self._out.write(b"".join(lines))
        self._shapes.clear()
        self._drawn.clear()


def _full_zooms(shapes: Geometries) -> npt.NDArray[np.float64]:
    """Return for each shape the zoom level at which it has one pixel."""
    area = shapely.area(shapes)
    latitude = np.nan_to_num(shapely.bounds(shapes)[:, 1])
    # Mercator stretches both directions; degrees of latitude are stretched here, too.
    pixels = area / np.maximum(0.05, np.cos(np.radians(latitude))) * (_TILE_PIXELS / 360) ** 2
    with np.errstate(divide="ignore"):
        return np.where(pixels > 0, -np.log2(pixels) / 2, ZOOM_MAX)
