"""Agreement with a real Nominatim, if its answers are available."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoservice.commands.compare import FIELDS, compare, read_truth
from geoservice.importer.build import build_index
from geoservice.reverse.geocoder import Geocoder

SHARED = Path(__file__).parents[3] / "../shared/data"
TRUTH = SHARED / "geocode_truth/liechtenstein.jsonl.gz"
EXTRACT = SHARED / "osm/liechtenstein-2021-05-05.osm.pbf"

#: Lower limits in percent, measuring in degrees as Nominatim does. The measured values are all 100.
FLOORS = {"country": 99.5, "city": 99.5, "suburb": 99, "road": 99.5, "house number": 99,
          "postcode": 99.5}  # fmt: skip


@pytest.fixture(scope="module")
def geocoder(tmp_path_factory: pytest.TempPathFactory) -> Geocoder:
    if not (TRUTH.exists() and EXTRACT.exists()):
        pytest.skip(f"{TRUTH.name} and its extract are not here")
    path: Path = tmp_path_factory.mktemp("index") / "liechtenstein.geo"
    build_index([EXTRACT], path)
    return Geocoder.open(path)


@pytest.mark.parametrize("address_only", [True, False], ids=["address", "address and poi"])
def test_liechtenstein_is_answered_as_by_nominatim(geocoder: Geocoder, address_only: bool) -> None:
    agreement = compare(geocoder, read_truth(TRUTH), address_only=address_only)
    print({name: agreement.percent(name) for name in agreement.compared})
    for name, floor in FLOORS.items():
        percent = agreement.percent(name)
        assert percent is not None and percent >= floor, name
    assert set(FLOORS) == set(FIELDS)


def test_metres_differ_from_degrees_in_few_house_numbers(geocoder: Geocoder) -> None:
    agreement = compare(geocoder, read_truth(TRUTH), distance="metres")
    road, number = agreement.percent("road"), agreement.percent("house number")
    print(road, number)
    assert road is not None and road >= 96
    assert number is not None and number >= 88


def test_a_miss_is_counted_and_explained(geocoder: Geocoder) -> None:
    point = next(iter(read_truth(TRUTH)))
    wrong = {**point["address_layer"], "address": {"road": "Nowhere", "country_code": "li"}}
    agreement = compare(geocoder, [{**point, "address_layer": wrong}])
    assert agreement.percent("road") == 0.0
    assert agreement.percent("country") == 100.0
    [miss] = agreement.misses
    assert "road" in miss.fields
    assert miss.reason == "same object, other address"


def test_the_index_is_small(geocoder: Geocoder) -> None:
    assert geocoder.index.size_bytes < 6_000_000
