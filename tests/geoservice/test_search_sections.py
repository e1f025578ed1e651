"""The index of words against a plain search of the same names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoservice.format import IndexFormatError
from geoservice.search_sections import NAMED_ENDS, WORD_ENDS, WordIndex, build_search_sections
from geoservice.search_words import all_forms

_NAMES = st.lists(st.lists(st.text(alphabet="abé ßя東1", max_size=6), max_size=3), max_size=12)


@given(_NAMES, _NAMES)
def test_every_word_leads_to_all_that_are_called_so(
    objects: list[list[str]], contexts: list[list[str]]
) -> None:
    index = WordIndex(build_search_sections(enumerate(objects), enumerate(contexts)).__getitem__)
    for word in all_forms(text for names in objects + contexts for text in names):
        number = index.find(word)
        assert number >= 0
        for found, named in ((index.named, objects), (index.contexts, contexts)):
            assert found(number).tolist() == [
                owner for owner, names in enumerate(named) if word in all_forms(names)
            ]
    assert index.find("zz") == -1
    assert index.named(-1).tolist() == []


def test_sections_that_do_not_fit_are_refused() -> None:
    sections = build_search_sections([(0, ["a b"])], [])
    with pytest.raises(IndexFormatError, match="do not fit"):
        WordIndex((sections | {NAMED_ENDS: bytes(4)}).__getitem__)
    with pytest.raises(IndexFormatError, match="within a number"):
        WordIndex((sections | {WORD_ENDS: bytes(7)}).__getitem__)


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_damaged_numbers_find_something_else_and_nothing_breaks(words: bytes, named: bytes) -> None:
    sections = build_search_sections([(0, ["a b"])], [(0, ["a"])])
    index = WordIndex((sections | {WORD_ENDS: words, NAMED_ENDS: named}).__getitem__)
    for word in ("a", "b", "zz"):
        assert len(index.named(index.find(word))) <= 2
        assert len(index.contexts(index.find(word))) <= 1
