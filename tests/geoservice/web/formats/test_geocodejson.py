"""geocodejson: the address by rank."""

from __future__ import annotations

import pytest

from geoservice.web.formats.described import PLAIN, Described, Details
from geoservice.web.formats.geocodejson import collection, kind_of_rank


def test_the_address_is_called_by_rank(bakery: Described) -> None:
    written = collection([bakery], PLAIN, "")
    assert written["geocoding"] == {
        "version": "0.1.0",
        "attribution": "Data © OpenStreetMap contributors, ODbL 1.0. http://osm.org/copyright",
        "licence": "ODbL",
        "query": "",
    }
    [feature] = written["features"]
    assert feature["geometry"]["coordinates"] == [9.5209, 47.14]
    assert feature["properties"]["geocoding"] == {
        "place_id": 4711,
        "osm_type": "node",
        "osm_id": 12,
        "osm_key": "shop",
        "osm_value": "bakery",
        "type": "house",
        "accuracy": 3,
        "label": 'Bäckerei "Süß & Co", 7a, Äulestrasse, Vaduz, 9490, Liechtenstein',
        "name": 'Bäckerei "Süß & Co"',
        "housenumber": "7a",
        "postcode": "9490",
        "street": "Äulestrasse",
        "city": "Vaduz",
        "county": "Oberland",
        "country": "Liechtenstein",
        "country_code": "li",
        "admin": {"level8": "Vaduz", "level2": "Liechtenstein"},
        "distance": 3.7,
        "index_version": "0123456789ab",
    }


def test_without_address_and_query_they_are_missing(bakery: Described) -> None:
    written = collection([bakery], Details(addressdetails=False, extratags=True))
    assert "query" not in written["geocoding"]
    geocoding = written["features"][0]["properties"]["geocoding"]
    assert "admin" not in geocoding and "street" not in geocoding
    assert geocoding["extra"] == {"opening_hours": "Mo-Fr <6>"}


@pytest.mark.parametrize(
    ("rank", "kind"),
    [
        *((0, "locality"), (4, "country"), (8, "state"), (12, "county"), (16, "city")),
        *((17, "district"), (22, "locality"), (25, "street"), (27, "street"), (28, "house")),
    ],
)
def test_kinds_follow_the_rank(rank: int, kind: str) -> None:
    assert kind_of_rank(rank) == kind
