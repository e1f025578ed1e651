"""The offset index against brute force, and its file format."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.log.offset_index import OffsetIndex

entries = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=40)


def build(steps: list[tuple[int, int]]) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    index, pairs, offset, position = OffsetIndex(), [], 0, 0
    for offset_step, position_step in steps:
        offset += offset_step
        position += position_step
        index.append(offset, position)
        pairs.append((offset, position))
    return index, pairs


@given(entries, st.integers(0, 2100))
def test_a_lookup_answers_the_nearest_entry_at_or_before(
    steps: list[tuple[int, int]], offset: int
) -> None:
    index, pairs = build(steps)
    expected = [position for at, position in pairs if at <= offset]
    assert index.lookup(offset) == (expected[-1] if expected else 0)


@given(entries)
def test_what_is_written_is_read(steps: list[tuple[int, int]]) -> None:
    index, pairs = build(steps)
    data = index.to_bytes()
    loaded = OffsetIndex.from_bytes(data, 10**9)
    assert loaded is not None
    assert loaded.to_bytes() == data
    assert [loaded.lookup(offset) for offset, _ in pairs] == [position for _, position in pairs]


@given(entries, st.integers(0, 2100))
def test_truncating_drops_entries_at_and_behind_an_offset(
    steps: list[tuple[int, int]], offset: int
) -> None:
    index, pairs = build(steps)
    index.truncate(offset)
    assert len(index) == len([at for at, _ in pairs if at < offset])


def test_the_file_has_kafkas_format() -> None:
    index = OffsetIndex()
    index.append(5, 4200)
    index.append(258, 70_000)
    assert index.to_bytes() == bytes.fromhex("00000005 00001068 00000102 00011170")


def test_a_file_that_cannot_be_an_index_of_the_segment_is_refused() -> None:
    sound = bytes.fromhex("00000005 00001068 00000102 00011170")
    assert OffsetIndex.from_bytes(sound, 70_001) is not None
    assert OffsetIndex.from_bytes(sound, 70_000) is None  # points behind the end
    assert OffsetIndex.from_bytes(sound[:-1], 10**6) is None
    assert OffsetIndex.from_bytes(sound + bytes(8), 10**6) is None  # a block of zeros
    assert OffsetIndex.from_bytes(sound[8:] + sound[:8], 10**6) is None
