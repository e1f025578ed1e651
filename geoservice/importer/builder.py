"""The conversion of surveyed rows to the sections of an index."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import shapely

from geoservice.importer.addresses import AddressFinder, Line, is_contested, shown_lines
from geoservice.importer.addressing import (
    TILE_DEGREES,
    AddressedHouse,
    AddressedStreet,
    Tile,
    area_lines,
    postcode_of,
)
from geoservice.importer.area_sections import PlaceNode, Polygon, area_sections
from geoservice.importer.areas import Area
from geoservice.importer.countries import Countries
from geoservice.importer.country_names import CountryNames
from geoservice.importer.interpolation import place_interpolations
from geoservice.importer.postcodes import Postcodes
from geoservice.importer.ranks import address_label
from geoservice.importer.replication import read_state
from geoservice.importer.row_attributes import RowAttributes
from geoservice.importer.rows import AREA, DEGREE, LINE, NODE, POINT
from geoservice.importer.tags import ADMIN_LEVEL_NONE
from geoservice.importer.writer import Addresses, Objects, Strings, group_by
from geoservice.index import format as file_format
from geoservice.index import street_format as sections
from geoservice.index.display_names import display_name
from geoservice.search.streets import build_street_search

ATTRIBUTION: Final = "Data © OpenStreetMap contributors, ODbL 1.0. http://osm.org/copyright"

_NATURAL: Final = frozenset({"natural", "water", "waterway"})

_NUMBER_KEYS: Final = ("housenumber", "streetnumber", "conscriptionnumber")


@dataclass(frozen=True)
class Built:
    """A summary of the index that was built."""

    path: Path
    size_bytes: int
    version: str
    objects: int
    houses: int
    streets: int
    areas: int


class Builder:
    """A builder that converts a survey to the sections of an index."""

    def __init__(self, survey: RowAttributes, countries: Countries, directory: Path) -> None:
        self._survey = survey
        self._countries = countries
        self._rows = survey.source.rows
        self._data_time = survey.source.data_time
        strings = Strings(directory)
        self._strings = strings
        self.objects = Objects(strings, directory)
        self._country_names = CountryNames(survey.source.country_names, countries.complete)
        self._addresses = Addresses(strings, self._country_names, directory)
        self._finder = AddressFinder(survey.areas)
        self._postcodes = Postcodes(survey.source, survey.centres, survey.countries, countries)
        self._object_of_row = np.full(len(self._rows), -1, dtype=np.int32)
        self._parent_rows = array("i")  # pairs: object, row
        self._polygons: list[Polygon] = []
        self._nodes: list[PlaceNode] = []
        self._inside = array("i")  # pairs: outline, point
        self._counts = {"streets": 0, "houses": 0}

    def run(self, report: Callable[[str, float], None]) -> None:
        """Add all objects, tile by tile."""
        self._add_areas()
        tiles = self._tiles()
        for number, box in enumerate(tiles):
            report("streets and houses", number / max(1, len(tiles)))
            tile = Tile(self._survey, self._finder, self._postcodes, box)
            for street in tile.streets():
                self._add_street(street)
            for feature in tile.features():
                self._add_feature(feature)
            points: list[tuple[int, Any]] = []
            containers: list[tuple[int, Any]] = []
            for house in tile.houses():
                self._add_house(house, points, containers)
            self._find_inside(points, containers)
            for interpolated in place_interpolations(tile, self._survey, box):
                self._add_interpolation(interpolated)
            west, south, east, north = (edge / DEGREE for edge in box)
            self._finder.release((west, south, east, north))
            self._rows.release()
        report("writing", 1.0)
        self._bounds = self._survey.source.bounds or self._data_bounds()
        self._postcode_count = len(self._postcodes)
        # Free memory before the index is written.
        del self._survey, self._finder, self._postcodes, self._countries

    def _tiles(self) -> list[tuple[int, int, int, int]]:
        size = round(TILE_DEGREES * DEGREE)
        centres = self._survey.centres
        columns = centres.lon.astype(np.int64) // size
        rows = centres.lat.astype(np.int64) // size
        pairs = np.unique(np.stack([columns, rows], axis=1), axis=0)
        return [
            (column * size, row * size, (column + 1) * size, (row + 1) * size)
            for column, row in pairs.tolist()
        ]

    # -- areas -----------------------------------------------------------------------------------

    def _add_areas(self) -> None:
        areas = self._survey.areas
        for area, lines in zip(areas, area_lines(self._finder, areas), strict=True):
            around = shown_lines(lines, [], area.address, area.display_point)
            postcode = _area_postcode(area, lines, self._postcodes)
            tail = self._addresses.number([area, *around], postcode, area.country)
            row = area.row
            point = _integer_point(area.display_point)
            number = self.objects.append(
                osm_type=area.osm_type,
                osm_id=area.osm_id,
                kind=self.objects.kind(area.category, area.type, area.label),
                names=area.shown_names,
                shown=display_name(area.shown_names),
                extratags=_with_level(area),
                parent=-1,
                number=None,
                unlisted=None,
                tail=tail,
                point=point,
                box=self._survey.centres.boxes[row],
                ranks=(area.rank_search, area.rank_address),
                flags=sections.FLAG_IN_TAIL
                | _node_flag(area.osm_type)
                | (sections.FLAG_LINKED if area.linked_to is not None else 0),
            )
            assert number == area.number
            self._object_of_row[row] = number
            if area.linked_to is not None or not area.names:
                continue
            if area.is_area and area.rank_search >= 4 and area.rank_address not in (5, 11):
                self._polygons.append(
                    Polygon(number, area.rank_search, area.rank_address, 0, row, area.geometry.area)
                )
            elif area.osm_type == NODE and area.rank_search > 4:
                self._nodes.append(PlaceNode(number, area.rank_search, *point))

    # -- streets ---------------------------------------------------------------------------------

    def _add_street(self, street: AddressedStreet) -> None:
        self._counts["streets"] += 1
        row = street.row
        rank = int(self._survey.rank_address[row])
        layers = sections.LAYER_STREET if rank == 26 else sections.LAYER_PATH
        centre = self._survey.centres.point(row)
        tail = self._tail(street, centre)
        number = self._append(
            street.row,
            street.tags.names,
            street.tags.extratags,
            tail,
            house_number=_house_number(street.tags.address),
        )
        if self._rows.kind[row] == AREA:
            point = (int(self._survey.centres.lon[row]), int(self._survey.centres.lat[row]))
            self.objects.add_area(number, tail, layers, street.geometry, point)
        elif not is_contested(street.lines):
            self.objects.add_line(number, tail, layers, street.geometry)
        else:
            for piece in self._pieces(street):
                middle = shapely.line_interpolate_point(piece, 0.5, normalized=True)
                self.objects.add_line(number, self._tail(street, middle), layers, piece)

    def _tail(self, street: AddressedStreet, point: Any) -> int:
        areas = shown_lines(street.lines, [], street.tags.address, point)
        return self._addresses.number(areas, _shown_postcode(street), street.country)

    def _pieces(self, street: AddressedStreet) -> list[Any]:
        """Cut the street where it crosses from one area into another."""
        pieces = [street.geometry]
        for line in street.lines:
            if line.is_address or not line.from_area:
                continue
            area = line.area.geometry
            cut: list[Any] = []
            for piece in pieces:
                if not shapely.intersects(area, piece) or shapely.covers(area, piece):
                    cut.append(piece)
                    continue
                for side in (
                    shapely.intersection(piece, area),
                    shapely.difference(piece, area),
                ):
                    cut.extend(
                        part
                        for part in shapely.get_parts(side)
                        if part.geom_type == "LineString" and not part.is_empty
                    )
            pieces = cut
        return pieces

    def _append(
        self,
        row: int,
        names: Mapping[str, str],
        extratags: Mapping[str, str],
        tail: int,
        *,
        parent: int = -1,
        house_number: str | None = None,
        unlisted: str | None = None,
        flags: int = 0,
    ) -> int:
        survey = self._survey
        category, type_ = survey.category(row), survey.type(row)
        rank = int(survey.rank_address[row])
        label = address_label(category, type_, rank, None, survey.countries[row])
        number = self.objects.append(
            osm_type=int(self._rows.osm_type[row]),
            osm_id=int(self._rows.osm_id[row]),
            kind=self.objects.kind(category, type_, label),
            names=names,
            shown=display_name(names),
            extratags=extratags,
            parent=parent,
            number=house_number,
            unlisted=unlisted,
            tail=tail,
            point=(int(survey.centres.lon[row]), int(survey.centres.lat[row])),
            box=survey.centres.boxes[row],
            ranks=(int(survey.rank_search[row]), rank),
            flags=flags | _node_flag(int(self._rows.osm_type[row])),
        )
        self._object_of_row[row] = number
        return number

    def _add_feature(self, feature: AddressedStreet) -> None:
        if not feature.tags.names:
            return
        row = feature.row
        centre = self._survey.centres.point(row)
        tail = self._tail(feature, centre)
        number = self._append(row, feature.tags.names, feature.tags.extratags, tail)
        category = self._survey.category(row)
        layers = sections.LAYER_MANMADE
        if category in _NATURAL:
            layers = sections.LAYER_NATURAL
        elif category == "railway":
            layers = sections.LAYER_RAILWAY
        point = (int(self._survey.centres.lon[row]), int(self._survey.centres.lat[row]))
        kind = self._rows.kind[row]
        if kind == POINT:
            self.objects.add_point(number, tail, layers, point)
        elif kind == LINE:
            self.objects.add_line(number, tail, layers, feature.geometry)
        else:
            rank = int(self._survey.rank_search[row])
            self._polygons.append(Polygon(number, rank, 0, layers, row, feature.geometry.area))

    # -- houses ----------------------------------------------------------------------------------

    def _add_house(
        self,
        house: AddressedHouse,
        points: list[tuple[int, Any]],
        containers: list[tuple[int, Any]],
    ) -> None:
        row = house.row
        address = house.tags.address
        counts = any(number_counts(address[key]) for key in _NUMBER_KEYS if key in address)
        kind = self._rows.kind[row]
        rank = int(self._survey.rank_address[row])
        layers = 0
        if (
            rank == 30
            and not house.is_inherited
            and (counts or "addr:housename" in house.tags.names)
        ):
            layers |= sections.LAYER_HOUSE
        category = self._survey.category(row)
        if (
            self._survey.rank_search[row] == 30
            and category not in ("place", "building")
            and kind != LINE
        ):
            layers |= sections.LAYER_POI
        if not layers:
            return
        self._counts["houses"] += bool(layers & sections.LAYER_HOUSE)
        areas = house.areas
        parent = -1
        if isinstance(house.parent, Area):
            areas = tuple(sorted((house.parent, *areas), key=lambda area: -area.rank_address))
            parent = house.parent.number
        tail = self._addresses.number(areas, house.postcode, house.country)
        number = self._append(
            row,
            house.tags.names,
            house.tags.extratags,
            tail,
            parent=parent,
            house_number=_house_number(address),
            unlisted=house.unlisted_place,
            flags=sections.FLAG_NUMBER_COUNTS if counts else 0,
        )
        if isinstance(house.parent, AddressedStreet):
            self._parent_rows.extend((number, house.parent.row))
        point = (int(self._survey.centres.lon[row]), int(self._survey.centres.lat[row]))
        if kind == AREA:
            self.objects.add_area(number, tail, layers, house.geometry, point)
            containers.append((number, house.geometry))
        elif kind == LINE:
            self.objects.add_line(number, tail, layers, house.geometry)
        else:
            self.objects.add_point(number, tail, layers, point)
            points.append((number, house.geometry))

    def _find_inside(
        self, points: list[tuple[int, Any]], containers: list[tuple[int, Any]]
    ) -> None:
        """Record which points lie in which outlines of the same tile."""
        if not points or not containers:
            return
        tree = shapely.STRtree([geometry for _, geometry in points])
        found = tree.query([geometry for _, geometry in containers], predicate="covers")
        for container, point in zip(*found.tolist(), strict=True):
            self._inside.extend((containers[container][0], points[point][0]))

    def _add_interpolation(self, interpolated: Any) -> None:
        street = interpolated.street
        areas = shown_lines(street.lines, [], {}, interpolated.middle)
        tail = self._addresses.number(areas, interpolated.postcode, street.country)
        point = _integer_point(interpolated.middle)
        bounds = np.rint(np.array(interpolated.geometry.bounds) * DEGREE).astype(np.int64)
        number = self.objects.append(
            osm_type=1,
            osm_id=interpolated.osm_id,
            kind=self.objects.kind("place", "house", "place"),
            names={},
            shown="",
            extratags={},
            parent=-1,
            number=None,
            unlisted=None,
            tail=tail,
            point=point,
            box=bounds.tolist(),
            ranks=(30, 30),
            flags=0,
        )
        self._parent_rows.extend((number, street.row))
        self.objects.interpolations.extend(
            (number, interpolated.first, interpolated.last, interpolated.step)
        )
        self.objects.add_line(number, tail, sections.LAYER_INTERPOLATION, interpolated.geometry)

    # -- writing ---------------------------------------------------------------------------------

    def write(self, output: Path, paths: Sequence[Path]) -> Built:
        """Write the index file."""
        self.objects.finish()
        parents = self.objects.column("parent")
        pairs = np.frombuffer(self._parent_rows, dtype=np.int32).reshape(-1, 2)
        parents[pairs[:, 0]] = self._object_of_row[pairs[:, 1]]
        del pairs, self._parent_rows, self._object_of_row
        count = len(self.objects)
        content: dict[str, Any] = {}
        content |= self._addresses.sections()
        content[sections.COUNTRIES] = self._country_section()
        content |= self.objects.sections()
        content |= self.objects.names.sections()
        content |= self._groups(parents, count)
        content[sections.OBJECT_ORDER] = self.objects.order()
        content |= area_sections(self._polygons, self._nodes, self._rows)
        content |= self._strings.sections()
        content |= build_street_search(content)
        meta = {
            "kind": "streets",
            "attribution": ATTRIBUTION,
            "licence": "ODbL 1.0",
            "data_time": self._data_time,
            "sources": [path.name for path in paths],
            "replication": [read_state(path).describe() for path in paths],
            "bounds": self._bounds,
            "objects": count,
            "streets": self._counts["streets"],
            "house_numbers": self._counts["houses"],
            "areas": len(self._polygons),
            "postcodes": self._postcode_count,
        }
        version = file_format.write_index(
            output, {file_format.META: msgspec.json.encode(meta), **content}
        )
        return Built(
            path=output,
            size_bytes=output.stat().st_size,
            version=version[:12],
            objects=count,
            houses=self._counts["houses"],
            streets=self._counts["streets"],
            areas=len(self._polygons),
        )

    def close(self) -> None:
        """Remove the temporary files."""
        self.objects.close()
        self._addresses.close()
        self._strings.close()

    def _data_bounds(self) -> list[tuple[float, ...]]:
        streets = self._survey.centres.boxes[self._survey.is_street]
        if not len(streets):
            return []
        low, high = streets[:, :2].min(axis=0), streets[:, 2:].max(axis=0)
        return [tuple((np.concatenate([low, high]) / DEGREE).tolist())]

    def _groups(self, parents: Any, count: int) -> dict[str, bytes]:
        flags = self.objects.column("ranks") >> 16
        # Group objects with a house number by street. A point of interest without an address has
        # taken that of the building around it.
        houses = np.flatnonzero((flags & sections.FLAG_NUMBER_COUNTS != 0) & (parents >= 0))
        shapes = self.objects.first_shapes()
        house_ends, members = group_by(parents[houses], shapes[houses], count)
        inside = np.frombuffer(self._inside, dtype=np.int32).reshape(-1, 2)
        inside_ends, points = group_by(inside[:, 0], shapes[inside[:, 1]], count)
        return {
            sections.HOUSE_ENDS: house_ends,
            sections.HOUSES: members,
            sections.INSIDE_ENDS: inside_ends,
            sections.INSIDE: points,
        }

    def _country_section(self) -> bytes:
        names = self.objects.names
        pairs = [
            (self._strings.number(code), names.number(self._country_names.names(code)))
            for code in self._addresses.countries
        ]
        return np.array(pairs, dtype="<i4").tobytes()


def _house_number(address: Mapping[str, str]) -> str | None:
    return next((address[key] for key in _NUMBER_KEYS if key in address), None)


def number_counts(text: str) -> bool:
    """Return whether the text is a house number, and not a name in its place."""
    for part in text.split(","):
        if len(part) >= 3 and not any(letter.isdigit() for letter in part):
            return False
    return bool(text.strip(" ,;"))


def _node_flag(osm_type: int) -> int:
    return sections.FLAG_NODE if osm_type == NODE else 0


def _with_level(area: Area) -> dict[str, str]:
    if area.is_boundary and area.admin_level < ADMIN_LEVEL_NONE:
        return {**area.extratags, "admin_level": str(area.admin_level)}
    return area.extratags


def _integer_point(point: Any) -> tuple[int, int]:
    return round(point.x * DEGREE), round(point.y * DEGREE)


def _area_postcode(area: Area, lines: Sequence[Line], postcodes: Postcodes) -> str | None:
    text = area.address.get("postcode")
    if text is not None and "," not in text and ";" not in text:
        return text.strip().upper()
    postcode = postcode_of(lines)
    if postcode is not None:
        return postcode
    if area.rank_search <= 8:
        return None
    if area.is_area:
        return postcodes.inside(area.geometry, area.country)
    return postcodes.nearest(np.array([area.geometry], dtype=object), [area.country])[0]


def _shown_postcode(street: AddressedStreet) -> str | None:
    if street.postcode is not None:
        return street.postcode
    text = street.tags.address.get("postcode", ",")
    return text if "," not in text and ";" not in text else None
