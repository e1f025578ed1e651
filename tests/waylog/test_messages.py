from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waylog.messages import (
    CLOCK_AHEAD_MS,
    Address,
    Fix,
    address_time,
    decode_address,
    decode_fix,
    encode,
    fix_id,
    live_time,
)

NOW = 1_790_000_000_000

FIX = Fix(
    id="0" * 24,
    device="anna/phone",
    user="anna",
    lat=47.141,
    lon=9.5209,
    time=1_000,
    received=2_000,
)


def test_a_fix_survives_the_log() -> None:
    assert decode_fix(encode(FIX)) == FIX


def test_members_that_are_not_known_are_not_written() -> None:
    assert b"accuracy" not in encode(FIX)


def test_members_of_a_newer_program_are_ignored() -> None:
    newer = msgspec.json.encode(msgspec.to_builtins(FIX) | {"invented_later": [1, 2]})
    assert decode_fix(newer) == FIX


def test_a_fix_without_a_place_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_fix(b'{"id":"1","device":"a/b","user":"a","time":1,"received":1}')


@given(st.binary(max_size=200))
def test_anything_else_is_refused_with_one_kind_of_error(value: bytes) -> None:
    try:
        decode_fix(value)
    except msgspec.DecodeError:
        pass
    except UnicodeDecodeError:
        pass


def test_an_address_survives_the_log() -> None:
    address = Address(
        device="anna/phone", fix_id="1", time=1, lat=47.1, lon=9.5, display_name="Vaduz",
        address={"town": "Vaduz", "country_code": "li"}, distance=12.5,
    )  # fmt: skip
    assert decode_address(encode(address)) == address


def test_a_repeated_fix_has_the_same_id() -> None:
    assert fix_id("a/b", 5, 1.5, 2.5, "t") == fix_id("a/b", 5, 1.5, 2.5, "t")


def test_the_same_place_at_another_time_is_another_fix() -> None:
    assert fix_id("a/b", 5, 1.5, 2.5) != fix_id("a/b", 6, 1.5, 2.5)


def test_an_apps_own_id_decides_whatever_else_was_changed() -> None:
    assert fix_id("a/b", 5, 1.5, 2.5, "t", "5fd2") == fix_id("a/b", 5, 9.0, 9.0, None, "5fd2")


@given(st.text(min_size=1), st.text(min_size=1))
def test_ids_of_two_devices_differ(one: str, other: str) -> None:
    if one != other:
        assert fix_id(one, 1, 2.0, 3.0) != fix_id(other, 1, 2.0, 3.0)


def test_an_id_begins_with_the_time_so_that_those_of_a_way_are_alike() -> None:
    times = (1_767_225_600_123, 1_767_225_605_123)
    one, next_one = (fix_id("a/b", time, 1.5, 2.5) for time in times)
    assert len(one) == len(next_one) == 24
    assert one[:12] == f"{times[0]:012x}"
    assert one[:8] == next_one[:8]
    assert len(fix_id("a/b", -5, 1.5, 2.5)) == 24


@pytest.mark.parametrize(
    ("time", "counts_as"),
    [
        (NOW, NOW),
        (NOW - 86_400_000, NOW - 86_400_000),
        # Clocks of phones are a little wrong; the order of their fixes still counts.
        (NOW + 1, NOW + 1),
        (NOW + CLOCK_AHEAD_MS, NOW + CLOCK_AHEAD_MS),
        (NOW + CLOCK_AHEAD_MS + 1, NOW),
        (0, NOW),
    ],
)
def test_the_time_by_which_a_fix_is_the_newest(time: int, counts_as: int) -> None:
    assert live_time(time, NOW) == counts_as
    assert address_time(time, NOW) == counts_as
    assert address_time(time, 0) == time
