"""Tracks in a bounded amount of memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.track_store import TrackPoint, TrackStore

ALL = (-(2**62), 2**62)


def test_points_come_back_by_time_with_what_is_not_known_as_none() -> None:
    store = TrackStore()
    store.append("a/b", 2000, 47.1234567, -9.7654321, 455.5, 5, 1.5, 90)
    store.append("a/b", 1000, -90, 180)
    assert store.points("a/b", *ALL) == [
        TrackPoint(1000, -90, 180, None, None, None, None),
        TrackPoint(2000, 47.1234567, -9.7654321, 455.5, 5, 1.5, 90),
    ]


def test_a_point_is_not_there_twice_although_the_log_may_have_it_twice() -> None:
    store = TrackStore()
    for _ in range(3):
        store.append("a/b", 1000, 1, 2)
    assert len(store.points("a/b", *ALL)) == 1


def test_from_and_to_are_inclusive() -> None:
    store = TrackStore()
    for time in range(10):
        store.append("a/b", time, 1, 2)
    assert [point.time for point in store.points("a/b", 3, 5)] == [3, 4, 5]
    assert store.points("a/unknown", 3, 5) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=4), max_size=2000))
def test_memory_is_bounded_and_the_oldest_goes_first(devices: list[int]) -> None:
    bytes_max = 32 * 200
    store = TrackStore(bytes_max)
    for time, device in enumerate(devices):
        store.append(f"a/{device}", time, 1, 2)
        assert store.bytes <= bytes_max
    kept = {device: [p.time for p in store.points(f"a/{device}", *ALL)] for device in range(5)}
    assert store.bytes == 32 * sum(map(len, kept.values()))
    for device, times in kept.items():
        sent = [time for time, each in enumerate(devices) if each == device]
        assert times == sent[len(sent) - len(times) :]
    if len(devices) <= 200:
        assert sum(map(len, kept.values())) == len(devices)


def test_a_forgotten_device_leaves_nothing_behind() -> None:
    store = TrackStore()
    for time in range(200):
        store.append("a/b", time, 1, 2)
        store.append("a/c", time, 1, 2)
    store.forget("a/b")
    assert store.points("a/b", *ALL) == []
    assert store.bytes == 200 * 32


def test_absurd_positions_are_refused() -> None:
    store = TrackStore()
    with pytest.raises((struct.error, OverflowError)):
        store.append("a/b", 2**70, 1, 2)
    with pytest.raises((struct.error, OverflowError)):
        store.append("a/b", 0, 1e9, 2)
