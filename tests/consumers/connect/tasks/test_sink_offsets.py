"""Which offsets of a sink task may be committed."""

from __future__ import annotations

from consumers.connect.plugins.sink_task import TopicPartition
from consumers.connect.tasks.sink_offsets import SinkOffsets

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def offsets_after(**ends: int) -> SinkOffsets:
    """Return offsets of partitions that were read from 10 on, and put up to some ends."""
    offsets = SinkOffsets()
    for name, end in ends.items():
        partition = {"a": A, "b": B}[name]
        offsets.began(partition, 10)
        offsets.put({partition: end})
    return offsets


def test_what_was_put_may_be_committed_once() -> None:
    offsets = offsets_after(a=15)
    asked = offsets.to_commit({A, B})
    assert asked == {A: 15}
    assert offsets.accepted(asked, asked, {A}) == {A: 15}
    offsets.committed({A: 15})
    assert offsets.accepted(asked, asked, {A}) == {}


def test_nothing_is_asked_of_partitions_that_are_not_meant() -> None:
    assert offsets_after(a=15, b=20).to_commit({B}) == {B: 20}


def test_a_task_may_hold_offsets_back() -> None:
    offsets = offsets_after(a=15, b=20)
    asked = offsets.to_commit({A, B})
    assert offsets.accepted(asked, {A: 12}, {A, B}) == {A: 12}
    assert offsets.accepted(asked, {}, {A, B}) == {}


def test_a_task_cannot_commit_what_was_not_put() -> None:
    offsets = offsets_after(a=15)
    asked = offsets.to_commit({A})
    assert offsets.accepted(asked, {A: 16, B: 5}, {A}) == {}


def test_a_failed_commit_goes_back_to_the_last_one() -> None:
    offsets = offsets_after(a=15, b=20)
    offsets.committed({A: 12})
    assert offsets.back_to_committed({A, B}) == {A: 12, B: 10}
    assert offsets.to_commit({A, B}) == {A: 12, B: 10}


def test_a_rewound_partition_is_committed_from_there_on() -> None:
    offsets = offsets_after(a=15)
    offsets.rewound(A, 5)
    asked = offsets.to_commit({A})
    assert offsets.accepted(asked, asked, {A}) == {}
    offsets.put({A: 7})
    asked = offsets.to_commit({A})
    assert offsets.accepted(asked, asked, {A}) == {A: 7}


def test_removed_partitions_are_forgotten() -> None:
    offsets = offsets_after(a=15)
    offsets.removed([A, B])
    offsets.committed({A: 15})
    assert offsets.partitions() == []
    assert offsets.back_to_committed({A}) == {}
