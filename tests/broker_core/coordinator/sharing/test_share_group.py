from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import errors
from broker_core.coordinator.groups.assignors import Subscriptions
from broker_core.coordinator.groups.states import GroupState
from broker_core.coordinator.sharing.share_group import (
    ShareAnswer,
    ShareGroup,
    ShareGroupSettings,
    ShareHeartbeat,
    assign_simply,
)

_SETTINGS = ShareGroupSettings(session_timeout_ms=1000, heartbeat_interval_ms=100, size_max=3)


class Topics:
    """Topics by name: (id, partitions)."""

    def __init__(self, **counts: int) -> None:
        self.version = 1
        self.counts = counts

    def names(self) -> Iterator[str]:
        return iter(self.counts)

    def find(self, name: str) -> tuple[bytes, int] | None:
        count = self.counts.get(name)
        return None if count is None else (name.encode().ljust(16), count)

    def name_of(self, topic_id: bytes) -> str | None:
        return topic_id.decode().strip()


def beat(
    group: ShareGroup, member: str, epoch: int, topics: list[str] | None = None, now_ms: int = 0
) -> ShareAnswer:
    asked = ShareHeartbeat(group.group_id, member, epoch, None, "client", "/host", topics)
    asked.check()
    return group.heartbeat(asked, _SETTINGS, now_ms)


def test_members_share_partitions_and_learn_only_what_is_new() -> None:
    group = ShareGroup("g", Topics(t=2))
    first = beat(group, "a", 0, ["t"])
    assert first.epoch == 1
    assert first.assigned is not None and len(first.assigned) == 2
    assert beat(group, "a", 1).assigned is None
    beat(group, "b", 0, ["t"])
    beat(group, "c", 0, ["t"])
    moved = beat(group, "a", 1)
    assert moved.epoch == 3
    assert moved.assigned is not None and len(moved.assigned) == 1
    assert group.state is GroupState.STABLE


def test_more_partitions_are_noticed() -> None:
    topics = Topics(t=1)
    group = ShareGroup("g", topics)
    beat(group, "a", 0, ["t"])
    topics.counts["t"] = 3
    topics.version += 1
    grown = beat(group, "a", 1)
    assert grown.assigned is not None and len(grown.assigned) == 3


def test_who_leaves_or_is_not_heard_of_is_no_member() -> None:
    group = ShareGroup("g", Topics(t=1))
    beat(group, "a", 0, ["t"])
    beat(group, "b", 0, ["t"], now_ms=500)
    assert group.next_deadline() == 1000
    group.tick(1000)
    assert set(group.members) == {"b"}
    assert beat(group, "b", -1).epoch == -1
    assert group.state is GroupState.EMPTY


def test_strangers_and_members_of_another_time_are_refused() -> None:
    group = ShareGroup("g", Topics(t=1))
    beat(group, "a", 0, ["t"])
    with pytest.raises(errors.UnknownMemberId):
        beat(group, "b", 1)
    with pytest.raises(errors.UnknownMemberId):
        beat(group, "b", -1)
    with pytest.raises(errors.FencedMemberEpoch):
        beat(group, "a", 7)
    beat(group, "b", 0, ["t"])
    beat(group, "c", 0, ["t"])
    with pytest.raises(errors.GroupMaxSizeReached):
        beat(group, "d", 0, ["t"])
    for wrong in (("", 0, ["t"]), ("a", 0, None), ("a", -2, None)):
        with pytest.raises(errors.InvalidRequest):
            beat(group, *wrong)


@given(
    st.dictionaries(st.text("abc", min_size=1), st.frozensets(st.sampled_from([b"s", b"t"]))),
    st.dictionaries(st.sampled_from([b"s", b"t"]), st.integers(0, 9)),
)
def test_every_partition_has_a_reader_and_nobody_idles(
    topics: dict[str, frozenset[bytes]], partitions: dict[bytes, int]
) -> None:
    assigned = assign_simply(Subscriptions(topics, partitions))
    assert assigned.keys() == topics.keys()
    for topic_id, count in partitions.items():
        readers = {member for member, chosen in topics.items() if topic_id in chosen}
        read = [
            number
            for places in assigned.values()
            for each, number in places
            if each == topic_id
        ]  # fmt: skip
        if readers:
            assert set(read) == set(range(count))
        for member in readers if count else ():
            assert any(each == topic_id for each, _ in assigned[member])
