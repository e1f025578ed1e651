"""The word index compared with a plain search of the same names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoservice.index.format import IndexFormatError
from geoservice.search.sections import (
    SECTIONS,
    WORD_BLOCKS,
    WordIndex,
    build_search_sections,
    decode_gaps,
    encode_varints,
)
from geoservice.search.words import all_forms

_NAMES = st.lists(st.lists(st.text(alphabet="abé ßя東1", max_size=6), max_size=3), max_size=12)


@given(_NAMES, _NAMES)
def test_every_word_leads_to_all_that_are_called_so(
    objects: list[list[str]], contexts: list[list[str]]
) -> None:
    index = WordIndex(build_search_sections(enumerate(objects), enumerate(contexts)).__getitem__)
    for word in all_forms(text for names in objects + contexts for text in names):
        for found, named in ((index.named, objects), (index.contexts, contexts)):
            assert found(word).tolist() == [
                owner for owner, names in enumerate(named) if word in all_forms(names)
            ]
    assert index.named("zz").tolist() == index.contexts("").tolist() == []


@given(st.lists(st.integers(0, 2**31 - 1), unique=True))
def test_numbers_survive_as_varints_of_their_gaps(numbers: list[int]) -> None:
    ascending = np.array(sorted(numbers), dtype=np.int64)
    data, sizes = encode_varints(np.diff(ascending, prepend=0))
    assert len(data) == sizes.sum()
    assert decode_gaps(data).tolist() == ascending.tolist()


def test_many_words_of_any_length_are_found() -> None:
    words = [f"{'x' * (number % 50)}{number:05}" for number in range(1000)]
    objects = [(number, [word]) for number, word in enumerate(words)]
    index = WordIndex(build_search_sections(objects, []).__getitem__)
    for number, word in enumerate(words):
        assert index.named(word).tolist() == [number]


def test_sections_that_do_not_fit_are_refused() -> None:
    sections = build_search_sections([(0, ["a b"])], [])
    with pytest.raises(IndexFormatError, match="do not fit"):
        WordIndex((sections | {WORD_BLOCKS: bytes(4)}).__getitem__)
    with pytest.raises(IndexFormatError, match="within a number"):
        WordIndex((sections | {WORD_BLOCKS: bytes(7)}).__getitem__)


@given(st.sampled_from(SECTIONS), st.binary(min_size=12, max_size=24))
def test_damaged_bytes_find_something_else_and_nothing_breaks(name: str, damage: bytes) -> None:
    sections = build_search_sections([(0, ["a b"]), (1, ["ab bc"])], [(0, ["a"])])
    damage = damage[: len(damage) // 12 * 12]
    index = WordIndex((sections | {name: damage}).__getitem__)
    for word in ("a", "ab", "b", "zz", ""):
        assert len(index.named(word)) <= 24
        assert len(index.contexts(word)) <= 24
