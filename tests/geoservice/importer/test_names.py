"""Names in different spellings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoservice.importer.names import normalized, spellings


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Noflerstrasse", "Nofler Straße"),
        ("Hauptstr.", "Hauptstrasse"),
        ("Mannerheimin aukio", "Mannerheiminaukio"),
        ("St. Luzi-Strasse", "Sankt Luzi Str"),
        ("Boulevard des Moulins", "Bd. des Moulins"),
        ("Avenue Saint-Michel", "Av. St Michel"),
        ("CALLE MAYOR", "C. Mayor"),
        ("Łódzka", "lodzka"),
    ],
)
def test_these_are_the_same(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


@pytest.mark.parametrize(
    ("one", "other"), [("Am Bach", "Im Bach"), ("Dorfstrasse 1", "Dorfstrasse 2"), ("Weg", "Steg")]
)
def test_these_are_not(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)


def test_a_list_of_names_and_a_name_with_an_addition_are_several_spellings() -> None:
    found = spellings({"name": "Halle (Saale)", "alt_name": "Saalestadt;Händelstadt"})
    assert {"halle saale", "halle", "saalestadt", "handelstadt"} <= found


@given(st.text(max_size=60))
def test_what_is_normalized_has_no_accents_and_no_double_spaces(name: str) -> None:
    text = normalized(name)
    assert "  " not in text and text == text.strip()
