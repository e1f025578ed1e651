"""Cached serialised answers equal those that are rendered one by one."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from geoservice.importer.build import build_index
from geoservice.reverse.geocoder import Geocoder, ReverseResult
from geoservice.web.nominatim import answer
from geoservice.web.rendered_answers import RenderedAnswers
from tests.geoservice.town_extract import LAT, LON, write_town


def assert_the_same(geocoder: Geocoder, lats: list[float], lons: list[float]) -> int:
    answers = RenderedAnswers(geocoder).batch(lats, lons)
    results = geocoder.reverse_batch(lats, lons)
    finished = 0
    for found, result in zip(answers, results, strict=True):
        if isinstance(found, ReverseResult):
            assert found == result
        else:
            assert found == msgspec.json.encode(answer(result))
            finished += 1
    return finished


def test_streets_houses_and_what_lies_outside(tmp_path: Path) -> None:
    index = tmp_path / "town.geo"
    build_index([write_town(tmp_path / "town.osm.pbf")], index)
    chance = random.Random(7)
    lats = [LAT + chance.uniform(-0.02, 0.02) for _ in range(300)] + [0.0, 52.5, LAT]
    lons = [LON + chance.uniform(-0.02, 0.02) for _ in range(300)] + [-30.0, 13.4, LON]
    assert assert_the_same(Geocoder.open(index), lats, lons) >= 302


def test_the_world(geocoder: Geocoder) -> None:
    chance = random.Random(8)
    lats = [chance.uniform(-90, 90) for _ in range(1000)] + [47.14, 47.15]
    lons = [chance.uniform(-180, 180) for _ in range(1000)] + [9.52, 9.52]
    assert assert_the_same(geocoder, lats, lons) > 100
    assert RenderedAnswers(geocoder).batch([], []) == []


def test_what_is_no_point_is_refused(geocoder: Geocoder) -> None:
    with pytest.raises(ValueError, match="latitude"):
        RenderedAnswers(geocoder).batch([91.0], [0.0])
