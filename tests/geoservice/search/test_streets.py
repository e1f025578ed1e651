"""The search of streets, houses and places of an extract by name."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoservice.importer.build import build_index
from geoservice.index.format import read_header, write_index
from geoservice.reverse.geocoder import Geocoder, Place
from geoservice.search.layers import open_layers
from geoservice.search.query import Query, SearchLayer, Structured
from geoservice.search.search import search
from geoservice.search.sections import SECTIONS
from tests.geoservice.town_extract import LAT, LON, write_town


@pytest.fixture(scope="module")
def town_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("town")
    index = directory / "town.geo"
    build_index([write_town(directory / "town.osm.pbf")], index)
    return index


@pytest.fixture(scope="module")
def layers(town_path: Path) -> list[SearchLayer]:
    return open_layers(Geocoder.open(town_path))


def find(searched: list[SearchLayer], text: str, **options: object) -> list[Place]:
    return search(searched, Query(text=text, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name", "house_number"),
    [
        ("Hauptstrasse", "Hauptstrasse", None),
        ("hauptstr. sternwil", "Hauptstrasse", None),
        ("Rue Principale, Étoileville", "Hauptstrasse", None),
        ("Haupt Strasse, Liechtenstein", "Hauptstrasse", None),
        ("Hauptstrasse 1, Sternwil", "", "1"),
        ("1 Hauptstrasse", "", "1"),
        ("Hauptstrasse 3a, 9999 Sternwil", "", "3 a"),
        ("Hauptstrasse 3 A", "", "3 a"),
        ("Hauptstrasse 7", "", "5;7"),
        ("Hauptstrasse 99", "Hauptstrasse", None),
        ("alte gasse 3", "", "3"),
        ("bäckerei suess", "Bäckerei Süß", "1"),
        ("Bäckerei Alte Gasse", "Bäckerei Süß", "1"),
        ("etoileville", "Sternwil", None),
        ("Hinterdorf", "Hinterdorf", None),
        ("9999", "9999", None),
    ],
)
def test_a_text_finds_its_place(
    layers: list[SearchLayer], text: str, name: str, house_number: str | None
) -> None:
    place = find(layers, text)[0]
    assert place.name == name
    assert place.address.get("house_number") == house_number
    assert place.address["country_code"] == "li"


def test_a_house_between_two_others_is_counted_along_their_line(
    layers: list[SearchLayer],
) -> None:
    place = find(layers, "Hauptstrasse 15, Sternwil")[0]
    assert "house_number" not in place.address
    place = find(layers, "Hauptstrasse 14, Sternwil")[0]
    assert place.address["house_number"] == "14"
    assert place.lat == pytest.approx(LAT - 2e-4, abs=1e-6)
    assert place.lon == pytest.approx(LON + 18e-4, abs=1e-6)


@pytest.mark.parametrize("text", ["Hauptstrasse, Vaduz", "Nebenstrasse", "Hauptstrasse France"])
def test_every_word_that_matters_must_fit(layers: list[SearchLayer], text: str) -> None:
    assert all(place.osm_type is None for place in find(layers, text))


def test_the_extract_comes_before_the_world(layers: list[SearchLayer]) -> None:
    assert find(layers, "Vaduz")[0].display_name == "Vaduz, Liechtenstein"
    [town] = [place for place in find(layers, "Sternwil") if place.address_rank <= 16]
    assert (town.osm_type, town.osm_id) == ("relation", 1)


def test_structured_questions_and_filters(layers: list[SearchLayer]) -> None:
    def structured(**parts: str) -> list[Place]:
        return search(layers, Query(structured=Structured(**parts)))

    assert structured(street="3 Alte Gasse", city="Sternwil")[0].address["house_number"] == "3"
    assert structured(street="Alte Gasse", city="Vaduz") == []
    assert structured(city="Sternwil", country="Liechtenstein")[0].name == "Sternwil"
    assert structured(amenity="Bäckerei", street="Alte Gasse")[0].name == "Bäckerei Süß"
    assert structured(postalcode="9999", country="Liechtenstein")[0].type == "postcode"
    assert structured(postalcode="9999", country="France") == []
    assert find(layers, "Hauptstrasse", countries=frozenset({"de"})) == []
    around = (LON - 0.001, LAT - 0.001, LON + 0.001, LAT + 0.005)
    inside = find(layers, "Sternwil bakery Alte Gasse", viewbox=around, bounded=True)
    assert inside == []
    assert find(layers, "Alte Gasse", viewbox=around, bounded=True)
    assert find(layers, "Hinterdorf", viewbox=around, bounded=True) == []
    bakery = find(layers, "Bäckerei", layers=frozenset({"poi"}))
    assert [place.type for place in bakery] == ["bakery"]
    assert find(layers, "Hauptstrasse", ranks=(14, 16)) == []


@settings(max_examples=25)
@given(st.data())
def test_a_damaged_index_of_words_finds_something_else_and_nothing_breaks(
    town_path: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = memoryview(town_path.read_bytes())
    header = read_header(content)
    sections = {
        name: bytes(content[section.offset : section.offset + section.length])
        for name, section in header.sections.items()
    }
    name = data.draw(st.sampled_from(SECTIONS))
    numbers = array("i", sections[name][: len(sections[name]) // 4 * 4])
    for place in data.draw(st.lists(st.integers(0, len(numbers) - 1), min_size=1, max_size=9)):
        numbers[place] = data.draw(st.integers(-(2**31), 2**31 - 1))
    sections[name] = numbers.tobytes() + sections[name][len(numbers) * 4 :]
    damaged = tmp_path_factory.mktemp("damaged") / "town.geo"
    # The checksums are valid, as in a forged index.
    write_index(damaged, sections)
    layers = open_layers(Geocoder.open(damaged))
    for text in ("Hauptstrasse 3a, Sternwil", "Alte Gasse 14", "9999", "Bäckerei Hinterdorf"):
        find(layers, text)
