"""The rate and bursts that a token bucket allows."""

from __future__ import annotations

from waylog.network.token_bucket import TokenBucket


def taken(bucket: TokenBucket, now: float, times: int) -> list[bool]:
    return [bucket.take(now) for _ in range(times)]


def test_a_burst_is_allowed_and_then_so_many_a_second() -> None:
    bucket = TokenBucket(5.0)
    assert taken(bucket, 1_000.0, 8) == [True] * 5 + [False] * 3
    assert bucket.refused == 3
    assert taken(bucket, 1_000.5, 4) == [True] * 2 + [False] * 2
    # Half a token was left over.
    assert taken(bucket, 1_000.75, 2) == [True, False]
    assert bucket.refused == 6


def test_a_quiet_time_allows_no_larger_burst() -> None:
    bucket = TokenBucket(2.0)
    for now in (0.0, 100.0, 100_000.0):
        assert taken(bucket, now, 3) == [True, True, False]
