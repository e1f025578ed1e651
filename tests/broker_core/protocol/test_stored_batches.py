"""Finding batches by their offsets, and where they end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import CorruptMessage
from broker_core.protocol.stored_batches import find_batch, scan_batches, whole_batches
from tests.broker_core.protocol.sample_batches import sample


def numbered(counts: list[int], first_offset: int = 0) -> tuple[bytearray, list[tuple[int, int]]]:
    """Return batches with given record counts, and (position, base offset) of each."""
    data = bytearray()
    places = []
    offset = first_offset
    for count in counts:
        places.append((len(data), offset))
        data += sample(count, base_offset=offset)
        offset += count
    return data, places


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_the_batch_of_an_offset_is_found(counts: list[int], data: st.DataObject) -> None:
    batches, places = numbered(counts, 1000)
    offset = data.draw(st.integers(1000, 1000 + sum(counts) - 1))
    expected = max(place for place in places if place[1] <= offset)[0]
    position, size = find_batch(batches, offset)
    assert position == expected
    assert scan_batches(batches[position : position + size])[2] is None
    assert find_batch(batches, 1000 + sum(counts)) == (len(batches), 0)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_only_whole_batches_below_the_bound_are_taken(
    counts: list[int], data: st.DataObject
) -> None:
    batches, places = numbered(counts)
    ends = [*[position for position, _ in places[1:]], len(batches)]
    next_offsets = [*[offset for _, offset in places[1:]], sum(counts)]
    cut = data.draw(st.integers(0, len(batches)))
    bound = data.draw(st.integers(0, sum(counts) + 1))
    expected = [
        (end, following)
        for end, following in zip(ends, next_offsets, strict=True)
        if end <= cut and following <= bound
    ]
    assert whole_batches(batches[:cut], bound) == (expected[-1] if expected else (0, -1))


def test_lengths_that_lead_nowhere_are_refused_when_searching() -> None:
    for length in (-(2**31), -12, 0, 48):
        batch = sample()
        struct.pack_into(">i", batch, 8, length)
        with pytest.raises(CorruptMessage, match="length is impossible"):
            find_batch(batch, 2)
        with pytest.raises(CorruptMessage, match="length is impossible"):
            whole_batches(batch)
