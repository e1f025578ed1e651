"""The tags that make an object a place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoservice.importer.tags import TaggedObject, is_ignored, read_tags


def read(**tags: str) -> TaggedObject:
    tagged = read_tags({key.replace("__", ":"): value for key, value in tags.items()}, is_way=False)
    assert tagged is not None
    return tagged


def kinds(tagged: TaggedObject) -> list[str]:
    return [f"{place.category}={place.type}" for place in tagged.places]


def test_a_restaurant_in_a_hotel_is_two_places() -> None:
    tagged = read(tourism="hotel", amenity="restaurant", name="Löwen", building="yes")
    assert sorted(kinds(tagged)) == ["amenity=restaurant", "tourism=hotel"]


def test_a_building_counts_for_its_name_or_number_only() -> None:
    assert kinds(read(building="yes", addr__housenumber="3")) == ["building=yes"]
    assert kinds(read(building="church", name="St. Luzi")) == ["building=church"]
    assert read_tags({"building": "yes"}, is_way=True) is None


def test_an_address_alone_is_a_house_without_the_name_of_what_is_in_it() -> None:
    tagged = read(addr__housenumber="7", addr__street="Im Rietle", name="Familie Beck")
    assert kinds(tagged) == ["place=house"]
    assert tagged.places[0].names == {}
    assert tagged.address == {"housenumber": "7", "street": "Im Rietle"}


def test_a_footway_needs_a_name_and_is_no_sidewalk() -> None:
    assert kinds(read(highway="footway", name="Fürstensteig")) == ["highway=footway"]
    assert read_tags({"highway": "footway"}, is_way=True) is None
    sidewalk = {"highway": "footway", "footway": "sidewalk", "name": "Landstrasse"}
    assert read_tags(sidewalk, is_way=True) is None


def test_a_street_without_a_name_is_a_place_too() -> None:
    assert kinds(read(highway="residential")) == ["highway=residential"]


def test_the_place_of_an_administrative_boundary_says_what_it_is_called() -> None:
    tagged = read(boundary="administrative", admin_level="8", place="village", name="Balzers")
    assert kinds(tagged) == ["boundary=administrative"]
    assert tagged.extratags == {"place": "village"}
    assert tagged.admin_level == 8


@pytest.mark.parametrize("level", ["", "0", "16", "-1", "8;9", "٣", "1e1"])
def test_an_admin_level_that_is_none_counts_as_the_lowest(level: str) -> None:
    tagged = read(boundary="administrative", admin_level=level, name="Irgendwo")
    assert tagged.admin_level == 15


def test_an_interpolation_is_a_line_of_numbers_and_no_place() -> None:
    tagged = read_tags({"addr:interpolation": "odd", "addr:street": "Dorfstrasse"}, is_way=True)
    assert tagged is not None and not tagged.places
    assert tagged.interpolation == "odd"


def test_a_postcode_alone_is_kept_for_the_postcodes() -> None:
    tagged = read(addr__postcode="9490")
    assert not tagged.places
    assert tagged.postcode == "9490"


def test_a_country_code_that_is_none_is_dropped() -> None:
    assert "country" not in read(highway="service", name="A", addr__country="Liechtenstein").address


def test_a_tag_about_the_mapping_says_nothing() -> None:
    assert is_ignored("source:name")
    assert is_ignored("building:source")
    assert is_ignored("name:etymology:wikidata")
    assert not is_ignored("name:fr")


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=8), st.booleans())
def test_no_tags_are_too_strange(tags: dict[str, str], is_way: bool) -> None:
    tagged = read_tags(tags, is_way=is_way)
    assert tagged is None or len(tagged.places) <= len(tags)


_KEYS = st.sampled_from(
    ["name", "highway", "place", "building", "amenity", "boundary", "addr:housenumber", "natural",
     "water", "railway", "tourism", "information", "lock", "bridge", "bridge:name", "waterway",
     "addr:country", "addr:interpolation", "addr:postcode", "landuse"]
)  # fmt: skip
_VALUES = st.sampled_from(
    ["yes", "no", "residential", "house", "information", "water", "river", "x"]
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=8), st.booleans())
def test_any_mixture_of_main_tags_is_sorted_out(tags: dict[str, str], is_way: bool) -> None:
    tagged = read_tags(tags, is_way=is_way)
    if tagged is not None:
        for place in tagged.places:
            assert place.category == "place" or tags[place.category] == place.type
