"""Topology `meetings`: compared with all pairs of positions that numpy interpolates."""

from __future__ import annotations

import gc
import math
import random
import tracemalloc
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.meetings import pairs
from consumers.streams.meetings.cells import Grid
from consumers.streams.meetings.friendships import Friends
from consumers.streams.meetings.pairs import PAIRS, Near
from consumers.streams.meetings.positions import Position
from consumers.streams.meetings.topology import Meetings
from consumers.streams.properties import Properties
from tests.consumers.streams.chain import Chain
from tests.consumers.streams.harness import BEGIN, Record, events_of, make_fix
from tests.consumers.streams.trips.truth import Spot, metres
from tests.odd_records import MALFORMED_VALUES
from waylog.config import ConfigError
from waylog.friendships import Friendship, decode_friendship
from waylog.messages import Fix

#: Degrees of latitude that are a metre.
METRE = 1 / 111_195
INTERVAL = 30_000
#: Device, with, transition, seconds after BEGIN.
Told = tuple[str, str, str, float]


def started(friends: str = "ann-bob", **texts: str) -> Chain:
    topology = Meetings(Properties(texts))
    for pair in friends.split():
        one, other = pair.split("-")
        for table in (topology.positions.table, topology.pairs.table):
            table.friends.put(f"{one}\n{other}", Friendship(0))
            table.friends.put(f"{other}\n{one}", Friendship(0))
    chain = Chain(topology)
    chain.now_ms = BEGIN + 10_000 * 86_400_000
    return chain


def at(seconds: float, north_m: float, device: str = "ann/phone", **more: Any) -> Fix:
    return make_fix(seconds, 47.0 + north_m * METRE, 9.0, device=device, **more)


def together(begin: float, end: float, apart_m: float, every: float = 20) -> list[Fix]:
    """Return the fixes of ann and bob, who send at different moments."""
    times = np.arange(begin, end + 1, every).tolist()
    return [
        fix for time in times for fix in (at(time, 0), at(time + 7, apart_m, "bob/car"))
    ]  # fmt: skip


def send(chain: Chain, *fixes: Fix) -> None:
    """Send fixes one after the other, as they come from devices at different moments."""
    for fix in fixes:
        chain.send(fix)


def told(chain: Chain) -> list[Told]:
    return sorted(
        (
            each.device,
            (each.attributes or {})["with"],
            (each.attributes or {})["transition"],
            (each.time - BEGIN) / 1000,
        )
        for each in events_of(chain.outputs)
    )


def end(chain: Chain) -> None:
    """Let all meetings end by the wall clock."""
    chain.pass_time()
    chain.pass_time(100_000)


def test_a_meeting_is_told_to_both_users_of_their_own_device_and_where_it_was() -> None:
    chain = started()
    send(chain, *together(0, 900, 30), *together(910, 2000, 500))
    end(chain)
    # BEGIN is 20 seconds after a full interval.
    assert told(chain) == sorted(
        (own, friend, kind, time)
        for own, friend in (("ann/phone", "bob/car"), ("bob/car", "ann/phone"))
        for kind, time in (("begin", 310), ("end", 880))
    )
    events = events_of(chain.outputs)
    assert {(each.type, each.device, each.user) for each in events} == {
        ("meeting", "ann/phone", "ann"), ("meeting", "bob/car", "bob"),
    }  # fmt: skip
    assert len({each.id for each in events}) == 4
    for each in events:
        members = each.attributes or {}
        assert {*members} <= {
            *("transition", "with", "since", "until", "convoy", "fix_id", "area", "near_m"),
        }
        assert members["near_m"] == 75
        # Rounded to the outside, since it is erased with the own device only.
        assert members["area"] in ([47.0, 9.0, 47.0, 9.0], [47.0, 9.0, 47.001, 9.0])
    assert {(each.attributes or {}).get("convoy") for each in events} == {None, False}


def test_who_are_no_friends_or_only_one_of_them_is_do_not_meet() -> None:
    chain = started("ann-carl")
    for stage in chain.stages[:2]:
        stage.processor.table.friends.put("ann\nbob", Friendship(0))
        stage.processor.table.friends.put("bob\ncarl", Friendship(0))
    send(chain, *together(0, 900, 30))
    end(chain)
    assert told(chain) == []
    stage = chain.stages[1]
    stage.processor.table.friends.put("bob\nann", Friendship(BEGIN + 1_200_000))
    send(chain, *together(910, 1800, 30))
    end(chain)
    # From the begin of the friendship on.
    assert [(each[2], each[3]) for each in told(chain)][:1] == [("begin", 1210 + 300)]


def test_those_who_pass_each_other_or_are_a_little_too_far_apart_do_not_meet() -> None:
    chain = started()
    send(chain, *together(0, 240, 30), *together(250, 1000, 300), *together(1010, 2000, 60))
    end(chain)
    assert told(chain) == []


def test_a_meeting_goes_on_at_the_edge_and_over_a_short_absence() -> None:
    chain = started()
    send(chain, *together(0, 400, 30), *together(410, 700, 70), *together(710, 760, 300),
               *together(770, 1200, 30))  # fmt: skip
    end(chain)
    assert [each[2] for each in told(chain)] == ["begin", "end"] * 2


def test_friends_in_one_car_are_a_convoy_however_differently_they_send() -> None:
    chain = started()
    way = [at(time, 20 * time) for time in range(0, 600, 7)]
    way += [at(time, 20 * time, "bob/car") for time in range(0, 600, 45)]
    send(chain, *sorted(way, key=lambda fix: fix.time))
    end(chain)
    assert [each[2] for each in told(chain)] == ["begin", "convoy", "end"] * 2
    assert (events_of(chain.outputs)[-1].attributes or {})["convoy"] is True


def drive(seconds: int) -> list[Fix]:
    """Return the fixes of two who are at a place for ten minutes, and then drive together."""
    times = range(0, seconds, 20)
    return [
        at(time, max(0, 5 * (time - 600)), device)
        for time in times
        for device in ("ann/phone", "bob/car")
    ]


def pairs_of(fixes: list[Fix]) -> list[Record]:
    """Return what the second processor forwards for fixes, in the order of their times."""
    chain = started()
    send(chain, *fixes)
    found = [each for each in chain.forwarded if each.topic == PAIRS]
    return [Record(each.value, each.key) for each in found]


def take_pairs(chain: Chain, records: list[Record]) -> None:
    """Let the third processor take pairs, one by one."""
    stage = chain.stages[2]
    for record in records:
        chain.outputs += stage.task.process({0: [record]}, stage.stores, chain.now_ms)
        stage.keep()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_meeting_in_a_backlog_is_told_once_though_its_end_comes_first(restarts: bool) -> None:
    chain = started(wait_s="14400")
    chain.now_ms = BEGIN + 2_000_000
    found = pairs_of(drive(1800))
    take_pairs(chain, found[30:])
    if restarts:
        chain.restart()
    take_pairs(chain, found[:30])
    assert told(chain) == []
    # Nothing earlier came for idle_s.
    chain.pass_time(61_000)
    assert [each[2] for each in told(chain)] == ["begin", "convoy"] * 2
    chain.pass_time(20_000 * 1000)
    assert [each[2] for each in told(chain)] == ["begin", "convoy", "end"] * 2
    since = {(each.attributes or {})["since"] for each in events_of(chain.outputs)}
    assert since == {BEGIN + 10_000}


def test_a_meeting_in_a_backlog_is_told_while_other_pairs_come() -> None:
    chain = started("ann-bob ann-carl", wait_s="14400")
    chain.now_ms = BEGIN + 2_000_000
    take_pairs(chain, pairs_of(drive(1800)))
    others = Near("ann/phone", "carl/x", BEGIN + 2_000_000, 10.0, 47.0, 9.0)
    for _ in range(3):
        chain.pass_time(30_000)
        take_pairs(chain, [Record(msgspec.json.encode(others), b"ann/phone\ncarl/x")])
    assert [each[2] for each in told(chain)] == ["begin", "convoy"] * 2


def test_a_meeting_that_happens_now_is_told_at_once() -> None:
    chain = started()
    chain.now_ms = BEGIN + 300_000
    found = pairs_of(drive(400))
    take_pairs(chain, found[:10])
    assert told(chain) == []
    take_pairs(chain, found[10:11])
    assert [each[2] for each in told(chain)] == ["begin"] * 2


def test_what_comes_before_the_begin_that_was_told_does_not_change_its_name() -> None:
    chain = started(wait_s="14400")
    chain.now_ms = BEGIN + 2_000_000
    found = pairs_of(drive(1800))
    take_pairs(chain, found[30:])
    chain.pass_time(61_000)
    take_pairs(chain, found[:30])
    chain.pass_time(20_000 * 1000)
    assert [each[2] for each in told(chain)] == ["begin", "convoy", "end"] * 2
    assert len({(each.attributes or {})["since"] for each in events_of(chain.outputs)}) == 1


def test_friends_on_both_sides_of_an_edge_of_the_grid_meet_and_are_found_once() -> None:
    grid = Grid(75.0)
    home = grid.home(47.0, 9.0)
    edge = next(north for north in range(5000) if grid.home(47.0 + north * METRE, 9.0) != home)
    chain = started()
    for second in range(0, 901, 20):
        send(chain, at(second, edge - 20), at(second, edge + 20, "bob/car"))
    end(chain)
    assert [each[2] for each in told(chain)] == ["begin", "end"] * 2
    found = [each.value for each in chain.forwarded if each.topic == "streams-meetings-pairs"]
    assert len(found) == len(set(found)) == 30


def test_friends_meet_across_the_date_line() -> None:
    chain = started()
    for second in range(0, 901, 20):
        side = 1 if second % 40 else -1
        chain.send(make_fix(second, 0.0, side * 179.9999, device="ann/phone"))
        chain.send(make_fix(second + 7, 0.0, side * -179.9999, device="bob/car"))
    end(chain)
    assert [each[2] for each in told(chain)] == ["begin", "end"] * 2


def test_positions_that_are_old_or_known_roughly_are_not_used() -> None:
    chain = started()
    stale = list(together(0, 2000, 30, every=300))
    chain.send(*stale)
    rough = [msgspec.structs.replace(fix, accuracy=80.0) for fix in together(3000, 4000, 30)]
    chain.send(*rough)
    end(chain)
    assert told(chain) == []


def test_devices_of_one_user_do_not_meet_and_those_of_a_stranger_leave_no_position() -> None:
    chain = started()
    send(chain, *together(0, 900, 30)[::2], *(at(n, 5, "ann/watch") for n in range(0, 900, 20)))
    send(chain, *(at(n, 5, "stranger/x") for n in range(0, 900, 20)))
    end(chain)
    assert told(chain) == []
    assert not [each for each in chain.forwarded if b"stranger" in (each.key or b"")]
    assert len(chain.stages[0].stores) == 3
    known = [key for store in chain.stages[0].stores.values() for key, _ in store.items()]
    assert sorted(known) == ["ann/phone", "ann/watch"]


def test_an_erased_device_is_forgotten_by_all_processors() -> None:
    chain = started()
    send(chain, *together(0, 200, 30))
    for stage in chain.stages:
        for store in stage.stores.values():
            stage.processor.erase({"bob/car": BEGIN + 10**6}, store)
        stage.keep()
    left = [
        key for stage in chain.stages for store in stage.stores.values() for key, _ in store.items()
    ]
    assert left and not any("bob" in key for key in left)
    chain.outputs.clear()
    send(chain, *together(210, 300, 30))
    end(chain)
    assert told(chain) == []


def test_who_comes_later_is_not_compared_with_an_erased_device() -> None:
    chain = started(wait_s="600")
    fixes = together(0, 300, 30)
    send(chain, *(fix for fix in fixes if fix.user == "bob"))
    for stage in chain.stages:
        for store in stage.stores.values():
            stage.processor.erase({"bob/car": BEGIN + 10**6}, store)
        stage.keep()
    send(chain, *(fix for fix in fixes if fix.user == "ann"))
    assert not [each for each in chain.forwarded if each.topic == PAIRS]


def test_a_position_from_the_future_is_refused_and_makes_no_other_late() -> None:
    chain = started()
    stage = chain.stages[1]
    position = Position("bob/car", chain.now_ms + 10**9, 47.0, 9.0, 1, 1, True)
    record = Record(msgspec.json.encode(position), b"bob/car")
    for partition, store in stage.stores.items():
        outputs = stage.task.process({partition: [record]}, {partition: store}, chain.now_ms)
        assert {each.topic for each in outputs} == {"error"}
    send(chain, *together(0, 900, 30))
    assert [each[2] for each in told(chain)] == ["begin", "begin"]


def test_positions_that_nobody_is_compared_with_any_more_take_no_memory() -> None:
    chain = started()

    def live(hour: int) -> int:
        send(chain, *together(hour * 3600, hour * 3600 + 3590, 30, every=30))
        chain.forget_records()
        gc.collect()
        taken = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(True, pairs.__file__)]
        )
        return sum(each.size for each in taken.statistics("filename"))

    tracemalloc.start()
    try:
        first = live(0)
        assert live(1) + live(2) < 3 * first
    finally:
        tracemalloc.stop()


def test_the_stores_of_positions_and_pairs_stay_small() -> None:
    chain = started()
    for hour in range(6):
        send(chain, *together(hour * 3600, hour * 3600 + 3590, 30, every=30))
    positions, together_ = chain.stages[1], chain.stages[2]
    assert sum(map(len, positions.stores.values())) < 60
    assert sum(map(len, together_.stores.values())) == 1
    end(chain)
    assert sum(map(len, together_.stores.values())) == 0


def test_records_that_are_none_stop_nobody() -> None:
    chain = started()
    odd = [*MALFORMED_VALUES, None, b"", b"[]", b"[1,2,3]", b"[" * 5000, b"\xff"]
    chain.send(*odd)
    for stage in chain.stages[1:]:
        records = [Record(each, b"x") for each in odd]
        outputs = stage.task.process({0: records}, stage.stores, chain.now_ms)
        assert {each.topic for each in outputs} == {"error"}
    send(chain, *together(0, 900, 30))
    assert [each[2] for each in told(chain)] == ["begin", "begin"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ann", b'{"since":1}'),
        ("ann\nann", b'{"since":1}'),
        ("ann\nbob\ncarl", b'{"since":1}'),
        ("ann/x\nbob", b'{"since":1}'),
        ("ann\nbob", b'{"since":-1}'),
        ("ann\nbob", b'{"since":"x"}'),
        ("ann\nbob", b"\xff"),
    ],
)
def test_a_record_that_is_no_friendship_is_refused(key: str, value: bytes) -> None:
    with pytest.raises(ValueError, match=r"user LF friend|no friendship"):
        decode_friendship(key, value)


def test_a_friendship_ends_with_a_tombstone() -> None:
    friends = Friends()
    friends.put("ann\nbob", decode_friendship("ann\nbob", b'{"since":5}'))
    friends.put("bob\nann", Friendship(9))
    assert not friends.are_friends("ann", "bob", 8)
    assert friends.are_friends("bob", "ann", 9)
    friends.put("ann\nbob", None)
    friends.put("no\nbody", None)
    assert not friends.are_friends("ann", "bob", 10) and not friends.has_any("ann")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"near_m": "0"}, "--property near_m=0: at least 1 is expected"),
        ({"near": "20"}, "has no such property; did you mean near_m"),
    ],
)
def test_wrong_properties_are_named(texts: dict[str, str], message: str) -> None:
    properties = Properties(texts)
    with pytest.raises(ConfigError, match=message):
        Meetings(properties)
        properties.check_all_known("meetings")


@given(
    st.floats(-90, 90) | st.sampled_from([89.9999, -90.0, 0.0]),
    st.floats(-180, 180) | st.sampled_from([179.9999, -180.0]),
    st.floats(0, 2 * math.pi),
    st.floats(0, 1),
    st.sampled_from([10.0, 75.0, 3000.0]),
)
def test_what_is_near_has_a_cell_in_common(
    lat: float, lon: float, course: float, part: float, near_m: float
) -> None:
    grid = Grid(near_m)
    angle = part * near_m / 6_371_008.8
    phi = math.radians(lat)
    other_phi = math.asin(
        min(1.0, max(-1.0, math.sin(phi) * math.cos(angle)
                     + math.cos(phi) * math.sin(angle) * math.cos(course)))
    )  # fmt: skip
    turn = math.atan2(
        math.sin(course) * math.sin(angle) * math.cos(phi),
        math.cos(angle) - math.sin(phi) * math.sin(other_phi),
    )
    other = math.degrees(other_phi), (lon + math.degrees(turn) + 180) % 360 - 180
    home, cells = grid.home(*other), grid.cells(lat, lon)
    assert grid.home(lat, lon) in cells
    assert home in cells
    if abs(lat) < 89:
        assert len(cells) <= 4


# ---- compared with all pairs ----


def naive(
    fixes: list[Fix], friends: set[frozenset[str]], near_m: float, leave_m: float
) -> list[tuple[str, str, int, int, bool]]:
    """Return both devices, first and last near time, and whether it was a convoy."""
    by_device: dict[str, list[Fix]] = {}
    for fix in fixes:
        own = by_device.setdefault(fix.device, [])
        if not own or fix.time > own[-1].time:
            own.append(fix)
    places: dict[str, dict[int, tuple[float, float]]] = {}
    for device, own in by_device.items():
        times = np.array([fix.time for fix in own])
        moments = np.arange(times[0] // INTERVAL * INTERVAL + INTERVAL, times[-1] + 1, INTERVAL)
        after = np.searchsorted(times, moments)
        fresh = times[after] - times[after - 1] <= 120_000
        lats = np.interp(moments, times, [fix.lat for fix in own])
        lons = np.interp(moments, times, [fix.lon for fix in own])
        places[device] = {
            int(moment): (float(lat), float(lon))
            for moment, lat, lon, good in zip(moments, lats, lons, fresh, strict=True)
            if good
        }
    found = []
    for one, other in combinations(sorted(places), 2):
        if frozenset((one.split("/")[0], other.split("/")[0])) not in friends:
            continue
        close = []
        for moment in sorted(places[one].keys() & places[other].keys()):
            first = Spot(moment, *places[one][moment])
            away = metres(first, Spot(moment, *places[other][moment]))
            if away <= leave_m:
                close.append((first, away))
        run: list[tuple[Spot, float]] = []
        for each in [*close, None]:
            if run and (each is None or each[0].time - run[-1][0].time > 120_000):
                times_near = [spot.time for spot, away in run if away <= near_m]
                if times_near and times_near[-1] - times_near[0] >= 300_000:
                    south, west = (min(spot[n] for spot, _ in run) for n in (1, 2))
                    north, east = (max(spot[n] for spot, _ in run) for n in (1, 2))
                    extent = metres(Spot(0, south, west), Spot(0, north, east))
                    found.append((one, other, times_near[0], times_near[-1], extent >= 1000.0))
                run = []
            if each is not None:
                run.append(each)
    return sorted(found)


def ended(chain: Chain) -> list[tuple[str, str, int, int, bool]]:
    """Return the same of what was told; both users were told the same."""
    found = {}
    begins = set()
    for each in events_of(chain.outputs):
        members = each.attributes or {}
        if members["transition"] == "end":
            key = each.device, members["with"], members["since"]
            found[key] = members["until"], members["convoy"]
        elif members["transition"] == "begin":
            begins.add((each.device, members["with"], each.time - 300_000))
    assert {(other, one, since): rest for (one, other, since), rest in found.items()} == found
    assert begins == found.keys()
    return sorted((*key, *rest) for key, rest in found.items() if key[0] < key[1])


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ann/a", "bob/b", "carl/c"]),
        st.sampled_from([0, 0, 40, 70, 200, 1500]),
        st.integers(1, 12),
        st.sampled_from([20, 50, 130]),
    ),
    min_size=4,
    max_size=14,
)


@given(STEPS, st.sets(st.integers(0, 60)), st.randoms(use_true_random=False))
def test_meetings_are_those_of_all_pairs(
    steps: list[tuple[str, int, int, int]], restarts: set[int], chance: random.Random
) -> None:
    clocks = {"ann/a": 1.0, "bob/b": 4.0, "carl/c": 9.0}
    fixes = []
    for device, north, count, every in steps:
        for _ in range(count):
            clocks[device] += every
            fixes.append(at(clocks[device], north, device))
    fixes.sort(key=lambda fix: fix.time)
    names = {"near_m": "50.3", "wait_s": "300"}
    truth = naive(fixes, {frozenset(("ann", "bob")), frozenset(("bob", "carl"))}, 50.3, 75.45)
    # Devices are up to two minutes behind each other, each in its own order.
    delays = {device: chance.uniform(0, 120_000) for device in clocks}
    fixes.sort(key=lambda fix: fix.time + delays[fix.device])
    chain = started("ann-bob bob-carl", **names)
    for number, fix in enumerate(fixes):
        if number in restarts:
            chain.restart()
        chain.send(fix)
    end(chain)
    assert ended(chain) == truth
