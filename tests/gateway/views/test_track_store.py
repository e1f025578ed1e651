"""Tracks in a bounded amount of memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tracks.track_points import between, measured, merged, unpacked
from gateway.views.track_store import TrackStore

ALL = (-(2**62), 2**62)


def points(store: TrackStore, device: str, from_ms: int, to_ms: int) -> list[tuple[object, ...]]:
    """Return points by time without duplicates: time, lat and lon in 1e-7 degrees, MEASURED."""
    found = merged(between(unpacked(b"".join(store.pieces(device))), from_ms, to_ms))
    names = ("altitude", "accuracy", "speed", "course")
    columns = (*(found[name].tolist() for name in ("time", "lat", "lon")),)
    return list(zip(*columns, *(measured(found, name) for name in names), strict=True))


def times(store: TrackStore, device: str, from_ms: int, to_ms: int) -> list[object]:
    return [each[0] for each in points(store, device, from_ms, to_ms)]


def test_points_come_back_by_time_with_what_is_not_known_as_none() -> None:
    store = TrackStore()
    store.append("a/b", 2000, 47.1234567, -9.7654321, 455.5, 5, 1.5, 90)
    store.append("a/b", 1000, -90, 180)
    assert points(store, "a/b", *ALL) == [
        (1000, -900_000_000, 1_800_000_000, None, None, None, None),
        (2000, 471_234_567, -97_654_321, 455.5, 5, 1.5, 90),
    ]


def test_a_point_is_not_there_twice_although_the_log_may_have_it_twice() -> None:
    store = TrackStore()
    for _ in range(3):
        store.append("a/b", 1000, 1, 2)
    assert len(points(store, "a/b", *ALL)) == 1


def test_from_and_to_are_inclusive() -> None:
    store = TrackStore()
    for time in range(10):
        store.append("a/b", time, 1, 2)
    assert times(store, "a/b", 3, 5) == [3, 4, 5]
    assert times(store, "a/unknown", 3, 5) == []


@settings(max_examples=100)
@given(st.lists(st.integers(min_value=0, max_value=4), max_size=2000))
def test_memory_is_bounded_and_the_oldest_goes_first(devices: list[int]) -> None:
    bytes_max = 32 * 200
    store = TrackStore(bytes_max)
    for time, device in enumerate(devices):
        store.append(f"a/{device}", time, 1, 2)
        assert store.bytes <= bytes_max
    kept = {device: times(store, f"a/{device}", *ALL) for device in range(5)}
    assert store.bytes >= 32 * sum(map(len, kept.values()))
    for device, own in kept.items():
        sent = [time for time, each in enumerate(devices) if each == device]
        assert own == sent[len(sent) - len(own) :]
    if len(devices) <= 120:
        assert sum(map(len, kept.values())) == len(devices)


def test_a_forgotten_device_leaves_nothing_behind() -> None:
    store = TrackStore()
    for time in range(200):
        store.append("a/b", time, 1, 2)
        if time == 99:
            store.append("a/d", time, 1, 2)
        store.append("a/c", time, 1, 2)
    one_point = TrackStore()
    one_point.append("a/b", 0, 1, 2)
    both = store.bytes
    store.forget("a/d")
    assert store.bytes == both - one_point.bytes
    store.forget("a/b")
    assert times(store, "a/b", *ALL) == []
    assert times(store, "a/c", *ALL) == list(range(200))
    store.forget("a/c")
    assert store.bytes == 0


@pytest.mark.parametrize("kept", [[], ["a/b"]], ids=["the only device", "one of two"])
def test_who_has_had_a_device_forgotten_may_fill_the_memory_again(kept: list[str]) -> None:
    store = TrackStore(64 * 1024)
    for time in range(200):
        for device in ("a/forgotten", *kept):
            store.append(device, time, 1, 2)
    store.forget("a/forgotten")
    for time in range(10_000):
        store.append("a/c", time, 1, 2)
        assert store.bytes <= 64 * 1024
    last = times(store, "a/c", *ALL)
    assert len(last) > 1_000
    assert last == list(range(10_000 - len(last), 10_000))


def test_a_long_track_comes_whole_in_pieces_of_64_kib() -> None:
    store = TrackStore()
    for time in range(10_000):
        store.append("a/b", time, 1, 2)
    assert max(map(len, store.pieces("a/b"))) <= 64 * 1024
    assert times(store, "a/b", *ALL) == list(range(10_000))


def test_what_is_dropped_between_two_pieces_is_left_out_without_an_empty_piece() -> None:
    store = TrackStore()
    for time in range(10_000):
        store.append("a/b", time, 1, 2)
    pieces = store.pieces("a/b")
    assert next(pieces)
    store.forget("a/b")
    # An empty piece would end the track for who reads it.
    assert list(pieces) == []


def test_what_is_dropped_of_the_beginning_while_a_track_is_read_hides_nothing_of_the_rest() -> None:
    store = TrackStore(bytes_max=370_000)
    for time in range(10_000):
        store.append("a/b", time, 1, 2)
    pieces = store.pieces("a/b")
    read = next(pieces)
    for time in range(10_000, 11_000):
        store.append("a/b", time, 1, 2)
    assert times(store, "a/b", *ALL)[0] != 0
    read += b"".join(pieces)
    assert unpacked(read)["time"][:10_000].tolist() == list(range(10_000))


def test_absurd_positions_are_refused() -> None:
    store = TrackStore()
    with pytest.raises((struct.error, OverflowError)):
        store.append("a/b", 2**70, 1, 2)
    with pytest.raises((struct.error, OverflowError)):
        store.append("a/b", 0, 1e9, 2)


def test_one_user_with_many_devices_takes_the_room_of_nobody_else() -> None:
    store = TrackStore(64 * 1024)
    for time in range(20):
        store.append("bob/phone", time, 1, 2)
    for number in range(5_000):
        store.append(f"eve/{number}", 1000 + number, 1, 2)
        assert store.bytes <= 64 * 1024
    assert times(store, "bob/phone", *ALL) == list(range(20))
    assert times(store, "eve/4999", *ALL) == [5999]
