"""json and jsonv2: the members, their order, their types."""

from __future__ import annotations

from geoservice.web.formats.described import PLAIN, Described, Details
from geoservice.web.formats.plain_json import members


def test_members_come_in_nominatims_order_with_ours_behind(bakery: Described) -> None:
    assert members(bakery, PLAIN, class_key="category") == {
        "place_id": 4711,
        "licence": "Data © OpenStreetMap contributors, ODbL 1.0. http://osm.org/copyright",
        "osm_type": "node",
        "osm_id": 12,
        "lat": "47.1400000",
        "lon": "9.5209000",
        "category": "shop",
        "type": "bakery",
        "place_rank": 30,
        "importance": 0.00001,
        "addresstype": "shop",
        "name": 'Bäckerei "Süß & Co"',
        "display_name": 'Bäckerei "Süß & Co", 7a, Äulestrasse, Vaduz, 9490, Liechtenstein',
        "address": bakery.place.address,
        "boundingbox": ["47.1399500", "47.1400500", "9.5208500", "9.5209500"],
        "distance": 3.7,
        "index_version": "0123456789ab",
    }
    everything = Details(extratags=True, namedetails=True, entrances=True, geojson=True)
    assert list(members(bakery, everything, class_key="class")) == [
        *("place_id", "licence", "osm_type", "osm_id", "lat", "lon", "class", "type"),
        *("place_rank", "importance", "addresstype", "name", "display_name", "address"),
        *("entrances", "extratags", "namedetails", "boundingbox", "geojson"),
        *("distance", "index_version"),
    ]


def test_what_was_asked_for_and_is_not_there_is_null(bakery: Described) -> None:
    bare = Described(place=bakery.place, lat=1, lon=2, index_version="x")
    written = members(
        bare, Details(extratags=True, namedetails=True, entrances=True), class_key="class"
    )
    assert written["extratags"] is written["namedetails"] is written["entrances"] is None
    assert "distance" not in written
    assert "address" not in members(bare, Details(addressdetails=False), class_key="class")
