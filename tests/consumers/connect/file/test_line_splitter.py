"""Lines out of pieces: the same whatever the pieces are."""

from __future__ import annotations

import re
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from consumers.connect.file.line_splitter import LineSplitter

_PIECES = st.lists(st.text("ab\r\n", max_size=6).map(str.encode), max_size=12)


def fed(pieces: list[bytes]) -> tuple[list[bytes | None], LineSplitter]:
    splitter = LineSplitter(1000)
    return [line for piece in pieces for line, _ in splitter.feed(piece)], splitter


@given(_PIECES)
def test_the_pieces_do_not_matter(pieces: list[bytes]) -> None:
    lines, splitter = fed(pieces)
    whole, other = fed([b"".join(pieces)])
    assert lines == whole
    assert splitter.rest_bytes == other.rest_bytes
    last, other_last = splitter.take_rest(), other.take_rest()
    assert last == other_last


@given(_PIECES)
def test_sizes_lead_from_line_to_line(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    splitter = LineSplitter(1000)
    position = 0
    for piece in pieces:
        for line, size in splitter.feed(piece):
            assert line is not None
            assert data[position : position + len(line)] == line
            assert re.fullmatch(rb"\r\n|\n|\r", data[position + len(line) : position + size])
            position += size
    assert position + splitter.rest_bytes == len(data)


@given(_PIECES, st.integers(1, 5))
def test_of_a_line_that_is_too_long_only_the_size_is_told(pieces: list[bytes], most: int) -> None:
    known, bounded = LineSplitter(1000), LineSplitter(most)
    for piece in pieces:
        expected = [
            (None if line is None or len(line) > most else line, size)
            for line, size in known.feed(piece)
        ]
        assert bounded.feed(piece) == expected
        assert bounded.rest_bytes == known.rest_bytes
    rest = known.take_rest()
    if rest is not None and rest[0] is not None and len(rest[0]) > most:
        rest = (None, rest[1])
    assert bounded.take_rest() == rest


def test_a_line_without_end_takes_no_memory() -> None:
    splitter = LineSplitter(1000)
    tracemalloc.start()
    try:
        for _ in range(1000):
            assert splitter.feed(bytes(10_000)) == []
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    assert splitter.is_too_long
    assert splitter.feed(b"\nnext\n") == [(None, 10_000_001), (b"next", 5)]
    assert not splitter.is_too_long


def test_a_carriage_return_at_the_end_waits_for_what_follows() -> None:
    splitter = LineSplitter(1000)
    assert splitter.feed(b"a\r") == []
    assert splitter.feed(b"\nb\n") == [(b"a", 3), (b"b", 2)]


def test_a_line_without_end_is_given_when_nothing_will_follow() -> None:
    splitter = LineSplitter(1000)
    splitter.feed(b"a\nb")
    assert splitter.take_rest() == (b"b", 1)
    assert splitter.take_rest() is None


def test_what_was_cleared_is_forgotten() -> None:
    splitter = LineSplitter(1000)
    splitter.feed(b"half")
    splitter.clear()
    assert splitter.feed(b"whole\n") == [(b"whole", 6)]
