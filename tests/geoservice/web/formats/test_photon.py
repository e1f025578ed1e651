"""Format photon: GeoJSON with Photon's members."""

from __future__ import annotations

import msgspec

from geoservice.web.formats.described import Described
from geoservice.web.formats.photon import collection


def test_a_feature_has_photons_members_in_its_order(bakery: Described) -> None:
    written = collection([bakery])
    assert list(written) == ["type", "features"]
    [feature] = written["features"]
    assert feature["geometry"] == {"type": "Point", "coordinates": [9.5209, 47.14]}
    assert feature["properties"] == {
        "osm_type": "N",
        "osm_id": 12,
        "osm_key": "shop",
        "osm_value": "bakery",
        "type": "house",
        "housenumber": "7a",
        "name": 'Bäckerei "Süß & Co"',
        "street": "Äulestrasse",
        "city": "Vaduz",
        "county": "Oberland",
        "country": "Liechtenstein",
        "postcode": "9490",
        "countrycode": "LI",
    }


def test_what_is_not_a_point_has_an_extent(bakery: Described) -> None:
    place = msgspec.structs.replace(
        bakery.place, osm_type="way", boundingbox=(47.0, 48.0, 9.0, 10.0)
    )
    [feature] = collection([msgspec.structs.replace(bakery, place=place)])["features"]
    assert feature["properties"]["extent"] == [9.0, 48.0, 10.0, 47.0]


def test_nothing_found_is_an_empty_collection() -> None:
    assert collection([]) == {"type": "FeatureCollection", "features": []}
