from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waylog.replay.readers.recorded import RecordedFix
from waylog.replay.timeline import Timeline


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 20))
def test_fixes_come_in_the_order_of_time_and_then_of_arrival(
    times: list[int], chunk_fixes: int
) -> None:
    fixes = [
        RecordedFix(time=time, lat=float(index), lon=0.0, device="d")
        for index, time in enumerate(times)
    ]
    with Timeline(fixes, chunk_fixes=chunk_fixes) as timeline:
        assert timeline.count == len(fixes)
        assert list(timeline) == sorted(fixes, key=lambda fix: fix.time)
        assert list(timeline) == sorted(fixes, key=lambda fix: fix.time)


def test_more_than_a_block_of_each_run_is_merged() -> None:
    fixes = [
        RecordedFix(time=(index * 7919) % 10_007, lat=0.0, lon=0.0, device=None, speed=1.5)
        for index in range(10_000)
    ]
    with Timeline(fixes, chunk_fixes=3000) as timeline:
        assert list(timeline) == sorted(fixes, key=lambda fix: fix.time)


def test_devices_recorded_years_apart_begin_together() -> None:
    year = 365 * 24 * 3600 * 1000
    fixes = [
        RecordedFix(lat=1.0, lon=2.0, time=start + step * 1000, device=device)
        for device, start in (("a", 0), ("b", 5 * year))
        for step in range(4)
    ]
    for chunk_fixes in (3, 100):
        with Timeline(iter(fixes), together=True, chunk_fixes=chunk_fixes) as timeline:
            devices = [fix.device for fix in timeline]
        assert devices == ["a", "b"] * 4
