"""The plan of which parts of the log a gateway reads at its start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.views.snapshots.reading_plan import fits, plan
from gateway.views.snapshots.view_snapshot import SavedTopic
from waylog.kafka.ranges.topic_extent import TopicExtent


def extent(*partitions: tuple[int, int]) -> TopicExtent:
    return TopicExtent(
        "c t",
        {number: first for number, (first, _) in enumerate(partitions)},
        {number: end for number, (_, end) in enumerate(partitions)},
    )


def test_a_short_log_is_read_whole() -> None:
    planned = plan(None, extent((0, 50), (10, 40)), tail=5, behind_max=80)
    assert planned.starts == {0: 0, 1: 10}
    assert not planned.gaps
    assert not planned.recent


def test_of_a_long_log_the_newest_is_read_at_once_and_the_rest_later() -> None:
    planned = plan(None, extent((0, 50), (10, 41)), tail=5, behind_max=80)
    assert planned.starts == {0: 45, 1: 36}
    assert planned.gaps == {0: (0, 45), 1: (10, 36)}


def test_a_snapshot_is_gone_on_from_whatever_the_log_holds() -> None:
    saved = SavedTopic("c t", {0: 2**40, 1: 30})
    planned = plan(saved, extent((0, 2**40 + 3), (40, 2**30)), tail=5, behind_max=2**31)
    assert planned.starts == {0: 2**40, 1: 40}
    assert not planned.gaps
    assert planned.recent == {0: (2**40 - 2, 2**40)}


def test_a_snapshot_that_is_far_behind_leaves_a_gap() -> None:
    saved = SavedTopic("c t", {0: 100}, {0: (20, 60)})
    planned = plan(saved, extent((0, 1000)), tail=5, behind_max=80)
    assert planned.starts == {0: 995}
    assert planned.gaps == {0: (20, 995)}


def test_what_the_log_has_lost_is_no_gap_any_more() -> None:
    saved = SavedTopic("c t", {0: 100, 1: 100}, {0: (20, 60), 1: (20, 60)})
    planned = plan(saved, extent((40, 100), (70, 100)), tail=5, behind_max=80)
    assert planned.starts == {0: 100, 1: 100}
    assert planned.gaps == {0: (40, 60)}


def test_another_topic_of_the_name_and_a_shorter_log_are_told_apart() -> None:
    saved = SavedTopic("c t", {0: 100})
    assert fits(saved, extent((0, 100)))
    assert not fits(saved, extent((0, 99)))
    assert not fits(SavedTopic("c other", {0: 5}), extent((0, 100)))
    assert not fits(SavedTopic("c t", {1: 0}), extent((0, 100)))


OFFSETS = st.integers(0, 100)


@given(st.lists(OFFSETS, min_size=5, max_size=5), OFFSETS, st.integers(0, 120), st.booleans())
def test_no_record_is_left_out(
    numbers: list[int], tail: int, behind_max: int, has_gap: bool
) -> None:
    first, gap, gap_end, known, end = sorted(numbers)
    taken = set(range(known)) - (set(range(gap, gap_end)) if has_gap else set())
    saved = SavedTopic("c t", {0: known}, {0: (gap, gap_end)} if has_gap else {})
    planned = plan(saved, extent((first, end)), tail, behind_max)
    read = set(range(planned.starts[0], end))
    for start, stop in planned.gaps.values():
        read |= set(range(start, stop))
    assert set(range(first, end)) <= taken | read
    assert sum(stop - start for start, stop in planned.gaps.values()) <= end - first
