"""A small run of the lookup benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from geoservice.commands import bench
from geoservice.reverse.geocoder import Geocoder


def test_it_measures_what_it_names(street_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_SINGLES", "_HTTP_SINGLES"):
        monkeypatch.setattr(bench, name, 2000)
    # Of another process the system counts whole hundredths of a second.
    monkeypatch.setattr(bench, "POINTS", 40_000)
    monkeypatch.setattr(bench, "ROUNDS", 1)
    rows = {row.name: row for row in bench.measure(street_path)}
    assert {
        "waylog: one point, result",
        "waylog: batch, results",
        "waylog: batch, finished address bytes",
        "waylog: batch, the search alone",
        "waylog: GET /reverse",
        "waylog: POST /reverse/batch",
    } <= rows.keys()
    assert all(row.cpu_us > 0 for row in rows.values())
    assert "MB resident" in rows["waylog: GET /reverse"].note


def test_points_lie_around_what_there_is(street_path: Path, geocoder: Geocoder) -> None:
    for each in (Geocoder.open(street_path), geocoder):
        lats, lons = bench.points_of(each)
        assert (lats, lons) == bench.points_of(each)
        results = each.reverse_batch(lats[:2000], lons[:2000])
        assert sum(result.place is not None for result in results) > 1900
