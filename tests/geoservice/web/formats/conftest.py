"""A shop with an address, which the tests of all formats write."""

from __future__ import annotations

import pytest

from geoservice.reverse.geocoder import AddressRow, Place
from geoservice.web.formats.described import Described


@pytest.fixture
def bakery() -> Described:
    place = Place(
        place_id=4711,
        type="bakery",
        name='Bäckerei "Süß & Co"',
        display_name='Bäckerei "Süß & Co", 7a, Äulestrasse, Vaduz, 9490, Liechtenstein',
        address={
            "shop": 'Bäckerei "Süß & Co"',
            "house_number": "7a",
            "road": "Äulestrasse",
            "town": "Vaduz",
            "ISO3166-2-lvl8": "LI-11",
            "county": "Oberland",
            "postcode": "9490",
            "country": "Liechtenstein",
            "country_code": "li",
        },
        lat=47.14,
        lon=9.5209,
        category="shop",
        addresstype="shop",
        place_rank=30,
        address_rank=30,
        importance=0.00001,
        osm_type="node",
        osm_id=12,
    )
    rows = [
        AddressRow(key="shop", name=place.name, address_rank=30),
        AddressRow(key="house_number", name="7a", address_rank=28),
        AddressRow(key="road", name="Äulestrasse", address_rank=26),
        AddressRow(key="town", name="Vaduz", address_rank=16, admin_level=8),
        AddressRow(key="county", name="Oberland", address_rank=12),
        AddressRow(key="postcode", name="9490", address_rank=5),
        AddressRow(key="country", name="Liechtenstein", address_rank=4, admin_level=2),
    ]
    return Described(
        place=place,
        lat=47.14,
        lon=9.5209,
        distance=3.7,
        index_version="0123456789ab",
        rows=rows,
        names={"name": place.name, "name:en": "Sweet & Co"},
        tags={"opening_hours": "Mo-Fr <6>"},
    )
