"""Sums of what gateways tell of their pushes, by records that they write and by any bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waylog.audit.days import Day
from waylog.audit.pushes import CHANNELS, ChannelPushes, PushSums, hash_of, key_of, push_records

DAY = Day("2026-01-01", "UTC", 86_400_000, 172_800_000)
HOUR = 3_600_000


def sums_of(device: str, *values: bytes) -> list[ChannelPushes]:
    sums = PushSums(device, DAY)
    for value in values:
        sums.take(value)
    return sums.sums()


def test_records_of_a_day_are_added_up() -> None:
    noon = DAY.from_ms + 12 * HOUR
    values = []
    for since, devices in (
        (DAY.from_ms - 1, {"ada/phone": [100, noon]}),  # begins the day before
        (DAY.from_ms, {"ada/phone": [3, noon], "ben/phone": [1, noon]}),
        (noon, {"ada/phone": [4, noon + 5]}),
        (DAY.to_ms - 1, {"ada/phone": [100, noon]}),  # ends a day later
    ):
        values += [value for _, value in push_records(since, since + 15_000, [(0, devices)])]
    values += [value for _, value in push_records(noon, noon + 1, [(2, {"ada/phone": [2, noon]})])]
    assert sums_of("ada/phone", *values) == [
        ChannelPushes("mqtt", 7, noon + 5),
        ChannelPushes("http", 2, noon),
    ]
    assert sums_of("eve/phone", *values) == []


def test_a_device_is_always_told_under_the_same_key() -> None:
    devices = {f"user/{number}": [1, 5] for number in range(200)}
    found = list(push_records(0, 1, [(0, devices), (3, devices)]))
    for device in devices:
        hashed = hash_of(device)
        assert [key for key, value in found if hashed in value] == [key_of(hashed)]
        assert all(device.encode() not in value for _, value in found)


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.tuples(st.integers(0, 2**40), st.integers(0, 2**60)).map(list),
        max_size=30,
    ),
    st.integers(0, len(CHANNELS) - 1),
)
def test_what_is_written_is_read(devices: dict[str, list[int]], channel: int) -> None:
    values = [value for _, value in push_records(DAY.from_ms, DAY.to_ms, [(channel, devices)])]
    for device, (count, last) in devices.items():
        expected = ChannelPushes(CHANNELS[channel], min(count, 2**32 - 1), last)
        assert sums_of(device, *values) == [expected]


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_any_bytes_are_passed_over(values: list[bytes]) -> None:
    hashed = hash_of("ada/phone")
    sums_of("ada/phone", *values, *(value + hashed for value in values))
    PushSums("ada/phone", DAY).take(None)
