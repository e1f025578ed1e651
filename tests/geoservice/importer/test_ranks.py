"""Ranks of places, labels of addresses, formats of postcodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoservice.importer.postcodes import read_postcode
from geoservice.importer.ranks import address_label, address_tag_ranks, compute_ranks


@pytest.mark.parametrize(
    ("country", "geometry", "category", "type_", "level", "ranks"),
    [
        ("li", "A", "boundary", "administrative", 2, (4, 4)),
        ("li", "A", "boundary", "administrative", 8, (16, 16)),
        ("de", "A", "boundary", "administrative", 5, (10, 0)),
        ("nl", "A", "boundary", "administrative", 10, (16, 16)),
        ("li", "N", "place", "town", 15, (18, 16)),
        ("li", "N", "place", "anything", 15, (22, 0)),
        ("li", "W", "highway", "residential", 15, (26, 26)),
        ("li", "W", "highway", "service", 15, (27, 27)),
        ("li", "N", "highway", "bus_stop", 15, (30, 30)),
        ("li", "W", "landuse", "residential", 15, (30, 30)),
        ("li", "A", "landuse", "residential", 15, (24, 24)),
        ("li", "R", "waterway", "river", 15, (18, 0)),
        ("li", "N", "amenity", "cafe", 15, (30, 30)),
        (None, "N", "natural", "peak", 15, (18, 0)),
    ],
)
def test_ranks_follow_the_kind_the_geometry_and_the_country(
    country: str | None,
    geometry: str,
    category: str,
    type_: str,
    level: int,
    ranks: tuple[int, int],
) -> None:
    assert compute_ranks(country, geometry, category, type_, level) == ranks


def test_a_capital_is_found_before_other_cities() -> None:
    assert compute_ranks("li", "N", "place", "city", capital=True) == (15, 16)


def test_a_boundary_is_called_as_the_place_that_it_stands_for() -> None:
    assert address_label("boundary", "administrative", 16, "village", "li") == "village"
    assert address_label("boundary", "administrative", 16, None, "li") == "city"
    assert address_label("boundary", "administrative", 8, None, "no") == "county"
    assert address_label("highway", "service", 27, None, "li") == "road"
    assert address_label("amenity", "cafe", 30, None, "li") == "amenity"


def test_an_address_tag_names_places_of_some_ranks_only() -> None:
    assert address_tag_ranks("city", "li") == (13, 16, 0.16)
    assert address_tag_ranks("suburb", "li") == (17, 21, 0.04)
    assert address_tag_ranks("street", "li") is None
    assert address_tag_ranks("region", "li") is None


@pytest.mark.parametrize(
    ("country", "text", "postcode"),
    [
        ("li", "9490", "9490"),
        ("li", "LI-9490", "9490"),
        ("li", "949", None),
        ("de", "00000", None),
        ("ad", "AD500", "AD500"),
        ("mt", "vlt1234", "VLT 1234"),
        ("ca", "v6h2k5", "V6H 2K5"),
        ("us", "11427-1234", "11427"),
        ("gb", "sw1a1aa", "SW1A 1AA"),
        ("li", "9490;9491", None),
        ("xx", "ab 12", "AB 12"),
        (None, "9490", None),
    ],
)
def test_a_postcode_is_written_as_its_country_does(
    country: str | None, text: str, postcode: str | None
) -> None:
    assert read_postcode(country, text) == postcode


@given(st.sampled_from(["li", "gb", "ca", "pt", "xx"]), st.text(max_size=20))
def test_no_postcode_is_too_strange(country: str, text: str) -> None:
    postcode = read_postcode(country, text)
    assert postcode is None or postcode.strip()
