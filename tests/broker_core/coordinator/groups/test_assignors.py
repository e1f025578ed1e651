"""Assignors: assignments are complete, fair, and change as little as possible."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

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

TOPICS = [bytes([each]) * 16 for each in b"abcdef"]

subscriptions = st.builds(
    Subscriptions,
    st.dictionaries(st.sampled_from("stuvwxyz"), st.frozensets(st.sampled_from(TOPICS))),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12)),
)
#: What becomes of a group: members join, leave and change; topics grow, shrink and vanish.
histories = st.lists(subscriptions, min_size=1, max_size=4)


def places(given_: Subscriptions) -> set[tuple[bytes, int]]:
    subscribed = {topic for topics in given_.topics.values() for topic in topics}
    return {
        (topic, each)
        for topic, count in given_.partitions.items()
        if topic in subscribed
        for each in range(count)
    }


def balanced(given_: Subscriptions, assignment: Assignment) -> bool:
    """Tell whether nobody has two more than another member who could take one of these."""
    least = {
        topic: min(
            len(assignment[each]) for each, topics in given_.topics.items() if topic in topics
        )
        for topic, _ in places(given_)
    }
    return all(len(mine) - least[topic] < 2 for mine in assignment.values() for topic, _ in mine)


def reversed_(given_: Subscriptions) -> Subscriptions:
    """Return the same subscriptions in another order."""
    return Subscriptions(
        dict(reversed(list(given_.topics.items()))), dict(reversed(list(given_.partitions.items())))
    )


def calls(action: Callable[[], object]) -> int:
    """Count the calls of functions that an action makes."""
    count = 0

    def take(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(take)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(history=histories)
def test_every_partition_goes_to_one_member_that_wants_it(
    assignor: str, history: list[Subscriptions]
) -> None:
    target: Assignment = {}
    for given_ in history:
        target = ASSIGNORS[assignor](given_, target)
        assert target.keys() == given_.topics.keys()
        assigned = [place for each in target.values() for place in each]
        assert len(assigned) == len(set(assigned))
        assert set(assigned) == places(given_)
        for member, mine in target.items():
            assert {topic for topic, _ in mine} <= given_.topics[member]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@given(history=histories)
def test_the_same_is_decided_in_any_order(assignor: str, history: list[Subscriptions]) -> None:
    present: Assignment = {}
    for given_ in history:
        target = ASSIGNORS[assignor](given_, present)
        again = ASSIGNORS[assignor](reversed_(given_), dict(reversed(present.items())))
        assert target == again
        present = target


@given(history=histories)
def test_nobody_has_two_more_than_who_could_have_them(history: list[Subscriptions]) -> None:
    target: Assignment = {}
    for given_ in history:
        target = assign_uniformly(given_, target)
        assert balanced(given_, target)


@given(history=histories)
def test_who_is_balanced_keeps_what_it_has(history: list[Subscriptions]) -> None:
    target: Assignment = {}
    for given_ in history:
        # The assignment by ranges is often balanced too, and another one.
        ranges = assign_ranges(given_, {})
        if balanced(given_, ranges):
            assert assign_uniformly(given_, ranges) == ranges
        target = assign_uniformly(given_, target)
        assert assign_uniformly(given_, target) == target


@given(counts=st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_no_more_moves_than_has_to(counts: list[int]) -> None:
    topics, total = frozenset(TOPICS[:1]), sum(counts)
    rest = iter(range(total))
    present = {
        str(member): frozenset((TOPICS[0], next(rest)) for _ in range(count))
        for member, count in enumerate(counts)
    }
    given_ = Subscriptions(dict.fromkeys(present, topics), {TOPICS[0]: total})
    target = assign_uniformly(given_, present)
    share, more = divmod(total, len(counts))
    kept = sum(min(each, share) for each in counts) + min(
        sum(each > share for each in counts), more
    )
    assert sum(len(target[member] & mine) for member, mine in present.items()) == kept


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("subscriptions_", [1, 20])
def test_the_work_is_not_partitions_times_members(assignor: str, subscriptions_: int) -> None:
    # Each member subscribes to one of the topics at least, and many to the same ones.
    partitions = {each.to_bytes(16, "big"): 20 for each in range(50)}
    names = list(partitions)
    members = {f"m{each:03}": frozenset(names[each % subscriptions_ :]) for each in range(200)}
    given_ = Subscriptions(members, partitions)
    few = Subscriptions({each: members[each] for each in list(members)[:-1]}, partitions)
    present = ASSIGNORS[assignor](few, {})
    pairs = sum(map(len, set(members.values())))
    bound = 10 * (len(places(given_)) + len(members) + pairs)
    assert calls(lambda: ASSIGNORS[assignor](given_, {})) < bound
    assert calls(lambda: ASSIGNORS[assignor](given_, present)) < bound
    assert calls(lambda: ASSIGNORS[assignor](few, present)) < bound


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


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_partition_that_two_members_have_goes_to_one(assignor: str) -> None:
    # What a classic group comes with has been decided by one of its clients.
    topic = TOPICS[0]
    wanted = Subscriptions({"a": frozenset({topic}), "b": frozenset({topic})}, {topic: 3})
    first, second, third = ((topic, each) for each in range(3))
    present: Assignment = {"a": frozenset({first, second}), "b": frozenset({second, third})}
    target = ASSIGNORS[assignor](wanted, present)
    assert sorted(place for each in target.values() for place in each) == [first, second, third]
