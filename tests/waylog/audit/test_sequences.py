"""Gaps in what an app counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.audit.sequences import Gap, find_gaps, sequence_of


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.randoms())
def test_gaps_are_the_numbers_between_two_that_came(
    one: set[int], other: set[int], random: Any
) -> None:
    # Two runs of a counter that begins again, in any order of arrival.
    pairs = [(100 + number, number) for number in one]
    pairs += [(1_000 + number, number) for number in other]
    random.shuffle(pairs)
    found = find_gaps(pairs)
    if found is None:
        assert not one and not other
        return
    falls = bool(one and other and min(other) < max(one))
    joined = [one | other] if not falls else [one, other]
    if one and other and not falls:
        # Without a fall nobody can tell two runs from one.
        assert min(other) >= max(one)
    missing = {
        number for run in joined if run for number in range(min(run), max(run)) if number not in run
    }
    count = sum(len(run) for run in joined)
    assert found.missing == sum(max(run) - min(run) + 1 - len(run) for run in joined if run)
    assert found.count == count and found.restarts == falls
    gaps = {number for gap in found.gaps for number in range(gap.first, gap.last + 1)}
    assert gaps == missing


def test_a_repeat_of_a_number_is_no_gap() -> None:
    found = find_gaps([(1, 5), (1, 5), (2, 8)])
    assert found is not None
    assert (found.gaps, found.missing, found.count) == ([Gap(6, 7)], 2, 2)


@pytest.mark.parametrize(
    ("attributes", "sequence"),
    [
        (None, None),
        ({}, None),
        ({"sequence": 7}, 7),
        ({"seq": "0012"}, 12),
        ({"sequence": True, "seq": 3}, 3),
        ({"sequence": -1}, None),
        ({"sequence": 1.5}, None),
        ({"sequence": 12.0}, 12),
        ({"sequence": float("inf")}, None),
        ({"sequence": "1" * 30}, None),
        ({"sequence": 1 << 63}, None),
        ({"sequence": "²"}, None),
        ({"sequence": [1]}, None),
    ],
)
def test_only_whole_numbers_are_counts(
    attributes: dict[str, Any] | None, sequence: int | None
) -> None:
    assert sequence_of(attributes) == sequence
