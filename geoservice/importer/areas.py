"""Everything coarser than a street: boundaries, settlements, quarters, and their ranks.

OpenStreetMap often has a settlement twice, as a boundary and as a node inside it. They are linked
here. The ranks of the other areas are shifted, so that they keep the same order in every address.
The code follows Nominatim's indexing of places, in its order: boundaries from large to small, then
the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import shapely

from geoservice.importer.centres import Centres
from geoservice.importer.ranks import address_label, compute_ranks
from geoservice.importer.reading import Source
from geoservice.importer.rows import AREA, RELATION, Integers

_GEOMETRY_LETTER: Final = ("N", "W", "R")
_RANK_STREET: Final = 26


@dataclass(eq=False)
class Area:
    """A boundary or a settlement. `geometry` is a polygon, or the point of its node."""

    row: int
    osm_type: int
    osm_id: int
    category: str
    type: str
    admin_level: int
    names: dict[str, str]
    address: dict[str, str]
    extratags: dict[str, str]
    geometry: Any
    is_area: bool
    centroid: Any
    country: str | None
    rank_search: int = 0
    rank_address: int = 0
    linked_to: Area | None = None  # the boundary that represents this node
    linked_type: str | None = None  # type of the node that this boundary represents
    display_point: Any = None
    number: int = -1  # position in the list of all areas
    #: names as an address shows them
    shown_names: dict[str, str] = field(default_factory=dict)

    @property
    def is_boundary(self) -> bool:
        """Return whether it is an administrative boundary."""
        return self.category == "boundary" and self.type == "administrative"

    @property
    def label(self) -> str:
        """Its key in an address."""
        linked = self.linked_type or self.extratags.get("place")
        return address_label(self.category, self.type, self.rank_address, linked, self.country)

    def compute_ranks(self) -> None:
        """Set the ranks that follow from its tags alone."""
        self.rank_search, self.rank_address = self.tag_ranks(self.is_area)

    def tag_ranks(self, as_area: bool, *, capital: bool = True) -> tuple[int, int]:
        """Return the (search, address) rank that follows from the tags."""
        return compute_ranks(
            self.country,
            "A" if as_area else _GEOMETRY_LETTER[self.osm_type],
            self.category,
            self.type,
            self.admin_level,
            capital=capital and self.extratags.get("capital") == "yes",
        )


def read_areas(source: Source, rows: Integers, centres: Centres, countries: Any) -> list[Area]:
    """Read the areas among the rows, with the ranks of their tags."""
    areas: list[Area] = []
    table = source.rows
    texts = table.words.texts
    for row, geometry, centroid in zip(
        rows.tolist(), table.geometries(rows), centres.points(rows), strict=True
    ):
        tags = table.tags(row)
        area = Area(
            row=row,
            osm_type=int(table.osm_type[row]),
            osm_id=int(table.osm_id[row]),
            category=texts[table.category[row]],
            type=texts[table.type[row]],
            admin_level=int(table.admin_level[row]),
            names=tags.names,
            address=tags.address,
            extratags=tags.extratags,
            geometry=geometry,
            is_area=bool(table.kind[row] == AREA),
            centroid=centroid,
            country=countries[row],
        )
        area.display_point = area.centroid
        area.shown_names = area.names
        area.compute_ranks()
        areas.append(area)
    return areas


class Hierarchy:
    """The links between areas, and their final ranks."""

    def __init__(self, areas: list[Area], others: list[Area], source: Source) -> None:
        """Index the areas; `others` are nodes outside addresses that a boundary may represent."""
        self._source = source
        self._areas = areas
        self._nodes = [
            area
            for area in (*areas, *others)
            if area.category == "place" and area.osm_type == 0 and area.rank_search < _RANK_STREET
        ]
        self._polygons = [area for area in areas if area.is_area]
        self._node_tree = shapely.STRtree([node.geometry for node in self._nodes])
        self._polygon_tree = shapely.STRtree([area.geometry for area in self._polygons])
        self._by_osm_id = {node.osm_id: node for node in self._nodes}

    def compute(self) -> None:
        """Link nodes to boundaries and set all final ranks."""
        for area in self._areas:
            if area.rank_address <= 4 and not area.is_boundary:
                self._finish(area)
        boundaries = [area for area in self._areas if area.is_boundary]
        for area in sorted(boundaries, key=lambda area: (area.rank_search, area.row)):
            self._finish(area)
        others = [area for area in self._areas if area.rank_address > 4 and not area.is_boundary]
        for rank in range(5, _RANK_STREET):
            for area in others:
                if area.rank_address == rank and area.number < 0:
                    area.number = 0
                    self._finish(area)
        for number, area in enumerate(self._areas):
            area.number = number

    def _finish(self, area: Area) -> None:
        if area.linked_to is not None:
            area.compute_ranks()
            return
        shapely.prepare(area.geometry)
        linked = self._find_linked(area)
        area.compute_ranks()
        parent_rank: int | None = 3
        if area.is_boundary and area.osm_type == RELATION and area.rank_address > 0:
            parent_rank = self._rank_below_parent(area)
        elif area.category == "place" and area.is_area and 16 <= area.rank_address <= 23:
            self._rank_inside_areas(area)
            parent_rank = None
        elif area.category == "place" and area.osm_type == 0 and 16 <= area.rank_address <= 23:
            self._rank_inside_boundary(area)
            parent_rank = None
        if linked is not None:
            self._link(area, linked, parent_rank)
        elif 4 <= area.rank_address <= 25 and "place" in area.extratags and parent_rank is not None:
            _, rank = compute_ranks(area.country, "A", "place", area.extratags["place"], 0)
            if parent_rank < rank < _RANK_STREET:
                area.rank_address = rank
        # A prepared geometry takes more memory than the outline.
        shapely.destroy_prepared(area.geometry)

    def _link(self, area: Area, node: Area, parent_rank: int | None) -> None:
        node.linked_to = area
        node.compute_ranks()
        if shapely.contains(area.geometry, node.geometry):
            area.display_point = node.geometry
        _, rank = node.tag_ranks(as_area=False)
        if parent_rank is not None and parent_rank < rank < _RANK_STREET:
            area.rank_address = rank
        area.linked_type = node.type
        area.extratags = {**node.extratags, **area.extratags}
        extra = {
            f"_place_{key}": name for key, name in node.names.items() if area.names.get(key) != name
        }
        area.names = {**area.names, **extra}
        area.shown_names = _shown(area.names)

    def _covered_nodes(self, area: Area) -> list[Area]:
        found = self._node_tree.query(area.geometry, predicate="covers")
        return [self._nodes[number] for number in sorted(found.tolist())]

    def _find_linked(self, area: Area) -> Area | None:
        """Return the node for the same place as this area, or None."""
        if area.rank_search >= _RANK_STREET or area.rank_address == 0 or not area.is_area:
            return None
        if area.osm_type == RELATION:
            for label in self._source.label_nodes.get(area.osm_id, ()):
                if label in self._by_osm_id:
                    return self._by_osm_id[label]
        name = area.names.get("name", "").lower()
        wikidata = area.extratags.get("wikidata")
        nodes = [node for node in self._covered_nodes(area) if node.linked_to is None]
        if wikidata is not None:
            same = [node for node in nodes if node.extratags.get("wikidata") == wikidata]
            if same:
                return max(same, key=lambda node: _lower_name(node) == name)
        if not name:
            return None
        nodes = [
            node
            for node in nodes
            if wikidata is None or node.extratags.get("wikidata", wikidata) == wikidata
        ]
        if "place" in area.extratags:
            for node in nodes:
                other = _lower_name(node)
                alike = other and (other in name or name in other)
                if alike and node.type == area.extratags["place"]:
                    return node
        for node in nodes:
            _, rank = node.tag_ranks(as_area=False, capital=False)
            if _lower_name(node) == name and rank == area.rank_address:
                return node
        return None

    def _covering(self, area: Area) -> list[Area]:
        """Return the other areas that cover the centroid of this one."""
        found = self._polygon_tree.query(area.centroid, predicate="covered_by")
        return [
            self._polygons[number]
            for number in found.tolist()
            if self._polygons[number] is not area
        ]

    def _containing(self, area: Area) -> list[Area]:
        found = self._polygon_tree.query(area.geometry, predicate="within")
        return [
            other
            for number in found.tolist()
            if (other := self._polygons[number]) is not area
            and not shapely.equals(other.geometry, area.geometry)
        ]

    def _rank_below_parent(self, area: Area) -> int:
        """Rank an administrative boundary below the one around it; return the rank of that one."""
        parent_rank = 3
        around = [
            other
            for other in self._covering(area)
            if other.is_boundary
            and other.osm_type == RELATION
            and 3 < other.admin_level < area.admin_level
            and 1 <= other.rank_address < _RANK_STREET
        ]
        if around:
            parent = max(around, key=lambda other: other.admin_level)
            wikidata = area.extratags.get("wikidata")
            if (
                wikidata is not None
                and parent.extratags.get("wikidata") == wikidata
                and shapely.equals(parent.geometry, area.geometry)
            ):
                # The same boundary is mapped on several levels.
                area.rank_address = 0
            else:
                parent_rank = parent.rank_address
                if parent_rank >= area.rank_address:
                    area.rank_address = 25 if parent_rank >= 24 else parent_rank + 2
        if area.rank_address > 9:
            self._step_below(
                area,
                (
                    other
                    for other in self._containing(area)
                    if other.category == "place" and 1 <= other.rank_address <= 23
                ),
            )
        return parent_rank

    def _rank_inside_areas(self, area: Area) -> None:
        self._step_below(
            area,
            (
                other
                for other in self._containing(area)
                if 1 <= other.rank_address < _RANK_STREET
                and other.tag_ranks(as_area=True, capital=False)[1] < 24
            ),
        )

    @staticmethod
    def _step_below(area: Area, others: Iterable[Area]) -> None:
        ranked = [
            (rank, other)
            for other in others
            if (rank := other.tag_ranks(as_area=True, capital=False)[1]) >= area.rank_address
        ]
        if ranked:
            area.rank_address = max(ranked, key=lambda pair: pair[0])[1].rank_address + 2

    def _rank_inside_boundary(self, area: Area) -> None:
        """Rank a node below a boundary that contains it and has the same rank.

        The node is a part of that boundary, because it is not linked to it.
        """
        for other in self._covering(area):
            if other.osm_type != RELATION or not 1 <= other.rank_address < _RANK_STREET:
                continue
            rank = other.rank_address
            if other.category == "place":
                rank = other.tag_ranks(as_area=True, capital=False)[1]
            elif other.category != "boundary":
                continue
            if rank == area.rank_address:
                area.rank_address += 2
                return


def _lower_name(area: Area) -> str:
    return area.names.get("name", "").lower()


def _shown(names: dict[str, str]) -> dict[str, str]:
    """Show a name that only the linked node has as the boundary's own."""
    shown: dict[str, str] = {}
    for key, name in names.items():
        own = key.removeprefix("_place_")
        shown[key if own in names else own] = name
    return shown
