"""Topology `heat-map`: counts compared with sets of devices and seconds over all fixes."""

from __future__ import annotations

import gc
import tracemalloc
from collections import defaultdict
from typing import Any

import h3
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.heat_map import partial_counts
from consumers.streams.heat_map.messages import CellCount, PartialCount
from consumers.streams.heat_map.topology import HeatMap
from consumers.streams.properties import Properties
from tests.consumers.streams.chain import Chain, partition_of
from tests.consumers.streams.harness import BEGIN, make_fix
from tests.odd_records import MALFORMED_VALUES
from waylog.config import ConfigError
from waylog.messages import Fix
from waylog.sealing.sealing import is_sealed_topic, owner_of_record

#: Seconds from BEGIN to the next full hour.
HOUR = 2800
Counts = dict[tuple[str, int, int], tuple[int, int]]


def started(**texts: str) -> Chain:
    chain = Chain(HeatMap(Properties({"devices_min": "1", **texts})))
    chain.now_ms = BEGIN + 365 * 86_400_000
    return chain


def counts(chain: Chain) -> Counts:
    """Return fixes and devices by cell, window in seconds and start after BEGIN; the newest."""
    found: Counts = {}
    for each in chain.outputs:
        if each.topic == "heat-map":
            told = msgspec.json.decode(each.value, type=CellCount)
            assert each.key == f"{told.cell}\n{told.window_s}\n{told.start}".encode()
            found[told.cell, told.window_s, told.start] = told.fixes, told.devices
    return {key: count for key, count in found.items() if any(count)}


def naive(fixes: list[Fix], resolution: int = 8, windows: tuple[int, ...] = (60,)) -> Counts:
    """Count by sets; a fix that is not the first one of its device and second is left out."""
    seen: set[tuple[str, int]] = set()
    seconds: dict[Any, int] = defaultdict(int)
    devices: dict[Any, set[str]] = defaultdict(set)
    for fix in fixes:
        if (fix.device, fix.time // 1000) in seen:
            continue
        seen.add((fix.device, fix.time // 1000))
        cell = h3.latlng_to_cell(fix.lat, fix.lon, resolution)
        for window in windows:
            place = cell, window, fix.time // (window * 1000) * window * 1000
            seconds[place] += 1
            devices[place].add(fix.device)
    return {place: (seconds[place], len(devices[place])) for place in seconds}


def settle(chain: Chain, after_s: float) -> None:
    """Close all windows before a time by fixes of each partition far away, and tell all."""
    for number in range(100):
        chain.send(make_fix(after_s, -60.0, 0.0, device=f"far/{number}"))
    chain.pass_time(60_000)


def without_far(found: Counts) -> Counts:
    far = h3.latlng_to_cell(-60.0, 0.0, 8)
    return {place: count for place, count in found.items() if place[0] != far}


def test_fixes_and_devices_are_counted_in_cells_and_minutes_as_soon_as_they_are_told() -> None:
    chain = started()
    chain.send(*(make_fix(n, device=f"d/{n % 3}") for n in range(20)), make_fix(5, 48.0))
    chain.pass_time()
    cell, north = h3.latlng_to_cell(47.14, 9.52, 8), h3.latlng_to_cell(48.0, 9.52, 8)
    start = BEGIN // 60_000 * 60_000
    assert counts(chain) == {(cell, 60, start): (20, 3), (north, 60, start): (1, 1)}


def test_cells_of_too_few_devices_are_told_to_nobody() -> None:
    chain = started(devices_min="3")
    for number in range(2):
        chain.send(*(make_fix(n, device=f"d/{number}") for n in range(20)))
    chain.pass_time(60_000)
    assert chain.outputs == []
    chain.send(make_fix(3, device="d/2"))
    chain.pass_time(60_000)
    assert list(counts(chain).values()) == [(41, 3)]


def test_what_is_between_the_processors_names_no_device_and_its_keys_need_one_key() -> None:
    chain = started()
    chain.send(*(make_fix(n, 47 + n / 10, device=f"secret{n}/phone") for n in range(20)))
    chain.pass_time()
    assert chain.forwarded
    second = [each for records in chain.stages[1].changelog.values() for each in records]
    for topic, key, value in (
        *((each.topic, each.key, each.value) for each in chain.forwarded),
        *(("streams-heat-map-2-changelog", *each) for each in second),
    ):
        assert b"secret" not in (key or b"") + (value or b"")
        if is_sealed_topic(topic):
            assert owner_of_record(topic, key) == "$heat-map"
    first = [each for records in chain.stages[0].changelog.values() for each in records]
    assert {owner_of_record("streams-heat-map-changelog", key) for key, _ in first} == {
        f"secret{number}/phone" for number in range(20)
    }


def test_an_hour_has_the_fixes_of_its_closed_minutes() -> None:
    chain = started()
    fixes = [make_fix(HOUR + 20 * n, device=f"d/{n % 4}") for n in range(180)]
    chain.send(*fixes)
    settle(chain, HOUR + 3600 + 180)
    assert without_far(counts(chain)) == naive(fixes, windows=(60, 3600))
    assert {each for _, each, _ in without_far(counts(chain))} == {60, 3600}


def test_a_late_fix_counts_within_the_grace_and_a_repeated_one_never() -> None:
    chain = started(grace_s="30")
    minute = HOUR
    first, late = make_fix(minute), make_fix(minute + 59)
    chain.send(first, make_fix(minute + 89), late, late, first, make_fix(minute + 59.5))
    chain.pass_time()
    start = BEGIN + minute * 1000
    assert {each[2]: count for each, count in counts(chain).items()} == {
        start: (2, 1), start + 60_000: (1, 1),
    }  # fmt: skip
    chain.send(make_fix(minute + 90), make_fix(minute + 58))
    chain.pass_time(60_000)
    assert counts(chain)[h3.latlng_to_cell(47.14, 9.52, 8), 60, start] == (2, 1)
    processor = chain.stages[0].processor
    assert processor.late == 1


def test_an_erased_device_is_taken_out_and_a_cell_with_too_few_is_withdrawn() -> None:
    chain = started(devices_min="2")
    chain.send(*(make_fix(n, device=name) for n, name in enumerate(["a/1", "b/1", "b/1"])))
    chain.send(*(make_fix(n, 48.0, device=f"{n}/1") for n in range(3)))
    chain.pass_time(60_000)
    assert sorted(counts(chain).values()) == [(3, 2), (3, 3)]
    stage = chain.stages[0]
    for store in stage.stores.values():
        stage.processor.erase({"a/1": BEGIN + 10**7, "0/1": BEGIN + 10**7}, store)
    chain.pass_time(60_000)
    assert list(counts(chain).values()) == [(2, 2)]
    withdrawn = msgspec.json.decode(chain.outputs[-2].value, type=CellCount)
    again = msgspec.json.decode(chain.outputs[-1].value, type=CellCount)
    assert 0 in (withdrawn.devices, again.devices)


def test_an_erased_device_is_taken_out_of_an_hour_that_goes_on() -> None:
    chain = started()
    chain.send(*(make_fix(HOUR, device=name) for name in ("a/1", "b/1")))
    settle(chain, HOUR + 300)
    place = h3.latlng_to_cell(47.14, 9.52, 8), 3600, BEGIN + HOUR * 1000
    assert counts(chain)[place] == (2, 2)
    stage = chain.stages[0]
    for store in stage.stores.values():
        stage.processor.erase({"a/1": BEGIN + 10**7}, store)
    chain.pass_time(60_000)
    assert counts(chain)[place] == (1, 1)


@pytest.mark.parametrize(("window_s", "counted"), [("60", 3600), ("3600", 3600)])
def test_a_device_counts_in_a_bounded_number_of_cells(window_s: str, counted: int) -> None:
    chain = started(window_s=window_s)
    chain.send(*(make_fix(HOUR + n, -30 + 0.02 * n) for n in range(2100)))
    settle(chain, HOUR + 3 * 3600)
    of_hour = [count for place, count in without_far(counts(chain)).items() if place[1] == counted]
    assert of_hour == [(1, 1)] * 2000


def test_windows_of_one_size_are_counted_once() -> None:
    chain = started(window_s="3600", devices_min="2")
    fixes = [make_fix(HOUR + 20 * n, device=f"d/{n % 4}") for n in range(180)]
    alone = [make_fix(HOUR + 20 * n, 48.0, device="alone/1") for n in range(50)]
    chain.send(*fixes, *alone)
    settle(chain, HOUR + 2 * 3600)
    # Nobody is told of a cell with one device, as if that were two.
    assert without_far(counts(chain)) == naive(fixes, windows=(3600,))


def test_counts_of_windows_that_are_over_take_no_memory() -> None:
    chain = started()

    def live(number: int) -> int:
        begin = HOUR + number * 10_000
        chain.send(*(make_fix(begin + n, 40 + 0.02 * n) for n in range(400)))
        settle(chain, begin + 2 * 3600)
        chain.forget_records()
        gc.collect()
        of_file = tracemalloc.Filter(True, partial_counts.__file__)
        taken = tracemalloc.take_snapshot().filter_traces([of_file])
        return sum(each.size for each in taken.statistics("filename"))

    tracemalloc.start()
    try:
        first = live(0)
        assert live(1) + live(2) < 2.5 * first
    finally:
        tracemalloc.stop()


def test_records_that_are_none_stop_nobody() -> None:
    chain = started()
    chain.send(*MALFORMED_VALUES, None, b"", make_fix(0))
    chain.pass_time()
    assert list(counts(chain).values()) == [(1, 1)]
    second = chain.stages[1]
    odd = [b"[]", b"[1]", b'[0,"x",60,0,1,1]', b"\xff", b"[" * 5000, b"null"]
    from tests.consumers.streams.harness import Record

    records = [Record(each, b"x") for each in (*odd, None)]
    outputs = second.task.process({0: records}, second.stores, chain.now_ms)
    assert [each.topic for each in outputs] == ["error"] * 7


def test_a_device_of_two_lines_stops_nobody_once_its_hour_is_over() -> None:
    chain = started()
    fixes = [make_fix(HOUR + 20 * n, device=f"d/{n % 4}") for n in range(180)]
    chain.send(make_fix(HOUR, device="d/pho\nne"), *fixes)
    settle(chain, HOUR + 7200 + 180)
    assert without_far(counts(chain)) == naive(fixes, windows=(60, 3600))


def test_places_that_nothing_comes_for_are_forgotten() -> None:
    chain = started(keep_s="100")
    chain.send(*(make_fix(60 * n, 47 + n / 10) for n in range(30)))
    chain.pass_time(1000)
    second = chain.stages[1]
    assert sum(map(len, second.stores.values())) > 20
    chain.restart()
    chain.pass_time(50_000)
    chain.pass_time(101_000)
    chain.pass_time(101_000)
    assert sum(map(len, second.stores.values())) < 8
    first = chain.stages[0]
    settle(chain, 90_000)
    for number in range(50):
        chain.send(make_fix(100_000, -60.0, 0.0, device=f"far/{number}"))
    assert sum("ann" in key for store in first.stores.values() for key, _ in store.items()) == 0


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"resolution": "16"}, "H3 has the resolutions 0 to 15"),
        ({"window_s": "7"}, "long_window_s is a multiple of it"),
        ({"window_s": "7200"}, "at most 3600"),
        ({"devices_min": "0"}, "at least 1 is expected"),
        ({"devices": "7"}, "has no such property; did you mean devices_min"),
    ],
)
def test_wrong_properties_are_named(texts: dict[str, str], message: str) -> None:
    properties = Properties(texts)
    with pytest.raises(ConfigError, match=message):
        HeatMap(properties)
        properties.check_all_known("heat-map")


FIXES = st.lists(
    st.builds(
        make_fix,
        st.integers(0, 100).map(lambda n: HOUR + 3500 + n),
        st.sampled_from([47.0, 47.001, 48.0]),
        st.sampled_from([9.0, 9.02]),
        device=st.sampled_from(["a/1", "b/1", "c/1", "d/1"]),
    ),
    max_size=25,
)


@given(FIXES, st.sets(st.integers(0, 25)), st.sets(st.integers(0, 25)))
def test_counts_are_those_of_sets_over_all_fixes(
    fixes: list[Fix], restarts: set[int], told: set[int]
) -> None:
    chain = started()
    for number, fix in enumerate(fixes):
        if number in restarts:
            chain.restart()
        if number in told:
            chain.pass_time(10_000)
        chain.send(fix)
    settle(chain, HOUR + 3 * 3600)
    assert without_far(counts(chain)) == naive(fixes, windows=(60, 3600))


def test_what_comes_again_after_a_kill_counts_once() -> None:
    fixes = [make_fix(HOUR + 7 * n, device=f"d/{n % 4}") for n in range(40)]
    chain = started()
    chain.send(*fixes)
    chain.pass_time()
    chain.restart()
    chain.send(*fixes)
    chain.pass_time(60_000)
    assert {place: count for place, count in counts(chain).items() if place[1] == 60} == naive(
        fixes
    )


def test_partitions_are_summed() -> None:
    names = [f"d/{number}" for number in range(30)]
    assert {partition_of(name.encode()) for name in names} == {0, 1, 2}
    chain = started()
    chain.send(*(make_fix(0, device=name) for name in names))
    chain.pass_time()
    assert list(counts(chain).values()) == [(30, 30)]
    partials = [
        msgspec.json.decode(each.value, type=PartialCount)
        for each in chain.forwarded
        if each.topic == "streams-heat-map-counts"
    ]
    assert sum(each.devices for each in partials) == 30
    assert {each.partition for each in partials} == {0, 1, 2}
