"""Streets over the world index: borders, enclaves, the date line, the poles, and invalid points."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoservice.importer.build import build_index
from geoservice.reverse.address_bytes import AddressBytes
from geoservice.reverse.geocoder import Geocoder, ReverseResult
from tests.geoservice.small_extract import SOUTH, STEP, STREETS, WEST, write_extract

latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)
END = STREETS * STEP


@pytest.fixture(scope="module")
def streets(street_path: Path) -> Geocoder:
    return Geocoder.open(street_path)


@pytest.fixture(scope="module")
def at_the_date_line(world_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Geocoder:
    """Return the same town, moved so that its eastern end is ten metres before the date line."""
    folder = tmp_path_factory.mktemp("date line")
    write_extract(folder / "east.osm.pbf", west=180 - END - 1e-4)
    build_index([folder / "east.osm.pbf"], folder / "east.geo", world=world_path)
    return Geocoder.open(folder / "east.geo")


def is_street(result: ReverseResult) -> bool:
    return result.place is not None and result.place.osm_type is not None


@settings(max_examples=300)
@given(latitudes, longitudes)
def test_every_point_on_earth_has_one_answer_however_it_is_asked(
    streets: Geocoder, lat: float, lon: float
) -> None:
    single = streets.reverse(lat, lon)
    [batch] = streets.reverse_batch([lat], [lon])
    assert single == batch
    assert single.distance is None or (math.isfinite(single.distance) and single.distance >= 0)
    assert single.display_name
    [written] = AddressBytes(streets).batch(array("d", [lat]), array("d", [lon]))
    assert written.startswith(b'"display_name":"')


@settings(max_examples=200)
@given(latitudes, longitudes)
def test_away_from_the_extract_the_world_answers(
    streets: Geocoder, geocoder: Geocoder, lat: float, lon: float
) -> None:
    if abs(lat - SOUTH) < 0.2 and abs(lon - WEST) < 0.3:
        return
    layered, world = streets.reverse(lat, lon), geocoder.reverse(lat, lon)
    assert (layered.place, layered.distance) == (world.place, world.distance)
    assert layered.index_version == streets.index_version != world.index_version


@settings(max_examples=200)
@given(latitudes, longitudes)
def test_in_degrees_only_the_country_is_answered_away_from_the_extract(
    streets: Geocoder, geocoder: Geocoder, lat: float, lon: float
) -> None:
    if abs(lat - SOUTH) < 0.2 and abs(lon - WEST) < 0.3:
        return
    as_nominatim = streets.reverse(lat, lon, distance="degrees")
    [batch] = streets.reverse_batch([lat], [lon], distance="degrees")
    country = geocoder.reverse(lat, lon, zoom=3)
    assert as_nominatim == batch
    assert as_nominatim.address.get("country_code") == country.address.get("country_code")
    assert as_nominatim.address.keys() <= {"country", "country_code"}


@settings(max_examples=200)
@given(st.floats(SOUTH, SOUTH + END - STEP), st.floats(WEST, WEST + END))
def test_in_the_extract_a_street_answers(streets: Geocoder, lat: float, lon: float) -> None:
    result = streets.reverse(lat, lon)
    assert is_street(result)
    # No street is farther away than half the distance between two of them, and the house in the
    # answer is near the nearest point of its street.
    assert result.distance is not None and result.distance <= 1.5 * STEP * 111_195


def test_leaving_the_extract_the_answers_change_once(streets: Geocoder) -> None:
    """Going north: the last street, areas of the extract, then the world, never back."""
    seen: list[str] = []
    for step in range(400):
        result = streets.reverse(SOUTH + END + step * 5e-4, WEST + END / 2)
        place = result.place
        assert place is not None
        kind = "world" if place.osm_type is None else place.category
        if kind in ("amenity", "building", "place"):
            kind = "highway"  # buildings along the last street
        if not seen or seen[-1] != kind:
            seen.append(kind)
    assert seen[0] == "highway" and seen[-1] == "world"
    assert len(seen) == len(set(seen)), seen


@settings(max_examples=100)
@given(latitudes)
def test_both_names_of_the_date_line_are_one_place(streets: Geocoder, lat: float) -> None:
    east, west = streets.reverse(lat, 180.0), streets.reverse(lat, -180.0)
    assert (east.place, east.distance) == (west.place, west.distance)


@settings(max_examples=100)
@given(st.sampled_from([-90.0, 90.0]), longitudes, longitudes)
def test_a_pole_is_one_place(streets: Geocoder, lat: float, one: float, other: float) -> None:
    assert streets.reverse(lat, one).place == streets.reverse(lat, other).place


def test_a_street_is_near_from_the_other_side_of_the_date_line(
    at_the_date_line: Geocoder,
) -> None:
    lat = SOUTH + 2 * STEP
    there = at_the_date_line.reverse(lat, 179.9999)
    for lon, metres in ((180.0, 7.6), (-180.0, 7.6), (-179.9995, 45.5)):
        result = at_the_date_line.reverse(lat, lon)
        assert is_street(result), lon
        assert result.place is not None and there.place is not None
        assert result.place.osm_id == there.place.osm_id
        assert result.distance is not None and there.distance is not None
        assert abs(result.distance - there.distance) <= metres + 0.1
    assert not is_street(at_the_date_line.reverse(lat, -179.9))


@pytest.mark.parametrize(
    ("name", "lat", "lon", "country"),
    [
        ("Maseru", -29.31, 27.48, "ls"),
        ("San Marino", 43.936, 12.447, "sm"),
        ("Vatican", 41.902, 12.453, "va"),
        ("Büsingen", 47.697, 8.690, "de"),
        ("Llívia", 42.4645, 1.9806, "es"),
        ("Campione", 45.969, 8.971, "it"),
        ("Ceuta", 35.889, -5.316, "es"),
        ("Kaliningrad", 54.71, 20.51, "ru"),
        ("Lesotho's middle", -29.5, 28.3, "ls"),
    ],
)
def test_enclaves_and_exclaves_belong_to_their_own_country(
    streets: Geocoder, name: str, lat: float, lon: float, country: str
) -> None:
    assert streets.reverse(lat, lon).address["country_code"] == country, name


@pytest.mark.parametrize(
    ("lat", "lon", "country"),
    [
        (47.6603, 9.1750, "de"),  # Konstanz
        (47.6500, 9.1750, "ch"),  # Kreuzlingen
        (47.1660, 9.5100, "li"),  # Schaan
        (47.1650, 9.4770, "ch"),  # Buchs
        (49.6117, 6.1300, "lu"),
        (43.7384, 7.4246, "mc"),
        (36.1408, -5.3536, "gi"),
        (22.3193, 114.1694, "hk"),
    ],
)
def test_beside_a_border_the_town_is_that_of_the_right_country(
    streets: Geocoder, lat: float, lon: float, country: str
) -> None:
    assert streets.reverse(lat, lon).address["country_code"] == country


@pytest.mark.parametrize(
    ("lat", "lon"),
    [
        (math.nan, 0.0),
        (0.0, math.nan),
        (math.inf, 0.0),
        (0.0, -math.inf),
        (90.000001, 0.0),
        (-91.0, 0.0),
        (0.0, 180.000001),
        (0.0, -1e308),
    ],
)
def test_what_is_no_point_is_refused_wherever_it_stands(
    streets: Geocoder, geocoder: Geocoder, lat: float, lon: float
) -> None:
    for each in (streets, geocoder):
        with pytest.raises(ValueError):
            each.reverse(lat, lon)
        for place in (0, 1, 2):
            lats, lons = [47.1] * 3, [9.5] * 3
            lats[place], lons[place] = lat, lon
            with pytest.raises(ValueError):
                each.reverse_batch(lats, lons)


@settings(max_examples=100)
@given(st.lists(st.tuples(latitudes, longitudes), max_size=30))
def test_a_batch_answers_as_its_points_alone(
    streets: Geocoder, points: list[tuple[float, float]]
) -> None:
    lats, lons = [lat for lat, _ in points], [lon for _, lon in points]
    assert streets.reverse_batch(lats, lons) == [streets.reverse(*point) for point in points]


def test_subnormal_and_negative_zero_are_points(streets: Geocoder) -> None:
    assert streets.reverse(-0.0, -0.0).place == streets.reverse(5e-324, -5e-324).place
