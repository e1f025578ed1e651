"""The time index against brute force, and its file format."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_core.log.time_index import TimeIndex, last_timestamp_of

entries = st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 50)), max_size=40)


def build(steps: list[tuple[int, int]]) -> tuple[TimeIndex, list[tuple[int, int]]]:
    index, pairs, timestamp, offset = TimeIndex(), [], 1_700_000_000_000, 0
    for time_step, offset_step in steps:
        timestamp += time_step
        offset += offset_step
        index.append(timestamp, offset)
        pairs.append((timestamp, offset))
    return index, pairs


@given(entries, st.integers(0, 40 * 10**6))
def test_a_lookup_never_skips_a_record_and_skips_all_that_is_known_to_be_older(
    steps: list[tuple[int, int]], after: int
) -> None:
    index, pairs = build(steps)
    wanted = 1_700_000_000_000 + after
    older = [offset for timestamp, offset in pairs if timestamp < wanted]
    assert index.lookup(wanted) == (older[-1] + 1 if older else 0)


@given(entries)
def test_what_is_written_is_read(steps: list[tuple[int, int]]) -> None:
    index, pairs = build(steps)
    data = index.to_bytes()
    loaded = TimeIndex.from_bytes(data)
    assert loaded is not None
    assert loaded.to_bytes() == data
    assert loaded.last_timestamp == last_timestamp_of(data) == (pairs[-1][0] if pairs else -1)


@given(entries, st.integers(0, 2100))
def test_truncating_drops_entries_at_and_behind_an_offset(
    steps: list[tuple[int, int]], offset: int
) -> None:
    index, pairs = build(steps)
    index.truncate(offset)
    assert len(index) == len([at for _, at in pairs if at < offset])


def test_the_file_has_kafkas_format() -> None:
    index = TimeIndex()
    index.append(1_700_000_000_000, 258)
    assert index.to_bytes() == bytes.fromhex("0000018bcfe56800 00000102")


def test_an_entry_that_is_not_later_says_nothing_and_is_left_out() -> None:
    index = TimeIndex()
    index.append(100, 1)
    index.append(100, 2)
    index.append(90, 3)
    assert len(index) == 1


def test_a_file_that_cannot_be_a_time_index_is_refused() -> None:
    sound = bytes.fromhex("0000018bcfe56800 00000102")
    assert TimeIndex.from_bytes(sound[:-1]) is None
    assert TimeIndex.from_bytes(sound + bytes(12)) is None
    assert TimeIndex.from_bytes(sound + sound) is None
    assert last_timestamp_of(b"") == -1
