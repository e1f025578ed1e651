"""Serialised addresses equal the geocoder's answers, member by member."""

from __future__ import annotations

import random
from array import array
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoservice.index.address_json import AddressWriter, TownWriter
from geoservice.reverse.address_bytes import AddressBytes, members_of
from geoservice.reverse.geocoder import Geocoder, ReverseResult
from tests.geoservice.small_extract import write_extract

LIECHTENSTEIN = (
    Path(__file__).parents[4] / "shared" / "data" / "osm" / "liechtenstein-2021-05-05.osm.pbf"
)


@pytest.fixture(scope="module")
def streets(street_path: Path) -> Geocoder:
    return Geocoder.open(street_path)


def random_points(
    south: float, west: float, north: float, east: float, count: int
) -> tuple[array[float], array[float]]:
    chosen = random.Random(5)
    return (
        array("d", [chosen.uniform(south, north) for _ in range(count)]),
        array("d", [chosen.uniform(west, east) for _ in range(count)]),
    )


def members(result: ReverseResult) -> dict[str, Any]:
    said = {"display_name": result.display_name, "address": result.address}
    return said if result.distance is None else {**said, "distance": result.distance}


def check(geocoder: Geocoder, lats: array[float], lons: array[float]) -> set[str]:
    """Check that all bytes equal the results, in the same order; return the keys that occurred."""
    keys: set[str] = set()
    written = AddressBytes(geocoder).batch(lats, lons)
    for text, result in zip(written, geocoder.reverse_batch(lats, lons), strict=True):
        read = msgspec.json.decode(b"{" + text + b"}")
        wanted = members(result)
        assert list(read) == list(wanted)
        assert list(read["address"].items()) == list(result.address.items())
        assert read["display_name"] == result.display_name
        # A half may be rounded either way.
        assert read.get("distance", 0) == pytest.approx(wanted.get("distance", 0), abs=0.1001)
        assert msgspec.json.decode(b"{" + members_of(result) + b"}") == wanted
        keys |= read["address"].keys()
    return keys


def test_streets_and_houses(streets: Geocoder) -> None:
    keys = check(streets, *random_points(47.09, 9.49, 47.125, 9.53, 3000))
    assert {"house_number", "road", "town", "suburb", "county", "amenity"} <= keys


def test_the_world_around_an_extract_and_the_sea(streets: Geocoder) -> None:
    check(streets, *random_points(-90, -180, 90, 180, 1000))


def test_the_world_alone(geocoder: Geocoder) -> None:
    check(geocoder, *random_points(-90, -180, 90, 180, 1000))


def test_names_that_json_must_escape(tmp_path: Path, world_path: Path) -> None:
    from geoservice.importer.build import build_index

    town = 'Gr\u00fc\u00df\u2028 "Gott"\t\\ \U0001f600'
    write_extract(tmp_path / "odd.osm.pbf", town=town)
    build_index([tmp_path / "odd.osm.pbf"], tmp_path / "odd.geo", world=world_path)
    geocoder = Geocoder.open(tmp_path / "odd.geo")
    lats, lons = random_points(47.09, 9.49, 47.125, 9.53, 500)
    check(geocoder, lats, lons)
    assert any(town in result.display_name for result in geocoder.reverse_batch(lats, lons))


@pytest.mark.long
def test_a_whole_country(tmp_path: Path) -> None:
    if not LIECHTENSTEIN.exists():
        pytest.skip(f"{LIECHTENSTEIN} is not there")
    from geoservice.importer.build import build_index

    build_index([LIECHTENSTEIN], tmp_path / "li.geo")
    geocoder = Geocoder.open(tmp_path / "li.geo")
    keys = check(geocoder, *random_points(47.04, 9.47, 47.28, 9.64, 10_000))
    assert {"house_number", "road", "postcode", "country_code", "village", "town"} <= keys


def test_numbers_that_are_none_of_the_index_are_refused(streets: Geocoder) -> None:
    index = streets.index.streets
    assert index is not None
    writer = AddressWriter(index)
    one = array("d", [1.0])

    def number(value: int) -> array[int]:
        return array("i", [value])

    assert writer.write(number(-1), number(0), number(-1), one) == [None]
    for found, tail in ((index.object_count, 0), (0, index.tail_count)):
        with pytest.raises(IndexError):
            writer.write(number(found), number(tail), number(-1), one)
    with pytest.raises(IndexError):
        writer.write(number(0), array("i"), number(-1), one)


def test_what_is_no_point_is_refused(streets: Geocoder, geocoder: Geocoder) -> None:
    for each in (streets, geocoder):
        for lat, lon in ((float("nan"), 0.0), (91.0, 0.0), (0.0, float("inf"))):
            with pytest.raises(ValueError):
                AddressBytes(each).batch(array("d", [lat]), array("d", [lon]))


@given(st.lists(st.floats(0.0, 100_000.0, width=32) | st.integers(0, 400_000).map(lambda n: n / 4)))
def test_distances_of_towns_are_written_as_printf_writes_them(metres: list[float]) -> None:
    writer = TownWriter(10)
    writer.keep(7, b"members")
    written, missing = writer.write(array("i", [7] * len(metres)), array("f", metres), 100_000.0)
    assert written == [b'members,"distance":%.1f' % far for far in metres]
    assert not missing


def test_towns_that_cannot_be_written_are_named() -> None:
    writer = TownWriter(1)
    writer.keep(7, b"members")
    columns = array("i", [7, -1, 7, 8, 7]), array("f", [1.0, 1.0, 2_000.0, 1.0, float("nan")])
    written, missing = writer.write(*columns, 1_000.0)
    assert written == [b'members,"distance":1.0', None, None, None, None]
    assert missing == [1, 2, 3, 4]
    writer.keep(8, b"others")
    assert writer.write(array("i", [7, 8]), array("f", [0.25, 0.75]), 1_000.0) == (
        [None, b'others,"distance":0.8'],
        [0],
    )
    with pytest.raises(IndexError, match="different lengths"):
        writer.write(array("i", [7]), array("f"), 1_000.0)
