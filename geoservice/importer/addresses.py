"""The areas that a street, a place or a house belongs to: the lines of its address.

Nominatim computes the lines once for each street and also keeps areas that lost against others:
where a boundary crosses a street, each part of the street gets the area that it is in. Houses take
the lines of their street, and prefer areas that their own tags name or that they lie in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import shapely

from geoservice.importer.areas import Area
from geoservice.importer.names import normalized, spellings, words
from geoservice.importer.ranks import address_tag_ranks, fuzzy_radius_m

#: Areas with an address rank below this one are part of a street's address.
STREET_RANK: Final = 25

# Factors on distances: Nominatim lets a city reach further than a town of the same address rank.
_REACH: Final = {(16, 15): 0.2, (16, 16): 0.25, (16, 18): 0.5}

# Address tags that do not name an area.
_NOT_AREAS: Final = frozenset(
    {"postcode", "housenumber", "street", "place", "country", "full", "inclusion", "interpolation"}
)

_EQUATOR_M: Final = 6_378_137.0
_FLATTENING_SQUARE: Final = 0.00669437999014
_UTM_SCALE: Final = 0.9996


@dataclass(frozen=True)
class Line:
    """One line of an address; unless `is_address`, it may apply to parts of a street only."""

    area: Area
    is_address: bool
    from_area: bool
    distance: float  # degrees


@dataclass(frozen=True)
class Feature:
    """An object whose address is computed."""

    geometry: Any
    centroid: Any
    country: str | None
    rank_max: int
    address: Mapping[str, str]


def square_around(point: Any, metres: float) -> Any:
    """Return the box that reaches `metres` from a point to each side."""
    lat = math.radians(point.y)
    curvature = 1.0 - _FLATTENING_SQUARE * math.sin(lat) ** 2
    meridian = _EQUATOR_M * (1.0 - _FLATTENING_SQUARE) / curvature**1.5
    parallel = _EQUATOR_M / math.sqrt(curvature) * math.cos(lat)
    # Nominatim draws the square in the UTM zone's projection, whose north differs from true north.
    from_middle = math.radians((point.x + 180.0) % 6.0 - 3.0)
    turned = math.cos(math.atan(math.tan(from_middle) * math.sin(lat)))
    stretched = _UTM_SCALE * (1.0 + (from_middle * math.cos(lat)) ** 2 / 2.0)
    metres *= turned / stretched
    dy = math.degrees(metres / meridian)
    dx = math.degrees(metres / max(parallel, 1.0))
    return shapely.box(point.x - dx, point.y - dy, point.x + dx, point.y + dy)


class AddressFinder:
    """A spatial index of all areas that may be part of an address."""

    def __init__(self, areas: Iterable[Area]) -> None:
        self._areas = [
            area
            for area in areas
            if area.linked_to is None
            and area.names
            and 4 < area.rank_search <= STREET_RANK
            and area.rank_address > 0
            and (area.is_area or area.geometry.geom_type == "Point")
        ]
        self._shapes = np.array(
            [
                area.geometry
                if area.is_area
                else square_around(area.centroid, fuzzy_radius_m(area.rank_search))
                for area in self._areas
            ],
            dtype=object,
        )
        self._boxes = shapely.bounds(self._shapes).reshape(-1, 4)
        self._centres = np.array([area.display_point for area in self._areas], dtype=object)
        self._ranks = np.array([area.rank_address for area in self._areas], dtype=np.int64)
        self._search_ranks = np.array([area.rank_search for area in self._areas], dtype=np.int64)
        self._tree = shapely.STRtree(self._shapes)
        self._contained: dict[tuple[int, int], bool] = {}
        self._numbers = {id(area): number for number, area in enumerate(self._areas)}
        self._words: dict[int, set[str]] = {}

    def lines(self, features: Sequence[Feature]) -> list[list[Line]]:
        """Return the lines of each feature, in Nominatim's order from large to small areas."""
        if not features or not self._areas:
            return [[] for _ in features]
        geometries = np.array([feature.geometry for feature in features], dtype=object)
        pairs = self._tree.query(geometries)
        ranks_max = np.array([feature.rank_max for feature in features])
        ranks = self._ranks[pairs[1]]
        keep = ranks < ranks_max[pairs[0]]
        keep &= ~(np.isin(ranks, (5, 11)) & (self._search_ranks[pairs[1]] > ranks_max[pairs[0]]))
        keep &= np.array(
            [
                features[f].country == self._areas[a].country
                for f, a in zip(pairs[0].tolist(), pairs[1].tolist(), strict=True)
            ],
            dtype=bool,
        )
        pairs = pairs[:, keep]
        pairs = pairs[:, self._belongs(geometries[pairs[0]], pairs[1])]
        distances = self._distances(features, pairs)
        found: list[list[tuple[float, int]]] = [[] for _ in features]
        for feature, area, distance in zip(
            pairs[0].tolist(), pairs[1].tolist(), distances.tolist(), strict=True
        ):
            found[feature].append((distance, area))
        return [
            self._choose(feature, candidates)
            for feature, candidates in zip(features, found, strict=True)
        ]

    def release(self, box: tuple[float, float, float, float]) -> None:
        """Free the prepared geometries of all areas except those that intersect a box.

        Prepared geometries take more memory than the outlines. The box is west, south, east, north,
        in degrees.
        """
        west, south, east, north = box
        boxes = self._boxes
        is_near = (boxes[:, 0] <= east) & (boxes[:, 2] >= west)
        is_near &= (boxes[:, 1] <= north) & (boxes[:, 3] >= south)
        shapely.destroy_prepared(self._shapes[~is_near])

    def _belongs(self, geometries: Any, numbers: Any) -> Any:
        """Return for each pair whether the feature lies in the area and does not only touch it."""
        shapes = self._shapes[numbers]
        shapely.prepare(shapes)
        belongs = shapely.covers(shapes, geometries)
        kinds = shapely.get_dimensions(geometries)
        unsure = np.flatnonzero(~belongs & (kinds == 1))
        unsure = unsure[shapely.intersects(shapes[unsure], geometries[unsure])]
        pieces = shapely.intersection(shapes[unsure], geometries[unsure])
        belongs[unsure] = shapely.get_num_coordinates(pieces) > 1
        areas = np.flatnonzero(~belongs & (kinds == 2))
        belongs[areas] = shapely.relate_pattern(shapes[areas], geometries[areas], "T********")
        return belongs

    def _distances(self, features: Sequence[Feature], pairs: Any) -> Any:
        geometries = np.array([feature.geometry for feature in features], dtype=object)
        centroids = np.array([feature.centroid for feature in features], dtype=object)
        to_centre = shapely.distance(geometries[pairs[0]], self._centres[pairs[1]])
        from_area = np.array([area.is_area for area in self._areas], dtype=bool)[pairs[1]]
        distances = to_centre.copy()
        distances[from_area] = (
            shapely.distance(centroids[pairs[0][from_area]], self._shapes[pairs[1][from_area]])
            + 0.00001 * to_centre[from_area]
        )
        return distances

    def _contains_centre(self, area: int, other: int) -> bool:
        key = (area, other)
        known = self._contained.get(key)
        if known is None:
            known = self._contained[key] = bool(
                shapely.contains(self._areas[area].geometry, self._centres[other])
            )
        return known

    def _choose(self, feature: Feature, candidates: list[tuple[float, int]]) -> list[Line]:
        taken = [False] * 32
        nearest = [1.0] * 32
        lines = self._lines_by_tags(feature, taken, nearest)
        named = {self._numbers[id(line.area)] for line in lines}
        candidates = [pair for pair in candidates if pair[1] not in named]
        candidates.sort(key=self._order)
        boundary: int | None = None
        node_box: Any = None
        for distance, number in candidates:
            area = self._areas[number]
            guess = not area.is_area
            rank = area.rank_address
            if guess and boundary is not None and not self._contains_centre(boundary, number):
                continue
            is_address = not taken[rank]
            if guess:
                if not is_address and distance > 2 * nearest[rank]:
                    continue
                nearest[rank] = min(nearest[rank], distance)
            if is_address:
                if guess and node_box is not None:
                    is_address = bool(shapely.contains(node_box, area.display_point))
                elif not guess and boundary is not None and rank not in (5, 11):
                    is_address = self._contains_centre(boundary, number)
            if is_address:
                taken[rank] = True
                if rank not in (5, 11):
                    if guess:
                        node_box = self._shapes[number]
                    else:
                        node_box = None
                        boundary = number
            lines.append(Line(area, is_address, not guess, distance))
        return lines

    def _order(self, pair: tuple[float, int]) -> tuple[int, bool, float]:
        distance, number = pair
        area = self._areas[number]
        reach = _REACH.get((area.rank_address, area.rank_search), 1.0)
        return area.rank_address, not area.is_area, distance * reach

    def _lines_by_tags(
        self, feature: Feature, taken: list[bool], nearest: list[float]
    ) -> list[Line]:
        """Find the areas that the feature's own tags name."""
        lines = [
            line
            for key, value in feature.address.items()
            if (line := self.find_named(key, value, feature)) is not None
        ]
        lines.sort(key=lambda line: (line.area.rank_address, line.distance, line.from_area))
        for line in lines:
            rank = line.area.rank_address
            taken[rank] = True
            if not line.from_area:
                nearest[rank] = min(nearest[rank], line.distance)
        return lines

    def find_named(self, key: str, value: str, feature: Feature) -> Line | None:
        """Return the nearby area that an address tag names, or None."""
        if key in _NOT_AREAS or key.startswith("_") or ":" in key:
            return None
        ranks = address_tag_ranks(key, feature.country)
        wanted = words([value])
        if ranks is None or not wanted:
            return None
        first, last, extent = ranks
        west, south, east, north = feature.geometry.bounds
        box = shapely.box(west - extent, south - extent, east + extent, north + extent)
        best: tuple[bool, float, int] | None = None
        for number in self._tree.query(box).tolist():
            area = self._areas[number]
            if not first <= area.rank_address <= last or area.country != feature.country:
                continue
            if normalized(value) not in spellings(area.names):
                continue
            distance = shapely.distance(feature.geometry, self._centres[number])
            inside = shapely.intersects(self._shapes[number], feature.geometry)
            candidate = (not inside, float(distance), number)
            if best is None or candidate < best:
                best = candidate
        if best is None:
            return None
        area = self._areas[best[2]]
        return Line(area, True, area.is_area, best[1])

    def area_words(self, area: Area) -> set[str]:
        """Return all words in the names of an area."""
        known = self._words.get(id(area))
        if known is None:
            known = self._words[id(area)] = words(area.names.values())
        return known


def own_lines(finder: AddressFinder, feature: Feature, parent: Iterable[Line]) -> list[Line]:
    """Find the areas that a house's tags name and that are not among its street's areas."""
    lines: list[Line] = []
    known: set[str] | None = None
    for key, value in feature.address.items():
        if address_tag_ranks(key, feature.country) is None or key in _NOT_AREAS:
            continue
        if known is None:
            known = set()
            for line in parent:
                known |= finder.area_words(line.area)
        if words([value]) <= known:
            continue
        found = finder.find_named(key, value, feature)
        if found is not None:
            lines.append(found)
    return lines


def shown_lines(
    lines: Sequence[Line],
    own: Sequence[Line],
    address: Mapping[str, str],
    point: Any,
) -> tuple[Area, ...]:
    """Return the areas of the address of an object at a point, from small to large."""
    values = frozenset(address.values())
    best: dict[int, tuple[tuple[bool, int, bool, float, int], Area]] = {}
    for is_own, group in ((True, own), (False, lines)):
        for line in group:
            rank = line.area.rank_address
            score = -1
            if values and not values.isdisjoint(line.area.names.values()):
                score = 2
            elif line.is_address:
                score = 0
            elif line.from_area and shapely.contains(line.area.geometry, point):
                score = 1
            key = (is_own, score, line.from_area, line.distance, line.area.rank_search)
            if rank not in best or key > best[rank][0]:
                best[rank] = (key, line.area)
    return tuple(best[rank][1] for rank in sorted(best, reverse=True))


def is_contested(lines: Sequence[Line]) -> bool:
    """Return whether parts of the feature may have different addresses."""
    return any(not line.is_address and line.from_area for line in lines)
