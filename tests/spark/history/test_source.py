"""The ends of batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark.fixes.log_fixes import next_ends

OFFSETS = st.dictionaries(st.integers(0, 5), st.integers(0, 10**6))


@given(starts=OFFSETS, ends=OFFSETS, rows=st.one_of(st.none(), st.integers(1, 10**6)))
def test_batches_never_go_back_nor_beyond_the_log_and_always_end(
    starts: dict[int, int], ends: dict[int, int], rows: int | None
) -> None:
    result = next_ends(starts, ends, rows)
    assert set(result) == set(starts) | set(ends)
    for partition, end in result.items():
        start = starts.get(partition, 0)
        assert start <= end <= max(start, ends.get(partition, start))
    if rows is None:
        assert all(result[each] == max(ends[each], starts.get(each, 0)) for each in ends)
    else:
        taken = sum(end - starts.get(partition, 0) for partition, end in result.items())
        assert taken <= rows + len(result)
    # Each partition with waiting records advances: none starves behind a larger one.
    for partition, end in ends.items():
        assert end <= starts.get(partition, 0) or result[partition] > starts.get(partition, 0)
