"""Latencies as (microseconds, count) pairs: percentiles, merging, HdrHistogram."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

Pairs = Sequence[tuple[int, int]]

#: Upper limit of one hour; longer latencies count as this.
MICROSECONDS_MAX: Final = 3_600_000_000


def percentile_ms(pairs: Pairs, percent: float) -> float | None:
    """Return the latency that `percent` of the samples do not exceed; None without samples."""
    total = sum(count for _, count in pairs)
    if not total:
        return None
    wanted, seen = total * percent / 100, 0
    for value, count in sorted(pairs):
        seen += count
        if seen >= wanted:
            return value / 1000
    raise AssertionError("a percentile is at most 100")


def merged(several: Iterable[Pairs]) -> list[tuple[int, int]]:
    """Return one sorted list of pairs for all samples of `several`."""
    counts: dict[int, int] = {}
    for pairs in several:
        for value, count in pairs:
            counts[value] = counts.get(value, 0) + count
    return sorted(counts.items())


def hdr_histogram(pairs: Pairs) -> Any:
    """Return an HdrHistogram with two significant digits, in microseconds."""
    from hdrh.histogram import HdrHistogram

    histogram = HdrHistogram(1, MICROSECONDS_MAX, 2)
    for value, count in pairs:
        histogram.record_value(min(max(1, value), MICROSECONDS_MAX), count)
    return histogram
