"""Who has most of a pool."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.shares import FAIR_WEIGHT, UserShares

CHANGES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-20, 30)), max_size=60)


@given(CHANGES)
def test_the_one_who_has_most_is_found_give_or_take_a_fifth(changes: list[tuple[str, int]]) -> None:
    shares, weights = UserShares(), dict.fromkeys("abcd", 0)
    for user, by in changes:
        change = max(by, -weights[user])
        weights[user] += change
        shares.change(user, change)
        found = shares.heaviest()
        most = max(weights.values())
        assert (found is None) == (most < FAIR_WEIGHT)
        if found is not None:
            assert 1.5625 * weights[found] >= most
    assert shares.weight == sum(weights.values())
    assert {user: shares.of(user) for user in "abcd"} == weights
