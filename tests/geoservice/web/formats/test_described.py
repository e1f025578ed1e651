"""Bounding boxes of places with only a point, and licences."""

from __future__ import annotations

import pytest

from geoservice.reverse.geocoder import Geocoder, Place
from geoservice.web.formats.described import Described, Details, describe


def described(category: str, kind: str) -> Described:
    place = Place(
        place_id=1, type=kind, name="", display_name="", address={}, category=category, osm_id=1
    )
    return Described(place=place, lat=10, lon=20, index_version="x")


@pytest.mark.parametrize(
    ("category", "kind", "extent"),
    [
        ("place", "city", 0.16),
        ("place", "village", 0.02),
        ("railway", "station", 0.005),
        ("place", "house", 0.00005),
        ("amenity", "bench", 0.00005),
    ],
)
def test_the_box_around_a_point_goes_by_its_kind(category: str, kind: str, extent: float) -> None:
    assert described(category, kind).box == pytest.approx(
        (10 - extent, 10 + extent, 20 - extent, 20 + extent)
    )


def test_a_country_of_the_world_stands_where_it_was_asked(geocoder: Geocoder) -> None:
    place = geocoder.reverse(47.14, 9.52, zoom=3).place
    assert place is not None
    found = describe(geocoder, place, Details(), point=(47.14, 9.52))
    assert (found.lat, found.lon) == (47.14, 9.52)
    assert (found.category, found.type) == ("boundary", "administrative")
    assert "GeoNames" in found.licence
    assert found.importance == pytest.approx(0.40001 - 4 / 75)


def test_rows_and_names_are_gathered_only_when_they_are_wanted(geocoder: Geocoder) -> None:
    place = geocoder.reverse(52.5, 13.4).place
    assert place is not None
    plain = describe(geocoder, place, Details())
    assert (plain.rows, plain.names, plain.tags) == ((), None, None)
    full = describe(geocoder, place, Details(namedetails=True, extratags=True), rows=True)
    assert [(row.key, row.address_rank) for row in full.rows][:2] == [("suburb", 20), ("city", 16)]
    assert full.names == {"name": "Kreuzberg"}
    assert full.tags is not None and int(full.tags["population"]) > 100_000
