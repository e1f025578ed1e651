from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from waylog.administration.placement import plan_moves


def test_what_is_spread_evenly_stays() -> None:
    present = {("t", 0): [1, 2, 3], ("t", 1): [2, 3, 1], ("t", 2): [3, 1, 2]}
    assert plan_moves(present, [1, 2, 3]) == {}


def test_a_new_broker_gets_its_share_and_no_more_is_moved() -> None:
    present = {("t", number): [1, 2] for number in range(6)}
    moves = plan_moves(present, [1, 2, 3])
    after = {place: moves.get(place, replicas) for place, replicas in present.items()}
    assert Counter(each for replicas in after.values() for each in replicas) == {1: 4, 2: 4, 3: 4}
    moved = sum(3 in replicas for replicas in after.values())
    assert moved == 4


@given(
    st.lists(st.permutations([1, 2, 3, 4]), min_size=1, max_size=20),
    st.integers(min_value=1, max_value=4),
    st.lists(st.integers(min_value=1, max_value=9), min_size=1, max_size=6, unique=True),
)
def test_every_plan_is_even_and_complete(
    orders: list[list[int]], factor: int, brokers: list[int]
) -> None:
    present = {("t", number): order[:factor] for number, order in enumerate(orders)}
    moves = plan_moves(present, brokers)
    after = {place: moves.get(place, replicas) for place, replicas in present.items()}
    count = min(factor, len(brokers))
    load: Counter[int] = Counter(dict.fromkeys(brokers, 0))
    for replicas in after.values():
        assert len(replicas) == len(set(replicas)) == count
        assert set(replicas) <= set(brokers)
        load.update(replicas)
    assert max(load.values()) - min(load.values()) <= 1
