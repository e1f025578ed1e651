from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.cluster.image import BrokerImage
from broker_core.cluster.placement import place_replicas
from broker_core.errors import InvalidReplicationFactor


def broker(number: int, rack: str | None = None, *, fenced: bool = False) -> BrokerImage:
    return BrokerImage(number, number, b"", (), rack, fenced, in_controlled_shutdown=False)


@given(
    st.integers(min_value=1, max_value=8),
    st.integers(min_value=1, max_value=30),
    st.integers(min_value=1, max_value=4),
    st.integers(),
)
def test_leaders_are_spread_and_no_broker_has_two_replicas(
    brokers: int, partitions: int, factor: int, seed: int
) -> None:
    known = [broker(number) for number in range(brokers)]
    if factor > brokers:
        with pytest.raises(InvalidReplicationFactor):
            place_replicas(known, partitions, factor, random.Random(seed))
        return
    placed = place_replicas(known, partitions, factor, random.Random(seed))
    assert len(placed) == partitions
    assert all(len(set(each)) == factor for each in placed)
    leads = Counter(dict.fromkeys(range(brokers), 0))
    leads.update(each[0] for each in placed)
    assert max(leads.values()) - min(leads.values()) <= 1


@given(
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=3, max_size=9),
    st.integers(min_value=1, max_value=4),
    st.integers(),
)
def test_replicas_are_in_as_many_racks_as_there_are(
    racks: list[str], factor: int, seed: int
) -> None:
    factor = min(factor, len(racks))
    known = [broker(number, rack) for number, rack in enumerate(racks)]
    for each in place_replicas(known, 12, factor, random.Random(seed)):
        used = {racks[number] for number in each}
        assert len(used) == min(factor, len(set(racks)))


def test_a_broker_that_is_down_is_asked_last_and_never_to_lead() -> None:
    known = [broker(1), broker(2), broker(3, fenced=True)]
    for each in place_replicas(known, 10, 2, random.Random(1)):
        assert set(each) == {1, 2}
    for each in place_replicas(known, 10, 3, random.Random(1)):
        assert each[2] == 3


def test_without_a_running_broker_nothing_is_placed() -> None:
    with pytest.raises(InvalidReplicationFactor):
        place_replicas([broker(1, fenced=True)], 1, 1, random.Random(1))
