"""The sections of an index that forward search needs: which words are in whose names.

What can be found ("objects": streets, places, towns) has names; where it lies is its "context", one
for all that share it (the address behind the street; state and country of a town). Both are
looked up by word. The words are sorted by their bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from geoservice.format import IndexFormatError
from geoservice.search_words import all_forms

WORD_ENDS: Final = "word ends"  # int32: where each word ends
WORDS: Final = "words"  # UTF-8
NAMED_ENDS: Final = "named ends"  # int32: of each word the end of its objects
NAMED: Final = "named"  # int32: objects, ascending
CONTEXT_ENDS: Final = "context ends"  # int32: of each word the end of its contexts
CONTEXTS: Final = "contexts"  # int32: contexts, ascending

SECTIONS: Final = (WORD_ENDS, WORDS, NAMED_ENDS, NAMED, CONTEXT_ENDS, CONTEXTS)

Named = tuple[int, Iterable[str]]  # number, names
Numbers = NDArray[np.int32]
_NOTHING: Final[Numbers] = np.empty(0, dtype=np.int32)


class _Pairs:
    """Words and in whose names they are."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self._words = array("i")
        self._owners = array("i")

    def add(self, owner: int, names: Iterable[str]) -> None:
        for word in all_forms(names):
            self._words.append(self._numbers.setdefault(word, len(self._numbers)))
            self._owners.append(owner)

    def sections(self, places: NDArray[np.int64]) -> tuple[bytes, bytes]:
        """(ends, owners), the words at their places in the sorted list."""
        words = places[np.frombuffer(self._words, dtype=np.int32)]
        owners = np.frombuffer(self._owners, dtype=np.int32)
        order = np.lexsort((owners, words))
        counts = np.bincount(words, minlength=len(places))
        ends = np.cumsum(counts)
        return ends.astype("<i4").tobytes(), owners[order].astype("<i4").tobytes()


def build_search_sections(objects: Iterable[Named], contexts: Iterable[Named]) -> dict[str, bytes]:
    """The sections; each object and each context comes once, with all names it goes by."""
    numbers: dict[str, int] = {}
    named, inside = _Pairs(numbers), _Pairs(numbers)
    for number, names in objects:
        named.add(number, names)
    for number, names in contexts:
        inside.add(number, names)
    encoded = [word.encode() for word in numbers]
    order = sorted(range(len(encoded)), key=encoded.__getitem__)
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    words = [encoded[number] for number in order]
    named_ends, named_numbers = named.sections(places)
    context_ends, context_numbers = inside.sections(places)
    return {
        WORD_ENDS: np.cumsum([len(word) for word in words]).astype("<i4").tobytes(),
        WORDS: b"".join(words),
        NAMED_ENDS: named_ends,
        NAMED: named_numbers,
        CONTEXT_ENDS: context_ends,
        CONTEXTS: context_numbers,
    }


class WordIndex:
    """The sections, memory-mapped. Nothing in them is trusted: a damaged one finds other things."""

    def __init__(self, section: Any) -> None:
        """`section` answers a section's bytes by name; raises IndexFormatError."""
        self._words = memoryview(section(WORDS))
        self._word_ends = integers(section(WORD_ENDS), WORD_ENDS)
        self._named_ends = integers(section(NAMED_ENDS), NAMED_ENDS)
        self._named = integers(section(NAMED), NAMED)
        self._context_ends = integers(section(CONTEXT_ENDS), CONTEXT_ENDS)
        self._contexts = integers(section(CONTEXTS), CONTEXTS)
        self._count = len(self._word_ends)
        if len(self._named_ends) != self._count or len(self._context_ends) != self._count:
            raise IndexFormatError("damaged: the sections of words do not fit each other")

    def find(self, word: str) -> int:
        """The number of a word, -1 when no name has it."""
        wanted = word.encode()
        first, last = 0, self._count
        while first < last:
            middle = (first + last) // 2
            found = self._word(middle)
            if found == wanted:
                return middle
            if found < wanted:
                first = middle + 1
            else:
                last = middle
        return -1

    def named(self, word: int) -> Numbers:
        """The objects with this word in a name, ascending."""
        return _slice(self._named, self._named_ends, word)

    def contexts(self, word: int) -> Numbers:
        """The contexts with this word in a name, ascending."""
        return _slice(self._contexts, self._context_ends, word)

    def _word(self, number: int) -> bytes:
        start = int(self._word_ends[number - 1]) if number else 0
        return bytes(self._words[max(0, start) : max(0, int(self._word_ends[number]))])


def _slice(values: Numbers, ends: Numbers, number: int) -> Numbers:
    if number < 0:
        return _NOTHING
    start = int(ends[number - 1]) if number else 0
    return values[max(0, start) : max(0, int(ends[number]))]


def integers(section: Any, name: str) -> Numbers:
    """A section as int32; raises IndexFormatError."""
    if len(section) % 4:
        raise IndexFormatError(f"damaged: section {name!r} ends within a number")
    return np.frombuffer(section, dtype="<i4")
