"""Assignors: assignments are complete, fair, and change as little as possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.coordinator.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriptions,
    assign_ranges,
    assign_uniformly,
)

TOPICS = [b"a" * 16, b"b" * 16, b"c" * 16]

subscriptions = st.builds(
    Subscriptions,
    st.dictionaries(st.sampled_from("uvwxyz"), st.frozensets(st.sampled_from(TOPICS)), max_size=6),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9)),
)


def places(given_: Subscriptions) -> set[tuple[bytes, int]]:
    subscribed = {topic for topics in given_.topics.values() for topic in topics}
    return {
        (topic, each)
        for topic, count in given_.partitions.items()
        if topic in subscribed
        for each in range(count)
    }


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(given_=subscriptions, before=subscriptions)
def test_every_partition_goes_to_one_member_that_wants_it(
    assignor: str, given_: Subscriptions, before: Subscriptions
) -> None:
    present = ASSIGNORS[assignor](before, {})
    target = ASSIGNORS[assignor](given_, present)
    assert target.keys() == given_.topics.keys()
    assigned = [place for each in target.values() for place in each]
    assert len(assigned) == len(set(assigned))
    assert set(assigned) == places(given_)
    for member, mine in target.items():
        assert {topic for topic, _ in mine} <= given_.topics[member]


@given(given_=subscriptions, before=subscriptions)
def test_nobody_has_two_more_than_who_could_have_them(
    given_: Subscriptions, before: Subscriptions
) -> None:
    target = assign_uniformly(given_, assign_uniformly(before, {}))
    for mine in target.values():
        for topic, _ in mine:
            for other, theirs in target.items():
                if topic in given_.topics[other]:
                    assert len(mine) - len(theirs) < 2


@given(given_=subscriptions)
def test_who_is_balanced_keeps_what_it_has(given_: Subscriptions) -> None:
    target = assign_uniformly(given_, {})
    assert assign_uniformly(given_, target) == target


def test_a_new_member_takes_its_share_and_no_more_moves() -> None:
    topics = frozenset(TOPICS[:1])
    before: Assignment = assign_uniformly(
        Subscriptions({"u": topics, "v": topics}, {TOPICS[0]: 9}), {}
    )
    after = assign_uniformly(
        Subscriptions({"u": topics, "v": topics, "w": topics}, {TOPICS[0]: 9}), before
    )
    assert [len(after[member]) for member in "uvw"] == [3, 3, 3]
    assert after["u"] <= before["u"]
    assert after["v"] <= before["v"]


def test_ranges_of_topics_with_the_same_partitions_meet() -> None:
    topics = frozenset(TOPICS[:2])
    target = assign_ranges(
        Subscriptions({"u": topics, "v": topics}, {TOPICS[0]: 5, TOPICS[1]: 5}), {}
    )
    assert {number for topic, number in target["u"] if topic == TOPICS[0]} == {0, 1, 2}
    assert {number for topic, number in target["u"] if topic == TOPICS[1]} == {0, 1, 2}
