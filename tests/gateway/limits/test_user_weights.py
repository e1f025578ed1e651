"""The user with the greatest weight in a pool."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.user_weights import FAIR_WEIGHT, UserWeights

CHANGES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-20, 30)), max_size=60)


@given(CHANGES)
def test_the_one_who_has_most_is_found_give_or_take_a_fifth(changes: list[tuple[str, int]]) -> None:
    shares, weights = UserWeights(), dict.fromkeys("abcd", 0)
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


def test_a_user_that_has_nothing_any_more_is_forgotten() -> None:
    shares = UserWeights()
    shares.change("ada", 10)
    before = pickle.dumps(shares)
    for user in ("bob", "cleo"):
        shares.change(user, FAIR_WEIGHT - 1)
        shares.change(user, 1 - FAIR_WEIGHT)
    assert pickle.dumps(shares) == before


def test_who_grows_little_by_little_is_noticed() -> None:
    shares = UserWeights()
    shares.change("ada", 20)
    for _ in range(19):
        shares.change("ada", 1)
    shares.change("bob", 21)
    assert shares.heaviest() == "ada"


def test_who_had_much_and_has_nothing_is_not_asked() -> None:
    shares = UserWeights()
    for by in (10, 10, 20, -40):
        shares.change("ada", by)
    shares.change("bob", FAIR_WEIGHT)
    assert shares.heaviest() == "bob"
    shares.change("bob", -1)
    assert shares.heaviest() is None
    shares.change("ada", 10)
    assert shares.heaviest() == "ada"
