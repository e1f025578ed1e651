"""The sections of an index for forward search: an inverted index of words.

Objects (streets, places, towns) have names. The context of an object is what lies around it; many
objects share one (the address tail of a street; state and country of a town). Both are looked up by
word.

Words are sorted by their bytes and stored in blocks of BLOCK_WORDS. An entry has: the number of
bytes that the word shares with the one before (0 for the first of a block), the number of its other
bytes, these bytes, and as varints the lengths in bytes of its objects and of its contexts. The
numbers of objects and contexts are varints too: the first number of a word, then the differences.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from geoservice.index.format import IndexFormatError
from geoservice.search.words import all_forms

WORDS: Final = "words"
WORD_BLOCKS: Final = "word blocks"  # int32 x 3 per block: its start in the three other sections
NAMED: Final = "named"  # numbers of objects, ascending per word
CONTEXTS: Final = "contexts"  # numbers of contexts, ascending per word

SECTIONS: Final = (WORDS, WORD_BLOCKS, NAMED, CONTEXTS)

BLOCK_WORDS: Final = 16
_BLOCK_WIDTH: Final = 3
_VARINT_BYTES_MAX: Final = 5
_NUMBER_MAX: Final = 2**31 - 1
_ENCODED_AT_ONCE: Final = 1 << 16

Named = tuple[int, Iterable[str]]  # number, names
Numbers = NDArray[np.int32]
_NOTHING: Final[Numbers] = np.empty(0, dtype=np.int32)


class _Pairs:
    """Pairs of a word and the object or context that has it in a name."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self._words = array("i")
        self._owners = array("i")

    def add(self, owner: int, names: Iterable[str]) -> None:
        for word in all_forms(names):
            self._words.append(self._numbers.setdefault(word, len(self._numbers)))
            self._owners.append(owner)

    def encoded(self, places: NDArray[np.int64]) -> tuple[bytes, list[int]]:
        """Return the encoded owners of all words in sorted order, and the length per word."""
        # Word and owner form one number, so that they are sorted in place and encoded in chunks.
        keys = places[np.frombuffer(self._words, dtype=np.int32)]
        keys <<= 32
        keys |= np.frombuffer(self._owners, dtype=np.int32)
        keys.sort()
        data = bytearray()
        lengths = np.zeros(len(places), dtype=np.int64)
        before = -1
        for start in range(0, len(keys), _ENCODED_AT_ONCE):
            piece = keys[start : start + _ENCODED_AT_ONCE]
            words, owners = piece >> 32, piece & _NUMBER_MAX
            gaps = owners - np.concatenate([[before & _NUMBER_MAX], owners[:-1]])
            is_first = words != np.concatenate([[before >> 32], words[:-1]])
            gaps[is_first] = owners[is_first]
            encoded, sizes = encode_varints(gaps)
            data += encoded
            # The words of a chunk are consecutive.
            lengths[words[0] : words[-1] + 1] += np.bincount(
                words - words[0], weights=sizes
            ).astype(np.int64)
            before = int(piece[-1])
        return bytes(data), lengths.tolist()


def build_search_sections(objects: Iterable[Named], contexts: Iterable[Named]) -> dict[str, bytes]:
    """Build the sections; each object and each context comes once, with all its names."""
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
    named_data, named_lengths = named.encoded(places)
    context_data, context_lengths = inside.encoded(places)
    words = bytearray()
    blocks = array("i")
    before = b""
    named_at = context_at = 0
    for place, number in enumerate(order):
        word = encoded[number]
        common = 0
        if place % BLOCK_WORDS:
            common = _common(before, word)
        else:
            blocks.extend((len(words), named_at, context_at))
        before = word
        words += bytes((common, len(word) - common)) + word[common:]
        words += _varint(named_lengths[place]) + _varint(context_lengths[place])
        named_at += named_lengths[place]
        context_at += context_lengths[place]
    return {
        WORDS: bytes(words),
        WORD_BLOCKS: np.array(blocks, dtype="<i4").tobytes(),
        NAMED: named_data,
        CONTEXTS: context_data,
    }


class WordIndex:
    """The memory-mapped sections. Damaged sections give wrong results, but no error."""

    def __init__(self, section: Any) -> None:
        """Read the sections; `section` returns one by name. Raises IndexFormatError."""
        self._words = memoryview(section(WORDS))
        self._named = memoryview(section(NAMED))
        self._contexts = memoryview(section(CONTEXTS))
        blocks = integers(section(WORD_BLOCKS), WORD_BLOCKS)
        if len(blocks) % _BLOCK_WIDTH:
            raise IndexFormatError("damaged: the sections of words do not fit each other")
        self._blocks = blocks.reshape(-1, _BLOCK_WIDTH)

    def named(self, word: str) -> Numbers:
        """Return the objects with this word in a name, ascending."""
        return self._find(word)[0]

    def contexts(self, word: str) -> Numbers:
        """Return the contexts with this word in a name, ascending."""
        return self._find(word)[1]

    def _find(self, word: str) -> tuple[Numbers, Numbers]:
        wanted = word.encode()
        first, last = 0, len(self._blocks)
        while first < last:
            middle = (first + last) // 2
            if self._first_word(middle) <= wanted:
                first = middle + 1
            else:
                last = middle
        if first == 0:
            return _NOTHING, _NOTHING
        _, named_at, context_at = self._blocks[first - 1].tolist()
        for found, named, contexts in self._block(first - 1):
            if found == wanted:
                return (
                    decode_gaps(self._named[max(0, named_at) : max(0, named_at + named)]),
                    decode_gaps(self._contexts[max(0, context_at) : max(0, context_at + contexts)]),
                )
            named_at += named
            context_at += contexts
        return _NOTHING, _NOTHING

    def _first_word(self, block: int) -> bytes:
        at = max(0, int(self._blocks[block, 0]))
        length = self._words[at + 1] if at + 1 < len(self._words) else 0
        return bytes(self._words[at + 2 : at + 2 + length])

    def _block(self, block: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield the words of a block, each with the lengths of its objects and contexts."""
        at = max(0, int(self._blocks[block, 0]))
        word = b""
        for _ in range(BLOCK_WORDS):
            if at + 2 > len(self._words):
                return
            common, length = self._words[at], self._words[at + 1]
            word = word[:common] + bytes(self._words[at + 2 : at + 2 + length])
            named, at = self._read_varint(at + 2 + length)
            contexts, at = self._read_varint(at)
            yield word, named, contexts

    def _read_varint(self, at: int) -> tuple[int, int]:
        value = 0
        for place, byte in enumerate(self._words[at : at + _VARINT_BYTES_MAX]):
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value, at + place + 1
        return 0, len(self._words)


def encode_varints(values: NDArray[np.int64]) -> tuple[bytes, NDArray[np.int64]]:
    """Return the values as varints (LEB128), and the length of each."""
    sizes = np.ones(len(values), dtype=np.int64)
    for place in range(1, _VARINT_BYTES_MAX):
        sizes += values >= 1 << (7 * place)
    starts = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), dtype=np.uint8)
    for place in range(_VARINT_BYTES_MAX):
        there = sizes > place
        more = (sizes[there] > place + 1).astype(np.int64) << 7
        data[starts[there] + place] = (values[there] >> (7 * place) & 0x7F) | more
    return data.tobytes(), sizes


def decode_gaps(data: Any) -> Numbers:
    """Decode varints of a first number and differences; numbers out of range are dropped."""
    values = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(values < 0x80)
    if not len(ends):
        return _NOTHING
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = np.minimum(ends - starts + 1, _VARINT_BYTES_MAX)
    gaps = np.zeros(len(ends), dtype=np.int64)
    for place in range(int(sizes.max())):
        there = sizes > place
        gaps[there] |= (values[starts[there] + place].astype(np.int64) & 0x7F) << (7 * place)
    numbers = np.cumsum(gaps)
    return numbers[numbers <= _NUMBER_MAX].astype(np.int32)


def integers(section: Any, name: str) -> Numbers:
    """Return a section as int32; raises IndexFormatError."""
    if len(section) % 4:
        raise IndexFormatError(f"damaged: section {name!r} ends within a number")
    return np.frombuffer(section, dtype="<i4")


def _varint(value: int) -> bytes:
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _common(first: bytes, second: bytes) -> int:
    length = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        length += 1
    return length
