"""The rate and bursts that a token bucket allows."""

from __future__ import annotations

from tests.manual_clock import ManualClock
from waylog.network.token_bucket import TokenBucket


def taken(bucket: TokenBucket, times: int) -> list[bool]:
    return [bucket.take() for _ in range(times)]


def test_a_burst_is_allowed_and_then_so_many_a_second() -> None:
    clock = ManualClock()
    bucket = TokenBucket(5.0, clock, burst=5.0)
    assert taken(bucket, 8) == [True] * 5 + [False] * 3
    assert bucket.refused == 3
    clock.now = 1_000.5
    assert taken(bucket, 4) == [True] * 2 + [False] * 2
    # Half a token was left over.
    clock.now = 1_000.75
    assert taken(bucket, 2) == [True, False]
    assert bucket.refused == 6


def test_without_a_size_a_bucket_holds_five_seconds() -> None:
    clock = ManualClock()
    bucket = TokenBucket(10.0, clock)
    assert sum(taken(bucket, 200)) == 50
    clock.now += 1
    assert sum(taken(bucket, 200)) == 10
    clock.now += 1000
    assert sum(taken(bucket, 200)) == 50


def test_a_quiet_time_allows_no_larger_burst() -> None:
    clock = ManualClock()
    bucket = TokenBucket(2.0, clock, burst=2.0)
    for clock.now in (1_000.0, 1_100.0, 101_000.0):
        assert taken(bucket, 3) == [True, True, False]


def test_what_was_given_back_can_be_taken_again() -> None:
    bucket = TokenBucket(0.2, ManualClock())
    assert taken(bucket, 2) == [True, False]
    bucket.give_back()
    assert taken(bucket, 2) == [True, False]
