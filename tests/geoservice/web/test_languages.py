"""The header Accept-Language, as browsers and geopy send it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoservice.web.languages import LANGUAGES_MAX, parse_languages


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("", ()),
        ("de", ("de",)),
        ("de-AT", ("de-AT", "de")),
        ("fr, en;q=0.8", ("fr", "en")),
        ("en;q=0.5,fr", ("fr", "en")),
        ("de-CH,de;q=0.9,en;q=0.8", ("de-CH", "de", "en")),
        ("pt-BR,es;q=0.9", ("pt-BR", "pt", "es")),
        ("*", ()),
        ("de;q=2, en;;, x y, it ; q = 0.1", ("it",)),
    ],
)
def test_languages_are_sorted_by_weight(text: str, languages: tuple[str, ...]) -> None:
    assert parse_languages(text) == languages


@given(st.text(alphabet="abcdeAB-_;q=0.1, *\n\0é", max_size=600))
def test_any_header_gives_a_short_list(text: str) -> None:
    languages = parse_languages(text)
    assert len(languages) <= LANGUAGES_MAX
    assert len(set(languages)) == len(languages)
