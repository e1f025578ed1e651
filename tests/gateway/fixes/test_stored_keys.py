"""Keys of fixes on disk, and the decision which fixes may be repetitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.fixes.device_times import DeviceTimes
from gateway.fixes.known_fixes import KnownFixes, device_key, fix_key
from gateway.fixes.stored_keys import HEAD, StoredKeys, merge, sorted_keys
from gateway.formats.values import DAY_MS

NOW = 1_761_994_812_000
KEYS = st.sets(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 50)), max_size=300)


def run(keys: set[int]) -> bytes:
    body = b"".join(key.to_bytes(8, "little") for key in sorted(keys))
    return HEAD + len(keys).to_bytes(8, "little") + body


@settings(max_examples=200, deadline=None)
@given(st.lists(KEYS, max_size=4), KEYS)
def test_a_key_is_found_where_it_is_and_nowhere_else(runs: list[set[int]], asked: set[int]) -> None:
    stored = StoredKeys()
    stored.use([run(keys) for keys in runs])
    everything = set().union(*runs)
    assert [key for key in sorted(asked | everything) if key in stored] == sorted(everything)
    assert len(stored) == sum(map(len, runs))


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 50), max_size=300))
def test_keys_are_brought_into_order_each_once(keys: list[int]) -> None:
    packed = b"".join(key.to_bytes(8, "little") for key in keys)
    assert sorted_keys(packed) == b"".join(key.to_bytes(8, "little") for key in sorted({*keys}))


def test_a_part_of_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="whole keys"):
        sorted_keys(b"1234567")


def test_evenly_spread_keys_are_found(tmp_path: Path) -> None:
    keys = {fix_key("a/b", str(number)) % 2**64 for number in range(20_000)}
    halves = [{key for key in keys if key % 2 == odd} for odd in (0, 1)]
    with (tmp_path / "merged").open("wb") as file:
        file.write(run(set()))
        file.flush()
        assert merge([run(each) for each in halves] + [run(halves[0])], file.fileno()) == 20_000
    body = (tmp_path / "merged").read_bytes()[16:]
    stored = StoredKeys()
    stored.use([HEAD + (20_000).to_bytes(8, "little") + body])
    assert all(key in stored for key in keys)
    assert not any(fix_key("a/c", str(number)) % 2**64 in stored for number in range(20_000))


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 24, run({1, 2})[:-1], run({1}) + b"1"])
def test_what_is_no_whole_file_of_keys_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="file of keys"):
        StoredKeys().use([content])


def test_only_what_is_newer_than_everything_before_is_certainly_new() -> None:
    times = DeviceTimes()
    times.add(1, NOW, NOW)
    times.add(1, NOW - 5, NOW)
    assert [times.may_repeat(1, NOW + after) for after in (-9, 0, 1)] == [True, True, False]
    assert not times.may_repeat(2, NOW)
    for device in range(3, 5000):
        times.add(device, NOW + device, NOW)
    assert times.time_of(4000) == NOW + 4000
    assert times.time_of(1) == NOW


def test_a_device_that_was_forgotten_is_in_doubt_for_a_day() -> None:
    times = DeviceTimes(devices_max=10)
    for device in range(1, 12):
        times.add(device, NOW, NOW)
    assert times.forgot
    assert times.may_repeat(1, NOW + 1)
    times.add(1, NOW, NOW)
    assert times.may_repeat(1, NOW + DAY_MS)
    assert not times.may_repeat(1, NOW + DAY_MS + 1)
    times.restore(3, NOW)
    assert times.time_of(3) == NOW


def test_keys_are_handed_over_once_for_the_disk_and_are_found_there() -> None:
    known, stored = KnownFixes(100), StoredKeys()
    known.add(fix_key("a/b", "before"))
    known.keep(stored, DeviceTimes())
    keys = [fix_key("a/b", str(number)) for number in range(1000)]
    for key in keys + keys[-10:]:
        known.add(key)
    assert known.unsaved == 1000
    taken = known.take_unsaved()
    assert {key % 2**64 for key in keys} == {
        int.from_bytes(taken[at : at + 8], "little") for at in range(0, len(taken), 8)
    }
    assert known.unsaved == 0
    assert keys[0] not in known
    stored.use([run({key % 2**64 for key in keys})])
    assert keys[0] in known
    assert device_key("a/b") != device_key("a/c")
