"""The buckets of a histogram."""

from __future__ import annotations

import itertools

from load_tests.histogram import bucket_value


def test_buckets_are_within_one_percent() -> None:
    assert [bucket_value(value) for value in (0, 1, 255)] == [0, 1, 255]
    values = [bucket_value(bucket) for bucket in range(3800)]
    assert values == sorted(values)
    assert all(
        later - earlier <= max(1, earlier * 0.01) for earlier, later in itertools.pairwise(values)
    )
