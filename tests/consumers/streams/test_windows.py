"""Windows compared with their definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.windows import Session, add_to_sessions, hopping, sessions, tumbling
from waylog.config import ConfigError

TIMES = st.integers(0, 10_000)


@given(st.integers(1, 50), st.integers(1, 50), TIMES)
def test_a_time_is_in_all_windows_that_hold_it(size: int, advance: int, time: int) -> None:
    if advance > size:
        with pytest.raises(ConfigError, match="at most size_s"):
            hopping(size / 1000, advance / 1000)
        return
    starts = list(hopping(size / 1000, advance / 1000).starts_of(time))
    every = range(time - time % advance - 60 * advance, time + 1)
    assert starts == [
        start for start in every if start % advance == 0 and start <= time < start + size
    ]
    assert len(tumbling(size / 1000).starts_of(time)) == 1


def test_a_window_closes_after_its_grace() -> None:
    assert not tumbling(1, grace_s=2).is_closed(1000, 2999)
    assert tumbling(1, grace_s=2).is_closed(1000, 3000)
    assert not sessions(1, grace_s=2).is_closed(1000, 4000)
    assert sessions(1, grace_s=2).is_closed(1000, 4001)


@pytest.mark.parametrize("size", [0, -1, float("nan"), float("inf"), 1e10])
def test_windows_of_no_size_are_refused(size: float) -> None:
    with pytest.raises(ConfigError, match="seconds, not"):
        tumbling(size)
    with pytest.raises(ConfigError, match="seconds, not"):
        sessions(size)


@given(st.lists(TIMES, max_size=30), st.integers(1, 2000))
def test_sessions_are_runs_without_a_gap_in_whatever_order_records_come(
    times: list[int], gap: int
) -> None:
    known: list[Session[list[int]]] = []
    for time in times:
        before = [(each.start, each.end) for each in known]
        joined, gone = add_to_sessions(
            known, time, gap, list, lambda so_far, time=time: [*so_far, time], list.__add__  # type: ignore[misc]
        )  # fmt: skip
        after = [(each.start, each.end) for each in known]
        assert {(each.start, each.end) for each in gone} == set(before) - set(after)
        assert (joined.start, joined.end) in after
    runs: list[list[int]] = []
    for time in sorted(times):
        if runs and time - runs[-1][-1] <= gap:
            runs[-1].append(time)
        else:
            runs.append([time])
    assert [(each.start, each.end, sorted(each.value)) for each in known] == [
        (run[0], run[-1], run) for run in runs
    ]
