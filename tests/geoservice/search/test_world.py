"""The search of towns and countries of the world by name."""

from __future__ import annotations

import pytest

from geoservice.reverse.geocoder import Geocoder, Place
from geoservice.search.query import Query, Structured
from geoservice.search.search import search
from geoservice.search.world import WorldLayer


@pytest.fixture(scope="module")
def layer(geocoder: Geocoder) -> WorldLayer:
    return WorldLayer(geocoder)


def first(layer: WorldLayer, text: str, **options: object) -> Place | None:
    found = search([layer], Query(text=text, **options))  # type: ignore[arg-type]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("text", "display_name"),
    [
        ("vaduz", "Vaduz, Liechtenstein"),
        ("Vaduz, Liechtenstein", "Vaduz, Liechtenstein"),
        ("munchen", "Munich, Bayern, Germany"),
        ("MÜNCHEN", "Munich, Bayern, Germany"),
        ("Paris", "Paris, Île-de-France, France"),
        ("Paris, Texas", "Paris, Texas, United States"),
        ("paris us", "Paris, Texas, United States"),
        ("St Louis", "St. Louis, Missouri, United States"),
        ("東京", "Tokyo, Japan"),
        ("New York", "New York City, New York, United States"),
        ("germany", "Germany"),
    ],
)
def test_the_best_known_place_of_a_name_comes_first(
    layer: WorldLayer, text: str, display_name: str
) -> None:
    place = first(layer, text)
    assert place is not None
    assert place.display_name == display_name


@pytest.mark.parametrize("text", ["", "  ,. ", "zzzqqq", "Vaduz zzzqqq", "de la", "Vaduz, Texas"])
def test_what_is_nowhere_is_not_found(layer: WorldLayer, text: str) -> None:
    assert first(layer, text) is None


def test_the_answers_can_be_narrowed(layer: WorldLayer) -> None:
    texas = first(layer, "Paris", countries=frozenset({"us"}))
    assert texas is not None and texas.address["country_code"] == "us"
    box = (-96.0, 33.0, -95.0, 34.0)
    near = first(layer, "Paris", viewbox=box, bounded=True)
    assert near is not None and near.address["state"] == "Texas"
    assert first(layer, "Vaduz", viewbox=box, bounded=True) is None
    excluded = first(layer, "Paris", excluded=frozenset({str(near.place_id)}), viewbox=box)
    assert excluded is not None and excluded.place_id != near.place_id
    assert len(search([layer], Query(text="San Francisco", limit=3))) == 3
    country = first(layer, "Luxembourg", ranks=(4, 4))
    assert country is not None and country.type == "country"
    city = first(layer, "Luxembourg", ranks=(14, 16))
    assert city is not None and city.address_rank == 16


def test_a_structured_question_looks_for_its_finest_part(layer: WorldLayer) -> None:
    def find(**parts: str) -> list[str]:
        structured = Structured(**parts)
        return [place.display_name for place in search([layer], Query(structured=structured))]

    assert find(city="Paris", state="Texas") == ["Paris, Texas, United States"]
    assert find(city="Vaduz", country="Liechtenstein")[0] == "Vaduz, Liechtenstein"
    assert find(city="Vaduz", country="France") == []
    assert find(country="France")[0] == "France"
    assert find(street="Vaduz") == find() == []
