"""Spellings that count as the same word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoservice.search.words import WORDS_MAX, all_forms, split_words


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("AEULESTRASSE", "Äulestrasse"),
        ("aulestr.", "Äulestraße"),
        ("219th St", "219th Street"),
        ("St Mary", "Saint Mary"),
        ("bd des moulins", "Boulevard des Moulins"),
        ("eglise", "l\u2019Église"),
        ("Malmo", "Malmö"),
        ("Nofler Strasse", "Noflerstraße"),
        ("Noflerstr.", "Nofler Strasse"),
        ("Malmoe", "Malmö"),
        ("LODZ", "Łódź"),
        ("mlynska", "Młyńska"),
        ("渋谷", "東京都渋谷区"),
        ("москва", "МОСКВА"),  # noqa: RUF001
        ("Sao Tome", "São Tomé"),
    ],
)
def test_spellings_of_a_name_share_all_words(asked: str, named: str) -> None:
    names = all_forms([named])
    assert all(not names.isdisjoint(forms) for forms in split_words(asked))


def test_other_words_stay_apart() -> None:
    assert all_forms(["Main Street"]).isdisjoint(all_forms(["Maine Avenue"]))


@given(st.text(max_size=600))
def test_any_text_gives_a_few_plain_words(text: str) -> None:
    words = split_words(text)
    assert len(words) <= WORDS_MAX
    for forms in words:
        assert forms and all(forms)
        assert len(set(forms)) == len(forms) < 40
