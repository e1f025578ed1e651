"""The street kernel compared with brute force by shapely, on an invented town."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geoservice.importer.addresses import AddressFinder
from geoservice.importer.addressing import AddressedStreet, Tile
from geoservice.importer.build import build_index
from geoservice.importer.countries import Countries
from geoservice.importer.postcodes import Postcodes
from geoservice.importer.reading import read_extracts
from geoservice.importer.row_attributes import survey_rows
from geoservice.reverse.geocoder import Geocoder
from tests.geoservice.small_extract import SOUTH, STEP, STREETS, WEST, write_extract

REACH = 0.007
NEAR = 0.001
SIZE = STEP * STREETS
ADDRESS = frozenset({"address"})

_Key = tuple[str, int, str]


@dataclass
class Thing:
    """A street, a house or a point of interest."""

    key: _Key
    geometry: Any
    centre: Any
    is_street: bool
    is_house: bool
    is_poi: bool
    parent: _Key | None


class BruteForce:
    """A search that compares every object of the extract."""

    def __init__(self, extract: Path, directory: Path) -> None:
        source = read_extracts([extract], directory, lambda _text, _part: None)
        countries = Countries(source, Geocoder.open())
        survey = survey_rows(source, countries)
        whole = (-(2**31), -(2**31), 2**31 - 1, 2**31 - 1)
        tile = Tile(
            survey,
            AddressFinder(survey.areas),
            Postcodes(source, survey.centres, survey.countries, countries),
            whole,
        )
        types = ("node", "way", "relation")

        def key(row: int) -> _Key:
            osm_type = types[source.rows.osm_type[row]]
            return osm_type, int(source.rows.osm_id[row]), survey.category(row)

        self.things = [
            Thing(
                key(street.row), street.geometry, survey.centres.point(street.row),
                True, False, False, None,
            )
            for street in tile.streets()
        ]  # fmt: skip
        for house in tile.houses():
            category = survey.category(house.row)
            self.things.append(
                Thing(
                    key(house.row),
                    house.geometry,
                    survey.centres.point(house.row),
                    False,
                    "housenumber" in house.tags.address and not house.is_inherited,
                    category not in ("place", "building"),
                    key(house.parent.row) if isinstance(house.parent, AddressedStreet) else None,
                )
            )
        self.areas = [
            (area.rank_search, area.geometry, area.names.get("name"))
            for area in survey.areas
            if area.is_area and area.linked_to is None
        ]
        source.rows.close()

    def nearest(
        self, lat: float, lon: float, layers: frozenset[str], degrees: bool
    ) -> tuple[set[_Key], float]:
        """Return the acceptable answers (several are equally near), and the distance in degrees."""
        scale = 1.0 if degrees else math.cos(math.radians(lat))
        point = shapely.Point(lon * scale, lat)

        def flat(geometry: Any) -> Any:
            return shapely.transform(geometry, lambda points: points * np.array([scale, 1.0]))

        candidates = []
        for thing in self.things:
            wanted = ("address" in layers and (thing.is_street or thing.is_house)) or (
                "poi" in layers and thing.is_poi
            )
            if not wanted:
                continue
            geometry = flat(thing.geometry)
            distance = shapely.distance(geometry, point)
            if distance >= REACH or (
                geometry.geom_type == "Polygon"
                and shapely.distance(flat(thing.centre), point) >= REACH
            ):
                continue
            candidates.append((distance, thing, geometry))
        if not candidates:
            return set(), math.nan
        best = min(distance for distance, _, _ in candidates)
        first = [entry for entry in candidates if entry[0] <= best + 1e-10]
        found: set[_Key] = set()
        for _, thing, geometry in first:
            found.add(thing.key)
            if thing.is_street:
                foot = shapely.line_interpolate_point(
                    geometry, shapely.line_locate_point(geometry, point)
                )
                houses = [
                    (shapely.distance(flat(other.centre), foot), other.key)
                    for distance, other, _ in candidates
                    if other.parent == thing.key
                    and other.is_house
                    and distance < best + NEAR
                    and shapely.distance(flat(other.centre), foot) < NEAR
                ]
                if houses:
                    found.discard(thing.key)
                    shortest = min(distance for distance, _ in houses)
                    found.update(key for distance, key in houses if distance <= shortest + 1e-9)
            elif best == 0.0:
                # A point inside an outline may be more specific than the outline.
                found.update(
                    other.key
                    for distance, other, _ in candidates
                    if other.key[0] == "node"
                    and distance < NEAR
                    and geometry.covers(flat(other.centre))
                )
        return found, best


@pytest.fixture(scope="module")
def extract(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("extract") / "town.osm.pbf"
    write_extract(path)
    return path


@pytest.fixture(scope="module")
def geocoder(extract: Path) -> Geocoder:
    path = extract.with_name("town.geo")
    build_index([extract], path)
    return Geocoder.open(path)


@pytest.fixture(scope="module")
def brute_force(extract: Path, tmp_path_factory: pytest.TempPathFactory) -> BruteForce:
    return BruteForce(extract, tmp_path_factory.mktemp("rows"))


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.floats(-0.6, 1.6),
    st.floats(-0.6, 1.6),
    st.sampled_from([ADDRESS, frozenset({"poi"}), frozenset({"address", "poi"})]),
    st.booleans(),
)
def test_any_point_gets_what_brute_force_finds(
    geocoder: Geocoder,
    brute_force: BruteForce,
    north: float,
    east: float,
    layers: frozenset[str],
    degrees: bool,
) -> None:
    lat, lon = SOUTH + north * SIZE, WEST + east * SIZE
    distance = "degrees" if degrees else "metres"
    result = geocoder.reverse(lat, lon, layers=layers, distance=distance)
    place = result.place
    expected, _ = brute_force.nearest(lat, lon, layers, degrees)
    if not expected and "address" not in layers:
        assert place is None
        return
    assert place is not None
    if place.category == "place" and place.type == "house" and place.name == "":
        if any(key[0] == "way" and place.osm_id == key[1] for key in expected):
            return
        if place.osm_type == "way":
            return  # an interpolated number has a test of its own
    if expected:
        assert (place.osm_type, place.osm_id, place.category) in expected
    elif "address" in layers:
        assert place.category in ("boundary", "place")


@settings(max_examples=80)
@given(st.floats(-3, 4), st.floats(-3, 4))
def test_far_from_streets_the_smallest_area_around_is_answered(
    geocoder: Geocoder, brute_force: BruteForce, north: float, east: float
) -> None:
    lat, lon = SOUTH + north * SIZE, WEST + east * SIZE
    result = geocoder.reverse(lat, lon, zoom=10)
    point = shapely.Point(lon, lat)
    around = [
        (rank, name)
        for rank, geometry, name in brute_force.areas
        if rank <= 16 and geometry.contains(point)
    ]
    assert result.place is not None
    if around:
        assert result.place.name == max(around)[1]
    else:
        assert result.place.osm_type is None


@pytest.mark.parametrize("zoom", range(19))
def test_each_zoom_answers_nothing_finer(geocoder: Geocoder, zoom: int) -> None:
    ranks = (2, 2, 2, 4, 4, 8, 10, 10, 12, 12, 16, 17, 18, 19, 22, 25, 26, 27, 30)
    place = geocoder.reverse(SOUTH + 0.4 * SIZE, WEST + 0.4 * SIZE, zoom=zoom).place
    assert place is not None
    assert place.place_rank <= max(4, ranks[zoom])


def test_a_batch_answers_as_single_questions(geocoder: Geocoder) -> None:
    points = np.random.default_rng(7).uniform(-0.5, 1.5, (200, 2)) * SIZE
    lats, lons = (points[:, 0] + SOUTH).tolist(), (points[:, 1] + WEST).tolist()
    assert geocoder.reverse_batch(lats, lons) == [
        geocoder.reverse(lat, lon) for lat, lon in zip(lats, lons, strict=True)
    ]


@pytest.mark.parametrize(
    ("lat", "lon"),
    [(90.0, 0.0), (-90.0, 0.0), (90.0, 180.0), (0.0, 180.0), (0.0, -180.0), (-45.0, -140.0)],
)
def test_poles_date_line_and_sea_are_answered_by_the_world(
    geocoder: Geocoder, lat: float, lon: float
) -> None:
    result = geocoder.reverse(lat, lon)
    assert result.place is None or result.place.osm_type is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 91.0, -90.1])
def test_what_is_no_latitude_is_refused(geocoder: Geocoder, bad: float) -> None:
    with pytest.raises(ValueError, match="latitude"):
        geocoder.reverse(bad, 0.0)
    with pytest.raises(ValueError, match="point 1"):
        geocoder.reverse_batch([1.0, bad], [1.0, 1.0])


def test_a_street_on_the_date_line_is_found_from_both_sides(tmp_path: Path) -> None:
    write_extract(tmp_path / "line.osm.pbf", west=180.0 - SIZE)
    build_index([tmp_path / "line.osm.pbf"], tmp_path / "line.geo")
    geocoder = Geocoder.open(tmp_path / "line.geo")
    lat = SOUTH + 3 * STEP
    for lon in (180.0, -180.0, -179.9995, 179.9995):
        place = geocoder.reverse(lat, lon, layers=ADDRESS).place
        assert place is not None
        assert place.address["road"] == "3. Querstraße"


def test_an_interpolated_number_lies_between_its_neighbours(geocoder: Geocoder) -> None:
    for share, number in ((0.25, 10), (0.5, 20), (0.75, 30)):
        result = geocoder.reverse(SOUTH - 1.05 * STEP, WEST + share * SIZE, layers=ADDRESS)
        assert result.address["road"] == "Am Rand"
        assert abs(int(result.address["house_number"]) - number) <= 2
        assert int(result.address["house_number"]) % 2 == 0


def test_names_are_answered_in_the_wanted_language(geocoder: Geocoder) -> None:
    lat, lon = SOUTH + 3 * STEP, WEST + 0.5 * SIZE
    french = geocoder.reverse(lat, lon, zoom=17, languages=("fr",))
    assert french.address["road"] == "Rue 3"
    assert geocoder.reverse(lat, lon, zoom=17).address["road"] == "3. Querstraße"
    assert french.place is not None
    assert geocoder.namedetails(french.place) == {"name": "3. Querstraße", "name:fr": "Rue 3"}
