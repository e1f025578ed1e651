"""The data about all rows that several steps of an import share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from geoservice.importer.areas import Area, Hierarchy, read_areas
from geoservice.importer.centres import Centres
from geoservice.importer.countries import Countries
from geoservice.importer.names import spellings
from geoservice.importer.ranks import compute_ranks
from geoservice.importer.reading import Source
from geoservice.importer.rows import AREA, NODE, POINT, RELATION, WAY, batches

Flags = NDArray[np.bool_]

_BATCH = 10_000


@dataclass
class RowAttributes:
    """Columns besides those of the rows, and the areas."""

    source: Source
    centres: Centres
    country_finder: Countries
    countries: NDArray[Any]  # country codes, or None
    rank_search: NDArray[np.int8]
    rank_address: NDArray[np.int8]
    has_name: Flags
    has_address: Flags
    is_street: Flags  # has the rank of a street
    is_house: Flags  # has a parent
    is_feature: Flags  # never part of an address, and not a house
    is_addressed_building: Flags
    areas: list[Area]
    areas_by_name: dict[str, list[Area]] = field(default_factory=dict)
    interpolated_addresses: dict[int, dict[str, str]] = field(default_factory=dict)
    street_members: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for area in self.areas:
            if area.linked_to is None:
                for spelling in spellings(area.names):
                    self.areas_by_name.setdefault(spelling, []).append(area)
        for interpolation in self.source.interpolations.values():
            if interpolation.address:
                for node in interpolation.nodes:
                    self.interpolated_addresses[node] = interpolation.address
        self._find_street_members()
        polygons = [area for area in self.areas if area.is_area and 5 <= area.rank_address <= 25]
        self._polygons = polygons
        self._polygon_tree = shapely.STRtree([area.geometry for area in polygons])
        self._prepare_node_ways()

    def _find_street_members(self) -> None:
        wanted = {
            member for members in self.source.associated_streets.values() for member in members
        }
        if not wanted:
            return
        rows = self.source.rows
        ids = np.array([osm_id for _, osm_id in wanted], dtype=np.int64)
        for row in np.flatnonzero(self.is_street & self.has_name & np.isin(rows.osm_id, ids)):
            member = (int(rows.osm_type[row]), int(rows.osm_id[row]))
            if member in wanted:
                self.street_members[member] = int(row)

    def _prepare_node_ways(self) -> None:
        pairs, self.source.node_ways = self.source.node_ways, np.empty((0, 2), dtype=np.int64)
        rows = self.source.rows
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
        again = (pairs[1:] == pairs[:-1]).all(axis=1)
        pairs = pairs[np.concatenate([np.ones(len(pairs[:1]), dtype=bool), ~again])]
        is_way = np.flatnonzero(rows.osm_type == WAY).astype(np.int32)
        ids = rows.osm_id[is_way]  # ascending
        first = np.searchsorted(ids, pairs[:, 1], side="left")
        counts = np.searchsorted(ids, pairs[:, 1], side="right") - first
        # A way with several main tags has several rows.
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        self._nodes_on_ways = np.repeat(pairs[:, 0], counts)
        self._ways_of_nodes = is_way[np.repeat(first, counts) + steps]

    def ways_of_node(self, node: int) -> list[int]:
        """Return the rows of the ways that a node is part of."""
        first = int(self._nodes_on_ways.searchsorted(node))
        last = int(self._nodes_on_ways.searchsorted(node, side="right"))
        rows: list[int] = self._ways_of_nodes[first:last].tolist()
        return rows

    def areas_around(self, point: Any) -> list[Area]:
        """Return the areas that cover a point, named or not."""
        found = self._polygon_tree.query(point, predicate="covered_by")
        return [self._polygons[number] for number in found.tolist()]

    def category(self, row: int) -> str:
        """Return the key of the main tag."""
        return self.source.rows.words.texts[int(self.source.rows.category[row])]

    def type(self, row: int) -> str:
        """Return the value of the main tag."""
        return self.source.rows.words.texts[int(self.source.rows.type[row])]


def survey_rows(source: Source, countries: Countries) -> RowAttributes:
    """Compute the columns of each row by itself, and all areas."""
    rows = source.rows
    centres = Centres(rows)
    count = len(rows)
    codes = np.full(count, None, dtype=object)
    search = np.zeros(count, dtype=np.int8)
    address = np.zeros(count, dtype=np.int8)
    has_name = np.zeros(count, dtype=bool)
    has_address = np.zeros(count, dtype=bool)
    has_house_address = np.zeros(count, dtype=bool)
    texts = rows.words.texts
    letters = ("N", "W", "R")
    known: dict[tuple[Any, ...], tuple[int, int]] = {}
    for numbers in batches(np.arange(count), _BATCH):
        codes[numbers] = countries.codes(centres.points(numbers))
        for row in numbers.tolist():
            tags = rows.tags(row)
            has_name[row] = bool(tags.names)
            has_address[row] = bool(tags.address)
            has_house_address[row] = not tags.address.keys().isdisjoint(
                ("housenumber", "street", "place")
            )
            key = (
                codes[row],
                "A" if rows.kind[row] == AREA else letters[rows.osm_type[row]],
                int(rows.category[row]),
                int(rows.type[row]),
                int(rows.admin_level[row]),
                tags.extratags.get("capital") == "yes",
            )
            ranks = known.get(key)
            if ranks is None:
                ranks = known[key] = compute_ranks(
                    key[0], key[1], texts[key[2]], texts[key[3]], key[4], capital=key[5]
                )
            search[row], address[row] = ranks
        rows.release()
    # Areas without a name are included: unnamed pedestrian areas count, and unnamed boundaries were
    # filtered out when their tags were read.
    is_area_rank = (address > 0) & (address < 26)
    numbers = np.flatnonzero(is_area_rank)
    areas = read_areas(source, numbers, centres, codes)
    loose = rows.where("place") & (rows.osm_type == NODE) & (address == 0) & (search < 26)
    others = read_areas(source, np.flatnonzero(loose), centres, codes)
    Hierarchy(areas, others, source).compute()
    for area in areas:
        search[area.row], address[area.row] = area.rank_search, area.rank_address
    linked = _linked_waterways(source)
    linked[[area.row for area in others if area.linked_to is not None]] = True
    return RowAttributes(
        source=source,
        centres=centres,
        country_finder=countries,
        countries=codes,
        rank_search=search,
        rank_address=address,
        has_name=has_name,
        has_address=has_address,
        is_street=(address >= 26) & (address <= 27),
        is_house=search > 27,
        is_feature=(address == 0) & (search <= 27) & ~is_area_rank & ~linked,
        is_addressed_building=has_house_address & (rows.kind == AREA) & (search == 30),
        areas=areas,
    )


def _linked_waterways(source: Source) -> Flags:
    """Mark the ways of rivers that have a relation, which represents them."""
    rows = source.rows
    linked = np.zeros(len(rows), dtype=bool)
    is_waterway = rows.where("waterway")
    types = {rows.words.number(name) for name in ("river", "stream", "canal", "drain", "ditch")}
    for relation in np.flatnonzero(is_waterway & (rows.osm_type == RELATION)).tolist():
        members = source.waterway_members.get(int(rows.osm_id[relation]), [])
        name = rows.tags(relation).names.get("name")
        ids = np.array([osm_id for osm_id, _ in members], dtype=np.int64)
        side = {osm_id for osm_id, is_side in members if is_side}
        found = is_waterway & (rows.osm_type == WAY) & np.isin(rows.osm_id, ids)
        for row in np.flatnonzero(found & (rows.kind != POINT)).tolist():
            if int(rows.type[row]) not in types:
                continue
            if int(rows.osm_id[row]) in side and rows.tags(row).names.get("name") != name:
                continue
            linked[row] = True
    return linked
