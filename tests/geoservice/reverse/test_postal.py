"""Addresses in postal format."""

from __future__ import annotations

import pytest

from geoservice.reverse.geocoder import Geocoder, Place
from geoservice.reverse.postal import postal_lines
from geoservice.web.formats.described import Details, describe
from geoservice.web.formats.plain_json import members


def place(name: str = "", **address: str) -> Place:
    return Place(place_id=1, type="x", name=name, display_name="", address=address)


@pytest.mark.parametrize(
    ("country_code", "country", "lines"),
    [
        ("li", "Liechtenstein", ["Hauptstrasse 7", "9490 Vaduz", "Liechtenstein"]),
        ("us", "United States", ["7 Hauptstrasse", "Vaduz, Oberland 9490", "United States"]),
        ("gb", "United Kingdom", ["7 Hauptstrasse", "Vaduz 9490", "United Kingdom"]),
    ],
)
def test_every_country_has_its_own_order(country_code: str, country: str, lines: list[str]) -> None:
    address = {"house_number": "7", "road": "Hauptstrasse", "town": "Vaduz", "state": "Oberland"}
    address |= {"postcode": "9490", "country": country, "country_code": country_code}
    assert postal_lines(place(**address)) == lines


def test_the_name_stands_above() -> None:
    assert postal_lines(place("Bäckerei", road="Gasse", city="Chur", country_code="ch")) == [
        "Bäckerei",
        "Gasse",
        "Chur",
    ]


def test_data_is_no_template() -> None:
    assert postal_lines(place(road="{{country}} <b>&", city="{{{road}}}", country_code="fr")) == [
        "{{country}} <b>&",
        "{{{road}}}",
    ]


def test_without_an_address_there_are_no_lines() -> None:
    assert postal_lines(place()) == []
    assert postal_lines(place(country_code="zz", country="Nowhere")) == ["Nowhere"]


def test_it_is_a_member_of_ours_on_demand(geocoder: Geocoder) -> None:
    vaduz = geocoder.reverse(47.141, 9.5209).place
    assert vaduz is not None
    written = members(
        describe(geocoder, vaduz, Details(postal=True)), Details(postal=True), class_key="class"
    )
    assert written["formatted_address"] == ["Vaduz", "Liechtenstein"]
    assert written["display_name"] == "Vaduz, Liechtenstein"
