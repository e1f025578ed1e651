"""The addresses of streets and the streets of houses, tile by tile.

Memory holds only the streets of one tile, and the streets around it that its houses may belong to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import shapely

from geoservice.importer.addresses import (
    STREET_RANK,
    AddressFinder,
    Feature,
    Line,
    own_lines,
    shown_lines,
)
from geoservice.importer.areas import Area
from geoservice.importer.names import normalized, spellings
from geoservice.importer.postcodes import Postcodes, read_postcode
from geoservice.importer.ranks import rank_by_size
from geoservice.importer.row_attributes import RowAttributes
from geoservice.importer.rows import AREA, DEGREE, NODE, WAY, Integers, RowTags, batches

TILE_DEGREES: Final = 0.5
_HALO_DEGREES: Final = 0.1

# Nominatim's search distances in degrees: for a street and a place that an address names, for any
# street near a house, and for the street along an interpolation line.
_STREET_DEGREES: Final = 0.015
_PLACE_DEGREES: Final = 0.04
_ROAD_DEGREES: Final = 0.0819
_LINE_DEGREES: Final = 0.001
_HOUSES: Final = 5_000  # houses in one batch


@dataclass(frozen=True)
class AddressedStreet:
    """A street, or another object that has an address of its own."""

    row: int
    tags: RowTags
    geometry: Any
    country: str | None
    lines: list[Line]
    postcode: str | None


@dataclass(frozen=True)
class AddressedHouse:
    """An object that takes its address from a street or a settlement."""

    row: int
    tags: RowTags  # with the address that it inherits, if any
    geometry: Any
    is_inherited: bool  # the address is that of the building around it
    parent: AddressedStreet | Area | None
    country: str | None
    areas: tuple[Area, ...]
    postcode: str | None
    unlisted_place: str | None


class Tile:
    """The streets and houses of one tile."""

    def __init__(
        self,
        survey: RowAttributes,
        finder: AddressFinder,
        postcodes: Postcodes,
        box: tuple[int, int, int, int],
    ) -> None:
        self._survey = survey
        self._rows = survey.source.rows
        self._finder = finder
        self._postcodes = postcodes
        self._known: dict[int, AddressedStreet] = {}
        self._area_lines: dict[int, list[Line]] = {}
        centres = survey.centres
        west, south, east, north = box
        inside = (
            (centres.lon >= west)
            & (centres.lon < east)
            & (centres.lat >= south)
            & (centres.lat < north)
        )
        self._inside = inside
        halo = round(_HALO_DEGREES * DEGREE)
        boxes = centres.boxes
        near = (
            (boxes[:, 0] <= east + halo)
            & (boxes[:, 2] >= west - halo)
            & (boxes[:, 1] <= north + halo)
            & (boxes[:, 3] >= south - halo)
        )
        self._near = near
        roads = np.flatnonzero(near & survey.is_street & survey.has_name)
        # Of several streets at the same distance the first one counts.
        roads = roads[np.lexsort((centres.curve(roads), survey.rank_address[roads]))]
        self._roads = roads
        self._road_geometries = self._rows.geometries(roads)
        self._road_tree = shapely.STRtree(self._road_geometries)
        self._road_countries = survey.countries[roads]
        self._roads_by_name: dict[str, list[int]] = {}
        for number, row in enumerate(roads.tolist()):
            for spelling in spellings(self._rows.tags(row).names):
                self._roads_by_name.setdefault(spelling, []).append(number)

    # -- streets ---------------------------------------------------------------------------------

    def streets(self) -> list[AddressedStreet]:
        """Return the streets of the tile, named or not."""
        rows = np.flatnonzero(self._inside & self._survey.is_street)
        self._place(rows.tolist())
        return [self._known[row] for row in rows.tolist()]

    def features(self) -> list[AddressedStreet]:
        """Return the objects that are never part of an address: peaks, lakes, railways."""
        rows = np.flatnonzero(self._inside & self._survey.is_feature)
        self._place(rows.tolist())
        return [self._known[row] for row in rows.tolist()]

    def _place(self, rows: Sequence[int]) -> None:
        rows = [row for row in rows if row not in self._known]
        if not rows:
            return
        survey = self._survey
        numbers = np.array(rows, dtype=np.int64)
        geometries = self._rows.geometries(numbers)
        centres = survey.centres.points(numbers)
        tags = [self._rows.tags(row) for row in rows]
        features = [
            Feature(
                geometry if self._is_spread(row, geometry) else centre,
                centre,
                survey.countries[row],
                self._rank_max(row, geometry),
                row_tags.address,
            )
            for row, geometry, centre, row_tags in zip(rows, geometries, centres, tags, strict=True)
        ]
        all_lines = self._finder.lines(features)
        nearest = self._postcodes.nearest(centres, survey.countries[numbers])
        for row, geometry, row_tags, lines, near in zip(
            rows, geometries, tags, all_lines, nearest, strict=True
        ):
            country = survey.countries[row]
            postcode = _tagged_postcode(country, row_tags.address)
            if postcode is None:
                postcode = postcode_of(lines)
            if postcode is None and survey.rank_address[row] > 25:
                postcode = near
            elif postcode is None and self._has_postcode(row, geometry):
                is_area = self._rows.kind[row] == AREA
                postcode = self._postcodes.inside(geometry, country) if is_area else near
            self._known[row] = AddressedStreet(row, row_tags, geometry, country, lines, postcode)

    def _is_spread(self, row: int, geometry: Any) -> bool:
        """Return whether the address depends on the whole geometry and not only on its centre."""
        if shapely.get_dimensions(geometry) == 1:
            return True
        survey = self._survey
        return bool(
            survey.rank_address[row] == 0
            and (survey.category(row) == "natural" or self._rank_max(row, geometry) > 10)
        )

    def _rank_max(self, row: int, geometry: Any) -> int:
        rank = int(self._survey.rank_address[row])
        if rank > STREET_RANK:
            return STREET_RANK
        if rank > 0:
            return rank
        return rank_by_size(int(self._survey.rank_search[row]), geometry)

    def _has_postcode(self, row: int, geometry: Any) -> bool:
        return bool(
            self._survey.rank_search[row] > 8
            and (shapely.get_dimensions(geometry) != 1 or geometry.length < 0.02)
        )

    def street_of_line(
        self, line: Any, middle: Any, address: Mapping[str, str]
    ) -> AddressedStreet | None:
        """Return the street that an interpolation line runs along, or None."""
        country = self._survey.country_finder.codes(np.array([middle], dtype=object))[0]
        street: int | None = None
        if "street" in address:
            street = self._road_named(address["street"], middle, country)
        if street is None:
            near = self._road_tree.query(line, predicate="dwithin", distance=_LINE_DEGREES)
            near = near[self._survey.rank_search[self._roads[near]] == 26]
            if not len(near):
                return None
            nearest = int(np.argmin(shapely.distance(self._road_geometries[near], line)))
            street = int(self._roads[near[nearest]])
        self._place([street])
        return self._known[street]

    # -- houses ----------------------------------------------------------------------------------

    def houses(self) -> Iterator[AddressedHouse]:
        """Yield the objects in the tile that have a parent: houses and points of interest."""
        for rows in batches(np.flatnonzero(self._inside & self._survey.is_house), _HOUSES):
            yield from self._place_houses(rows)

    def _place_houses(self, rows: Integers) -> Iterator[AddressedHouse]:
        survey = self._survey
        geometries = self._rows.geometries(rows)
        boxes = shapely.box(*(shapely.bounds(geometries).T))
        boxes[survey.source.rows.kind[rows] == 0] = geometries[survey.source.rows.kind[rows] == 0]
        inherited = self._inherited_addresses(rows, geometries)
        tags: list[RowTags] = []
        for number, row in enumerate(rows.tolist()):
            row_tags = self._rows.tags(row)
            if number in inherited:
                row_tags = RowTags(row_tags.names, inherited[number], row_tags.extratags)
            elif row_tags.address and self._rows.osm_type[row] == NODE:
                shared = survey.interpolated_addresses.get(int(self._rows.osm_id[row]))
                if shared:
                    row_tags = RowTags(
                        row_tags.names, {**shared, **row_tags.address}, row_tags.extratags
                    )
            tags.append(row_tags)
        parents = self._parents(rows, boxes, tags)
        self._place([row for row in set(parents) if isinstance(row, int)])
        orphans = [int(row) for row, parent in zip(rows, parents, strict=True) if parent is None]
        self._place(orphans)
        centres = survey.centres.points(rows)
        nearest = self._postcodes.nearest(centres, survey.countries[rows])
        for number, row in enumerate(rows.tolist()):
            parent = parents[number]
            yield self._house(
                row,
                tags[number],
                geometries[number],
                number in inherited,
                self._known[parent] if isinstance(parent, int) else parent,
                centres[number],
                nearest[number],
            )

    def _house(
        self,
        row: int,
        tags: RowTags,
        geometry: Any,
        is_inherited: bool,
        parent: AddressedStreet | Area | None,
        centre: Any,
        nearest: str | None,
    ) -> AddressedHouse:
        own_country = self._survey.countries[row]
        country = own_country
        unlisted = None
        address = tags.address
        own: list[Line] = []
        postcode = _tagged_postcode(own_country, address)
        if parent is None:
            place = self._known[row]
            lines = place.lines
            postcode = place.postcode
        else:
            country = parent.country
            names = parent.names if isinstance(parent, Area) else parent.tags.names
            if _is_place_address(address) and address["place"] not in names.values():
                unlisted = address["place"]
            lines = self._lines_of(parent)
            if tags.address:
                feature = Feature(centre, centre, country, STREET_RANK, address)
                own = own_lines(self._finder, feature, lines)
            if postcode is None and isinstance(parent, AddressedStreet):
                postcode = parent.postcode
            if postcode is None and isinstance(parent, Area):
                postcode = self._area_postcode(parent, lines)
            if postcode is None:
                postcode = nearest
        if postcode is None:
            raw = address.get("postcode", ",")
            postcode = raw if "," not in raw and ";" not in raw else None
        areas = shown_lines(lines, own, address, centre)
        return AddressedHouse(
            row, tags, geometry, is_inherited, parent, country, areas, postcode, unlisted
        )

    def _lines_of(self, parent: AddressedStreet | Area) -> list[Line]:
        if isinstance(parent, AddressedStreet):
            return parent.lines
        lines = self._area_lines.get(parent.number)
        if lines is None:
            lines = self._area_lines[parent.number] = area_lines(self._finder, [parent])[0]
        return lines

    def _area_postcode(self, area: Area, lines: list[Line]) -> str | None:
        return _tagged_postcode(area.country, area.address) or postcode_of(lines)

    @cached_property
    def _addressed_buildings(self) -> tuple[Integers, Any]:
        rows = np.flatnonzero(self._near & self._survey.is_addressed_building)
        return rows, shapely.STRtree(self._rows.geometries(rows))

    def _inherited_addresses(self, rows: Integers, geometries: Any) -> dict[int, dict[str, str]]:
        """Return the addresses of the buildings around nodes without one, by position in `rows`."""
        survey = self._survey
        candidates = np.flatnonzero(
            (self._rows.osm_type[rows] == NODE)
            & (survey.rank_search[rows] == 30)
            & ~survey.has_address[rows]
        )
        if not len(candidates):
            return {}
        buildings, tree = self._addressed_buildings
        found = tree.query(geometries[candidates], predicate="covered_by")
        result: dict[int, dict[str, str]] = {}
        for candidate, building in zip(*found.tolist(), strict=True):
            number = int(candidates[candidate])
            if number not in result:
                result[number] = self._rows.tags(int(buildings[building])).address
        return result

    def _parents(
        self, rows: Integers, boxes: Any, tags: Sequence[RowTags]
    ) -> list[int | Area | None]:
        """Return the parent of each house: the row of a street, or an area."""
        parents: list[int | Area | None] = [None] * len(rows)
        missing: list[int] = []
        for number, row in enumerate(rows.tolist()):
            parent = self._named_parent(row, boxes[number], tags[number].address)
            if parent is None and self._rows.osm_type[row] == NODE:
                parent = self._way_of_node(int(self._rows.osm_id[row]), boxes[number])
            if parent is None:
                if _is_place_address(tags[number].address) or boxes[number].area >= 0.005:
                    parent = self._area_around(boxes[number].centroid)
                else:
                    missing.append(number)
            parents[number] = parent
        for number, road in self._nearest_roads(rows, boxes, missing).items():
            parents[number] = road
        return parents

    def _named_parent(self, row: int, box: Any, address: Mapping[str, str]) -> int | Area | None:
        members = self._survey.source.associated_streets
        if members:
            key = (int(self._rows.osm_type[row]), int(self._rows.osm_id[row]))
            street = self._associated_street(members.get(key, []), box)
            if street is not None:
                return street
        country = self._survey.countries[row]
        if "street" in address:
            road = self._road_named(address["street"], box, country)
            if road is not None:
                return road
        if "place" in address:
            return self._area_named(address["place"], box, country)
        return None

    def _associated_street(self, members: Sequence[tuple[int, int]], box: Any) -> int | None:
        best: tuple[float, int] | None = None
        for member in members:
            row = self._survey.street_members.get(member)
            if row is not None:
                distance = float(shapely.distance(self._rows.geometries([row])[0], box))
                if best is None or distance < best[0]:
                    best = distance, row
        return best[1] if best else None

    def _road_named(self, name: str, box: Any, country: str | None) -> int | None:
        numbers = self._roads_by_name.get(normalized(name))
        if not numbers:
            return None
        west, south, east, north = box.bounds
        reach = shapely.box(
            west - _STREET_DEGREES,
            south - _STREET_DEGREES,
            east + _STREET_DEGREES,
            north + _STREET_DEGREES,
        ).bounds
        best: tuple[float, int] | None = None
        boxes = self._survey.centres.boxes
        for number in numbers:
            row = int(self._roads[number])
            x1, y1, x2, y2 = (boxes[row] / DEGREE).tolist()
            if x1 > reach[2] or x2 < reach[0] or y1 > reach[3] or y2 < reach[1]:
                continue
            if self._road_countries[number] != country:
                continue
            distance = float(shapely.distance(self._road_geometries[number], box))
            if best is None or distance < best[0]:
                best = distance, row
        return best[1] if best else None

    def _area_named(self, name: str, box: Any, country: str | None) -> Area | None:
        best: tuple[float, Area] | None = None
        for area in self._survey.areas_by_name.get(normalized(name), ()):
            if not 16 <= area.rank_address <= 25 or area.country != country:
                continue
            distance = float(shapely.distance(area.geometry, box))
            west, south, east, north = area.geometry.bounds
            x1, y1, x2, y2 = box.bounds
            if max(west - x2, x1 - east, south - y2, y1 - north) > _PLACE_DEGREES:
                continue
            if best is None or distance < best[0]:
                best = distance, area
        return best[1] if best else None

    def _way_of_node(self, node: int, box: Any) -> int | None:
        """Return the street that a node is part of, or that of the house that it is part of."""
        parent: int | None = None
        for row in self._survey.ways_of_node(node):
            if self._survey.rank_search[row] < 26:
                continue
            if self._survey.rank_search[row] < 28:
                return row
            member = (WAY, int(self._rows.osm_id[row]))
            streets = self._survey.source.associated_streets.get(member)
            if streets:
                parent = self._associated_street(streets, box)
        return parent

    def _area_around(self, point: Any) -> Area | None:
        found = self._survey.areas_around(point)
        return max(found, key=lambda area: area.rank_address, default=None)

    def _nearest_roads(self, rows: Integers, boxes: Any, numbers: list[int]) -> dict[int, int]:
        if not numbers or not len(self._roads):
            return {}
        found = self._road_tree.query_nearest(
            boxes[numbers], max_distance=_ROAD_DEGREES, all_matches=True
        )
        result: dict[int, int] = {}
        for position, road in sorted(zip(*found.tolist(), strict=True)):
            if numbers[position] in result:
                continue
            number = numbers[position]
            if self._road_countries[road] == self._survey.countries[rows[number]]:
                result[number] = int(self._roads[road])
            else:
                own = self._nearest_road_of_country(
                    boxes[number], self._survey.countries[rows[number]]
                )
                if own is not None:
                    result[number] = own
        return result

    def _nearest_road_of_country(self, box: Any, country: str | None) -> int | None:
        west, south, east, north = box.bounds
        reach = shapely.box(
            west - _ROAD_DEGREES,
            south - _ROAD_DEGREES,
            east + _ROAD_DEGREES,
            north + _ROAD_DEGREES,
        )
        found = self._road_tree.query(reach)
        found = found[self._road_countries[found] == country]
        if not len(found):
            return None
        distances = shapely.distance(self._road_geometries[found], box)
        nearest = int(np.argmin(distances))
        return int(self._roads[found[nearest]]) if distances[nearest] < _ROAD_DEGREES else None


def area_lines(finder: AddressFinder, areas: Sequence[Area]) -> list[list[Line]]:
    """Return the address lines of areas."""
    features = [
        Feature(
            area.display_point,
            area.display_point,
            area.country,
            area.rank_address,
            area.address,
        )
        for area in areas
    ]
    return finder.lines(features)


def _is_place_address(address: Mapping[str, str]) -> bool:
    return "street" not in address and "place" in address


def _tagged_postcode(country: str | None, address: Mapping[str, str]) -> str | None:
    text = address.get("postcode")
    return read_postcode(country, text) if text is not None else None


def postcode_of(lines: Sequence[Line]) -> str | None:
    """Return the postcode in the tags of the smallest area of an address, or None."""
    for line in reversed(lines):
        if line.is_address:
            text = line.area.address.get("postcode")
            if text is not None and "," not in text and ";" not in text:
                return text.strip().upper()
    return None
