"""geojson: numbers where json has strings, longitude first."""

from __future__ import annotations

from geoservice.web.formats.described import PLAIN, Described, Details
from geoservice.web.formats.geojson import collection


def test_a_feature_holds_the_members_as_properties(bakery: Described) -> None:
    written = collection([bakery], PLAIN)
    assert list(written) == ["type", "licence", "features"]
    [feature] = written["features"]
    assert list(feature) == ["type", "properties", "bbox", "geometry"]
    assert feature["bbox"] == [9.52085, 47.13995, 9.52095, 47.14005]
    assert feature["geometry"] == {"type": "Point", "coordinates": [9.5209, 47.14]}
    assert list(feature["properties"]) == [
        *("place_id", "osm_type", "osm_id", "place_rank", "category", "type", "importance"),
        *("addresstype", "name", "display_name", "address", "distance", "index_version"),
    ]


def test_the_shape_takes_the_points_place(bakery: Described) -> None:
    shape = {"type": "LineString", "coordinates": [[9.5, 47.1], [9.6, 47.2]]}
    shaped = Described(place=bakery.place, lat=1, lon=2, index_version="x", geometry=shape)
    [feature] = collection([shaped], Details(geojson=True))["features"]
    assert feature["geometry"] == shape
