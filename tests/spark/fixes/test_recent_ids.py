"""The window of recent ids compared with a simple implementation."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.fixes.recent_ids import RecentIds


@settings(max_examples=300)
@given(
    limit=st.integers(0, 20),
    batches=st.lists(st.lists(st.integers(0, 30), max_size=15), max_size=10),
    spread=st.sampled_from([1, 1 << 20, 0x9E3779B97F4A7C15]),
)
def test_an_id_is_repeated_when_it_is_among_the_newest_or_earlier_in_its_batch(
    limit: int, batches: list[list[int]], spread: int
) -> None:
    window = RecentIds(limit, np.empty(0, np.uint64))
    newest: list[int] = []
    for batch in batches:
        # Spread: ids that differ only in bits that the small table ignores.
        ids = [number * spread % 2**64 for number in batch]
        expected = []
        kept: list[int] = []
        for identity in ids:
            expected.append(identity in newest or identity in kept)
            if not expected[-1]:
                kept.append(identity)
        hashes = np.array(ids, np.uint64)
        repeated = window.repeated(hashes)
        assert repeated.tolist() == expected
        window.extend(hashes[~repeated])
        newest = (newest + kept)[-limit:] if limit else []
        assert len(window) == len(newest)
