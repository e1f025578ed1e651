from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from load_tests.latency import hdr_histogram, merged, percentile_ms

pairs_lists = st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 5)), min_size=1, max_size=30)


@given(pairs_lists, st.sampled_from([0.0, 50.0, 99.0, 99.9, 100.0]))
def test_a_percentile_is_not_exceeded_by_that_share_of_the_samples(
    pairs: list[tuple[int, int]], percent: float
) -> None:
    samples = sorted(value for value, count in pairs for _ in range(count))
    found = percentile_ms(pairs, percent)
    assert found is not None
    not_above = sum(sample <= found * 1000 + 0.5 for sample in samples)
    assert not_above >= len(samples) * percent / 100
    assert round(found * 1000) in samples


def test_without_samples_there_is_no_percentile() -> None:
    assert percentile_ms([], 50) is None


@given(st.lists(pairs_lists, max_size=4))
def test_merging_keeps_every_sample(several: list[list[tuple[int, int]]]) -> None:
    together = merged(several)
    assert together == sorted(together)
    assert sum(count for _, count in together) == sum(
        count for pairs in several for _, count in pairs
    )


def test_the_hdr_histogram_has_the_same_percentiles_within_its_precision() -> None:
    pairs = [(value * 37, 3) for value in range(1, 2000)]
    histogram = hdr_histogram(pairs)
    for percent in (50.0, 99.0):
        exact = percentile_ms(pairs, percent)
        assert exact is not None
        assert abs(histogram.get_value_at_percentile(percent) - exact * 1000) < exact * 1000 * 0.02
