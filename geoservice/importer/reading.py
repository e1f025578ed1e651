"""The reading of OSM extracts: one pass over relations, one over all objects with tags."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import osmium
import shapely

from geoservice.importer.partial_areas import assemble, available
from geoservice.importer.rows import (
    AREA,
    LINE,
    NODE,
    POINT,
    RELATION,
    WAY,
    Integers,
    Rows,
    RowTags,
)
from geoservice.importer.tags import INTERESTING_KEYS, TaggedObject, read_tags

#: File size in bytes above which node locations go to a file: in memory each node takes 16 bytes.
_NODES_IN_MEMORY_FILE_BYTES: Final = 60_000_000

#: Length in degrees above which a way is considered a mistake.
_WAY_LENGTH_MAX: Final = 30.0
_REPORT_EVERY: Final = 20_000
_FLUSH_REFERENCES: Final = 1_000_000

Report = Callable[[str, float], None]


class SourceError(Exception):
    """An extract cannot be read; the message says why."""


@dataclass(frozen=True)
class Interpolation:
    """A way along which house numbers are interpolated."""

    osm_id: int
    type: str  # "odd", "even", "all", or the step as a digit
    address: dict[str, str]
    nodes: list[int]
    geometry: Any


@dataclass(frozen=True)
class PostcodePoint:
    """The position of an object with only a postcode, or the area of a postcode boundary."""

    postcode: str
    osm_id: int
    geometry: Any
    is_area: bool


@dataclass
class Source:
    """All data that was read from the extracts."""

    rows: Rows
    bounds: list[tuple[float, float, float, float]] = field(default_factory=list)
    data_time: str | None = None
    interpolations: dict[int, Interpolation] = field(default_factory=dict)
    postcodes: list[PostcodePoint] = field(default_factory=list)
    label_nodes: dict[int, list[int]] = field(default_factory=dict)  # by boundary relation
    #: house member (type, id) -> street members (type, id)
    associated_streets: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    waterway_members: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    border_lines: list[Any] = field(default_factory=list)
    country_names: dict[str, dict[str, str]] = field(default_factory=dict)
    #: pairs of (node, way) where the node is a place itself
    node_ways: Integers = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    node_count: int = 0


@dataclass
class _Relations:
    """The data of relations that is needed before their members are read."""

    waterways: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    waterway_ways: dict[int, Any] = field(default_factory=dict)
    border_ways: set[int] = field(default_factory=set)
    #: ways of areas whose geometry was not assembled
    unseen_areas: dict[int, array[int]] = field(default_factory=dict)


def read_extracts(paths: list[Path], directory: Path, report: Report) -> Source:
    """Read one or many extracts; temporary files go to `directory`. Raises SourceError."""
    source = Source(Rows(directory))
    node_ids = array("q")
    pairs: list[Integers] = []
    try:
        for number, path in enumerate(paths):
            reader = _Reader(path, source, directory, node_ids, pairs)
            reader.read(partial(_report_part, report, number, len(paths)))
    except BaseException as error:
        source.rows.close()
        if isinstance(error, RuntimeError | OSError):
            raise SourceError(f"{path}: {error}") from error
        raise
    source.rows.finish()
    if pairs:
        source.node_ways = np.concatenate(pairs)
    return source


class ExtractHeader(NamedTuple):
    """What an extract says of itself."""

    bounds: tuple[float, float, float, float] | None  # west, south, east, north
    data_time: str | None


def read_header(path: Path) -> ExtractHeader:
    """Read the header of an extract. Raises SourceError if there is no such file."""
    if not path.is_file():
        raise SourceError(f"{path}: there is no such file")
    with osmium.io.Reader(str(path), osmium.osm.NOTHING) as reader:
        header = reader.header()
        box = header.box()
        time = header.get("osmosis_replication_timestamp") or header.get("timestamp")
    if not box.valid():
        return ExtractHeader(None, time or None)
    corners = (box.bottom_left.lon, box.bottom_left.lat, box.top_right.lon, box.top_right.lat)
    return ExtractHeader(corners, time or None)


def node_storage(path: Path, directory: Path) -> str:
    """Return where osmium keeps the locations of nodes: in memory, or in a file in `directory`."""
    if path.stat().st_size <= _NODES_IN_MEMORY_FILE_BYTES:
        return "flex_mem"
    nodes = directory / "nodes"
    nodes.unlink(missing_ok=True)
    return f"sparse_file_array,{nodes}"


def _report_part(report: Report, number: int, count: int, text: str, part: float) -> None:
    report(text, (number + part) / count)


class _Reader:
    """A reader of one extract."""

    def __init__(
        self,
        path: Path,
        source: Source,
        directory: Path,
        node_ids: array[int],
        pairs: list[Integers],
    ) -> None:
        self._path = path
        self._source = source
        self._directory = directory
        self._rows = source.rows
        self._node_ids = node_ids
        self._sorted_node_ids: Integers | None = None
        self._references = array("q")
        self._pairs = pairs
        self._relations = _Relations()
        self._wkb = osmium.geom.WKBFactory()

    def read(self, report: Report) -> None:
        """Add all places of the file to the source."""
        self._read_header()
        for relation in osmium.FileProcessor(str(self._path), osmium.osm.RELATION):
            self._prepare_relation(relation)
        size = self._path.stat().st_size
        # A rough estimate of the number of tagged objects, from the size of the file.
        expected = max(1.0, size / 55)
        for count, entity in enumerate(self._entities()):
            if count % _REPORT_EVERY == 0:
                report(f"reading {self._path.name}", min(0.99, count / expected))
            if entity.is_node():
                self._read_node(entity)
            elif entity.is_way():
                self._read_way(entity)
            elif entity.is_area():
                if not entity.from_way():
                    self._read_area(entity)
            else:
                self._read_relation(entity)
        self._flush_references()
        self._finish_waterways()
        if self._relations.unseen_areas:
            report(f"completing areas of {self._path.name}", 0.99)
            self._read_partial_areas()

    def _read_header(self) -> None:
        header = read_header(self._path)
        if header.bounds is not None:
            self._source.bounds.append(header.bounds)
        if header.data_time:
            # With several extracts, the oldest one determines how current the index is.
            self._source.data_time = min(
                header.data_time, self._source.data_time or header.data_time
            )

    def _entities(self) -> Iterator[Any]:
        processor = (
            osmium.FileProcessor(str(self._path))
            .with_locations(node_storage(self._path, self._directory))
            .with_areas(osmium.filter.KeyFilter(*INTERESTING_KEYS))
            .with_filter(osmium.filter.EmptyTagFilter())
        )
        return iter(processor)

    def _prepare_relation(self, relation: Any) -> None:
        tags = relation.tags
        kind = tags.get("type")
        if kind in ("boundary", "multipolygon"):
            tagged = read_tags({tag.k: tag.v for tag in tags}, is_way=False)
            if tagged is not None:
                self._relations.unseen_areas[relation.id] = array(
                    "q", (member.ref for member in relation.members if member.type == "w")
                )
        if kind == "waterway":
            members = [
                (member.ref, member.role) for member in relation.members if member.type == "w"
            ]
            self._relations.waterways[relation.id] = members
            self._relations.waterway_ways.update((ref, None) for ref, _ in members)
        elif kind == "boundary" and tags.get("boundary") == "administrative":
            if tags.get("admin_level") == "2":
                self._relations.border_ways.update(
                    member.ref for member in relation.members if member.type == "w"
                )
                tagged = read_tags({tag.k: tag.v for tag in tags}, is_way=False)
                if tagged is not None and tagged.places and "country" in tagged.address:
                    code = tagged.address["country"].lower()
                    self._source.country_names.setdefault(code, tagged.places[0].names)
            labels = [m.ref for m in relation.members if m.type == "n" and m.role == "label"]
            if labels:
                self._source.label_nodes[relation.id] = labels
        elif kind == "associatedStreet":
            self._read_associated_street(relation)

    def _read_associated_street(self, relation: Any) -> None:
        kinds = {"n": NODE, "w": WAY, "r": RELATION}
        members = [(kinds[member.type], member.ref, member.role) for member in relation.members]
        streets = [(kind, ref) for kind, ref, role in members if role == "street" and kind != NODE]
        if streets:
            for kind, ref, role in members:
                if role == "house":
                    self._source.associated_streets.setdefault((kind, ref), []).extend(streets)

    def _read_node(self, node: Any) -> None:
        tags = {tag.k: tag.v for tag in node.tags}
        if INTERESTING_KEYS.isdisjoint(tags):
            return
        tagged = read_tags(tags, is_way=False)
        if tagged is None or not node.location.valid():
            return
        point = (node.location.x, node.location.y)
        for place in tagged.places:
            texts = RowTags(place.names, tagged.address, tagged.extratags)
            self._rows.append(
                NODE, node.id, place.category, place.type, tagged.admin_level, POINT, point,
                (0, 0), texts,
            )  # fmt: skip
        if tagged.places:
            self._node_ids.append(node.id)
            self._source.node_count += 1
        elif tagged.postcode is not None:
            self._add_postcode(node.id, tagged, shapely.Point(node.lon, node.lat), relation=False)

    def _read_way(self, way: Any) -> None:
        if way.id in self._relations.border_ways or way.id in self._relations.waterway_ways:
            self._keep_member(way)
        tags = {tag.k: tag.v for tag in way.tags}
        if INTERESTING_KEYS.isdisjoint(tags):
            return
        tagged = read_tags(tags, is_way=True)
        if tagged is None:
            return
        line = self._line(way)
        if line is None:
            return
        if tagged.interpolation is not None:
            self._source.interpolations[way.id] = Interpolation(
                way.id,
                tagged.interpolation,
                tagged.address,
                [node.ref for node in way.nodes],
                line,
            )
        if tagged.places:
            self._add_way(way, tagged, line)
        elif tagged.postcode is not None:
            self._add_postcode(way.id, tagged, line, relation=False)

    def _line(self, way: Any) -> Any:
        try:
            line = shapely.from_wkb(self._wkb.create_linestring(way))
        except (RuntimeError, osmium.InvalidLocationError):
            # An extract may lack nodes of ways that cross its edge.
            points = [(node.lon, node.lat) for node in way.nodes if node.location.valid()]
            if len(set(points)) < 2:
                return None
            line = shapely.LineString(points)
        return line if line.length <= _WAY_LENGTH_MAX else None

    def _add_way(self, way: Any, tagged: TaggedObject, line: Any) -> None:
        geometry = line
        kind = LINE
        if way.is_closed() and shapely.get_num_coordinates(line) > 3 and line.is_closed:
            area = shapely.Polygon(line)
            if area.is_valid and not area.is_empty:
                geometry, kind = area, AREA
        stored = self._rows.append_geometry(shapely.to_wkb(geometry))
        for place in tagged.places:
            if place.category == "boundary" and (
                kind != AREA or (place.type == "administrative" and tagged.admin_level <= 4)
            ):
                continue
            texts = RowTags(place.names, tagged.address, tagged.extratags)
            self._rows.append(
                WAY, way.id, place.category, place.type, tagged.admin_level, kind, (0, 0),
                stored, texts,
            )  # fmt: skip
            for node in way.nodes:
                self._references.append(node.ref)
                self._references.append(way.id)
        if len(self._references) > _FLUSH_REFERENCES:
            self._flush_references()

    def _flush_references(self) -> None:
        """Keep the pairs of node and way whose node is a place."""
        if not self._references:
            return
        if self._sorted_node_ids is None:
            self._sorted_node_ids = np.unique(np.array(self._node_ids, dtype=np.int64))
        pairs = np.array(self._references, dtype=np.int64).reshape(-1, 2)
        kept = pairs[np.isin(pairs[:, 0], self._sorted_node_ids)]
        if len(kept):
            self._pairs.append(kept)
        self._references = array("q")

    def _keep_member(self, way: Any) -> None:
        line = self._line(way)
        if line is None:
            return
        if way.id in self._relations.border_ways:
            self._source.border_lines.append(line)
        if way.id in self._relations.waterway_ways:
            self._relations.waterway_ways[way.id] = line

    def _read_area(self, area: Any) -> None:
        tags = {tag.k: tag.v for tag in area.tags}
        tagged = read_tags(tags, is_way=False)
        if tagged is None:
            return
        try:
            geometry = shapely.from_wkb(self._wkb.create_multipolygon(area))
        except (RuntimeError, osmium.InvalidLocationError, shapely.errors.GEOSException):
            return
        if not geometry.is_valid:
            geometry = _areas_of(shapely.make_valid(geometry))
        if geometry.is_empty:
            return
        self._relations.unseen_areas.pop(area.orig_id(), None)
        self._add_relation(area.orig_id(), tagged, geometry, AREA)

    def _read_partial_areas(self) -> None:
        """Add areas whose members are only partly in the extract but include closed rings."""
        unseen = self._relations.unseen_areas
        wanted = {way for ways in unseen.values() for way in ways}
        lines: dict[int, Any] = {}
        ways = osmium.FileProcessor(str(self._path), osmium.osm.NODE | osmium.osm.WAY)
        # Locations come before the filter, because they need the nodes that the filter drops.
        for entity in ways.with_locations(node_storage(self._path, self._directory)).with_filter(
            osmium.filter.EntityFilter(osmium.osm.WAY)
        ):
            if entity.id in wanted:
                line = self._line(entity)
                if line is not None:
                    lines[entity.id] = line
        # A filter by id would allocate memory for all ids between the lowest and the highest.
        for relation in osmium.FileProcessor(str(self._path), osmium.osm.RELATION):
            if relation.id not in unseen:
                continue
            area = assemble(available(unseen[relation.id], lines))
            tagged = read_tags({tag.k: tag.v for tag in relation.tags}, is_way=False)
            if area is not None and tagged is not None:
                self._add_relation(relation.id, tagged, area, AREA)

    def _read_relation(self, relation: Any) -> None:
        if relation.id in self._relations.waterways and relation.tags.get("type") == "waterway":
            tags = {tag.k: tag.v for tag in relation.tags}
            tagged = read_tags(tags, is_way=False)
            if tagged is None or not tagged.places:
                return
            lines = [
                line
                for ref, _ in self._relations.waterways[relation.id]
                if (line := self._relations.waterway_ways.get(ref)) is not None
            ]
            if lines:
                merged = shapely.line_merge(shapely.MultiLineString(lines))
                self._add_relation(relation.id, tagged, merged, LINE)

    def _add_relation(self, osm_id: int, tagged: TaggedObject, geometry: Any, kind: int) -> None:
        stored = self._rows.append_geometry(shapely.to_wkb(geometry))
        for place in tagged.places:
            texts = RowTags(place.names, tagged.address, tagged.extratags)
            self._rows.append(
                RELATION, osm_id, place.category, place.type, tagged.admin_level, kind, (0, 0),
                stored, texts,
            )  # fmt: skip
        if tagged.postcode is not None:
            self._add_postcode(osm_id, tagged, geometry, relation=True)

    def _add_postcode(
        self, osm_id: int, tagged: TaggedObject, geometry: Any, *, relation: bool
    ) -> None:
        if tagged.postcode_area and not relation:
            return
        assert tagged.postcode is not None
        self._source.postcodes.append(
            PostcodePoint(
                tagged.postcode,
                osm_id,
                geometry if tagged.postcode_area else geometry.centroid,
                tagged.postcode_area,
            )
        )

    def _finish_waterways(self) -> None:
        for relation, members in self._relations.waterways.items():
            self._source.waterway_members[relation] = [
                (ref, role == "side_stream")
                for ref, role in members
                if role in ("", "main_stream", "side_stream")
            ]


def _areas_of(geometry: Any) -> Any:
    """Drop the points and lines that a repair of a geometry leaves."""
    parts = shapely.get_parts(geometry)
    areas = [part for part in parts if part.geom_type in ("Polygon", "MultiPolygon")]
    return shapely.union_all(areas)
