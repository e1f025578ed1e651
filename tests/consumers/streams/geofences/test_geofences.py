"""Topology `geofences`: transitions compared with a naive computation, owners, late fixes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.geofences.topology import Geofences
from consumers.streams.properties import Properties
from tests.consumers.streams.geofences.truth import depth
from tests.consumers.streams.harness import BEGIN, Driven, events_of, make_fix
from waylog.geofences.definition import Geofence, decode_geofence
from waylog.messages import Event, Fix

#: Degrees of latitude that are 100 m.
STEP = 100 / 111_195
Definitions = dict[str, dict[str, Any]]

HOME = {"circle": {"lat": 47.0, "lon": 9.0, "radius": 100}}


def geofences(definitions: Definitions, **properties: str) -> Driven:
    topology = Geofences(Properties(properties))
    for key, definition in definitions.items():
        topology.define(key, decode_geofence(msgspec.json.encode(definition)))
    return Driven(topology)


def at(seconds: float, steps: float, **more: Any) -> Fix:
    """Return a fix so many hundreds of metres north of the middle of HOME."""
    return make_fix(seconds, 47.0 + steps * STEP, 9.0, **{"accuracy": 10.0, **more})


def transitions(outputs: Iterable[Any]) -> list[tuple[str, str, float]]:
    """Return kind, fence and seconds after the begin of events."""
    return [
        (
            (each.attributes or {})["transition"],
            (each.attributes or {})["fence"],
            (each.time - BEGIN) / 1000,
        )
        for each in events_of(outputs)
    ]


def deep_in(definition: dict[str, Any], fix: Fix) -> float:
    """Return how deep a fix is in a fence; those of these tests reach 0.15 degrees at most."""
    shape = definition.get("circle") or definition.get("corridor", {}).get("line") or definition[
        "polygon"
    ]  # fmt: skip
    corner = shape.get("coordinates", [[shape.get("lon"), shape.get("lat")]])[0]
    lon, lat = corner if isinstance(corner[0], float) else corner[0]
    if max(abs(fix.lat - lat), abs(fix.lon - lon)) > 0.2:
        return -10_000.0
    return depth(definition, fix.lat, fix.lon)


def naive(definitions: Definitions, fixes: list[Fix], assumed: float = 10.0) -> list[Any]:
    """Return device, kind, fence key and time of all transitions, a fence after the other."""
    told: list[tuple[str, str, str, int, int | None]] = []
    for device in {fix.device for fix in fixes}:
        newest = -math.inf
        own = []
        for fix in fixes:
            if fix.device == device and fix.time > newest:
                newest = fix.time
                own.append(fix)
        for key, definition in definitions.items():
            owner = key.split("/")[0]
            listed = definition.get("devices")
            names = [each if "/" in each or owner == "*" else f"{owner}/{each}"
                     for each in listed or []]  # fmt: skip
            if owner not in ("*", device.split("/")[0]) or (
                listed is not None and device not in names
            ):
                continue
            since: int | None = None
            entered = dwelt = False
            for fix in own:
                deep = deep_in(definition, fix)
                accuracy = assumed if fix.accuracy is None else fix.accuracy
                if deep < -accuracy:
                    if entered:
                        told.append((device, "leave", key, fix.time, since))
                    since, entered, dwelt = None, False, False
                elif deep >= accuracy:
                    since = fix.time if since is None else since
                    lasted = (fix.time - since) / 1000
                    if not entered and lasted >= definition.get("minimum", 0):
                        entered = True
                        told.append((device, "enter", key, fix.time, since))
                    if entered and not dwelt and 0 < definition.get("dwell", 0) <= lasted:
                        dwelt = True
                        told.append((device, "dwell", key, fix.time, since))
    return sorted(told)


def comparable(events: Iterable[Event]) -> list[Any]:
    return sorted(
        (
            event.device,
            (event.attributes or {})["transition"],
            f"{(event.attributes or {})['owner']}/{(event.attributes or {})['fence']}",
            event.time,
            (event.attributes or {})["since"],
        )
        for event in events
    )


def test_a_device_enters_dwells_and_leaves() -> None:
    driven = geofences({"ann/home": HOME | {"dwell": 60}})
    outputs = driven.send(*(at(20 * i, steps) for i, steps in enumerate([3, 0, 0.2, 0, 0, 0, 5])))
    assert transitions(outputs) == [
        *[("enter", "home", 20), ("dwell", "home", 80), ("leave", "home", 120)],
    ]
    [enter, dwell, leave] = events_of(outputs)
    assert (enter.type, enter.device, enter.user, enter.source) == (
        *("geofence", "ann/phone", "ann", "streams"),
    )
    assert {(each.attributes or {})["since"] for each in (enter, dwell, leave)} == {BEGIN + 20_000}
    assert len({enter.id, dwell.id, leave.id}) == 3


def test_a_fix_whose_accuracy_does_not_decide_changes_nothing() -> None:
    driven = geofences({"ann/home": HOME | {"dwell": 100}})
    assert not driven.send(at(0, 0.5, accuracy=60), at(1, 0, accuracy=101))
    assert transitions(driven.send(at(2, 0.5, accuracy=40))) == [("enter", "home", 2)]
    undecided = [at(200, 1.5, accuracy=60), at(201, 9, accuracy=5000), at(202, 0, accuracy=150)]
    assert not driven.send(*undecided, at(203, 9, accuracy=1e300), at(204, 9, accuracy=-1.0))
    assert transitions(driven.send(at(205, 1.5, accuracy=40))) == [("leave", "home", 205)]


def test_a_stay_shorter_than_the_minimum_is_not_told() -> None:
    driven = geofences({"ann/home": HOME | {"minimum": 30}})
    assert not driven.send(at(0, 0), at(20, 0), at(25, 5), at(40, 0))
    outputs = driven.send(at(69, 0), at(70, 0), at(80, 5))
    assert transitions(outputs) == [("enter", "home", 70), ("leave", "home", 80)]
    assert (events_of(outputs)[0].attributes or {})["since"] == BEGIN + 40_000


def test_late_and_repeated_fixes_contradict_nothing() -> None:
    driven = geofences({"ann/home": HOME})
    away, home, late = at(10, 5), at(20, 0), at(15, 0)
    assert not driven.send(away)
    assert transitions(driven.send(home, home, late, away, at(19, 5))) == [("enter", "home", 20)]
    driven.restart()
    assert not driven.send(home, late, at(18, 5), at(20, 5))
    assert transitions(driven.send(at(21, 5))) == [("leave", "home", 21)]


def test_fences_of_a_user_are_for_own_devices_those_of_everybody_for_all() -> None:
    driven = geofences({
        "ann/own": HOME, "*/all": HOME, "ann/watch": HOME | {"devices": ["watch"]},
        "*/named": HOME | {"devices": ["bob/car"]}, "ann/foreign": HOME | {"devices": ["bob/car"]},
    })  # fmt: skip
    devices = ["ann/phone", "ann/watch", "bob/car", "*/x"]
    told = {
        device: [fence for _, fence, _ in transitions(driven.send(at(0, 0, device=device)))]
        for device in devices
    }
    assert told == {
        "ann/phone": ["all", "own"],
        "ann/watch": ["all", "own", "watch"],
        "bob/car": ["all", "named"],
        "*/x": ["all"],
    }


def test_a_fence_that_is_removed_is_forgotten_and_a_moved_one_counts_from_the_next_fix() -> None:
    driven = geofences({"ann/home": HOME, "ann/other": HOME})
    topology = driven.task._processor  # its definitions come from a thread otherwise
    assert isinstance(topology, Geofences)
    driven.send(at(0, 0))
    topology.define("ann/home", None)
    moved = {"circle": {"lat": 48.0, "lon": 9.0, "radius": 100}}
    topology.define("ann/other", msgspec.convert(moved, Geofence))
    assert transitions(driven.send(at(10, 0))) == [("leave", "other", 10)]
    topology.define("ann/home", msgspec.convert(HOME, Geofence))
    assert transitions(driven.send(at(20, 0))) == [("enter", "home", 20)]


def test_a_definition_that_is_none_counts_as_removed() -> None:
    driven = geofences({"ann/home": HOME})
    topology = driven.task._processor
    assert isinstance(topology, Geofences)
    crossing = [[0, 0], [1, 1], [0, 1], [1, 0], [0, 0]]
    wrong = Geofence(polygon={"type": "Polygon", "coordinates": [crossing]})
    for key in ("ann/home", "ann", "/home", "ann/"):
        topology.define(key, wrong)
    assert len(topology.fences) == 0
    assert not driven.send(at(0, 0))
    assert len(driven.store) == 0


def test_who_has_no_fences_is_not_remembered() -> None:
    driven = geofences({"ann/home": HOME})
    driven.send(at(0, 5), at(0, 5, device="bob/phone"))
    assert [key for key, _ in driven.store.items()] == ["ann/phone"]
    topology = driven.task._processor
    assert isinstance(topology, Geofences)
    topology.define("ann/home", None)
    driven.send(at(1, 5))
    assert driven.changelog[-1] == (b"ann/phone", None)


RINGS = st.sampled_from([
    [[9.0, 47.0], [9.01, 47.0], [9.005, 47.01], [9.0, 47.0]],
    [[8.99, 46.99], [9.02, 46.99], [9.02, 47.02], [8.99, 47.02], [8.99, 46.99]],
])  # fmt: skip
SHAPES = st.one_of(
    st.builds(
        lambda lat, lon, radius: {"circle": {"lat": lat, "lon": lon, "radius": radius}},
        *(st.floats(46.99, 47.02), st.floats(8.99, 9.02), st.sampled_from([50, 300, 2000])),
    ),
    RINGS.map(lambda ring: {"polygon": {"type": "Polygon", "coordinates": [ring]}}),
    st.builds(
        lambda ring, width: {
            "corridor": {"line": {"type": "LineString", "coordinates": ring}, "width": width}
        },
        *(RINGS, st.sampled_from([30, 400])),
    ),
)
FENCES = st.dictionaries(
    st.sampled_from(["ann/a", "ann/b", "bob/c", "*/d", "*/e"]),
    st.builds(
        lambda shape, more: shape | more,
        SHAPES,
        st.fixed_dictionaries(
            {},
            optional={
                "dwell": st.sampled_from([20, 60]),
                "minimum": st.sampled_from([0, 15]),
                "devices": st.sampled_from([["phone"], ["ann/phone", "bob/phone"]]),
            },
        ),
    ),
    max_size=4,
)
FIXES = st.lists(
    st.builds(
        make_fix,
        st.integers(0, 200),
        st.floats(46.98, 47.03),
        st.floats(8.98, 9.03),
        device=st.sampled_from(["ann/phone", "bob/phone"]),
        accuracy=st.sampled_from([None, 0.0, 5.0, 80.0]),
    ),
    max_size=15,
)


def is_clear(definitions: Definitions, fixes: list[Fix]) -> bool:
    """Tell whether no fix is so near to a decision that two computations may differ."""
    return all(
        abs(abs(deep_in(each, fix)) - (10 if fix.accuracy is None else fix.accuracy)) > 2
        for each in definitions.values()
        for fix in fixes
    )


@given(FENCES, FIXES, st.sets(st.integers(0, 14)))
def test_transitions_are_those_of_a_naive_computation(
    definitions: Definitions, fixes: list[Fix], restarts: set[int]
) -> None:
    fixes = [fix for fix in fixes if is_clear(definitions, [fix])]
    one, several = geofences(definitions), geofences(definitions)
    one.send(*fixes)
    for number, fix in enumerate(fixes):
        if number in restarts:
            several.restart()
        several.send(fix)
    assert comparable(events_of(one.outputs)) == naive(definitions, fixes)
    assert several.outputs == one.outputs


def test_what_was_restored_and_comes_again_repeats_events_with_equal_ids() -> None:
    fixes = [at(20 * i, steps) for i, steps in enumerate([3, 0, 0.2, 5, 0])]
    first = geofences({"ann/home": HOME})
    outputs = first.send(*fixes)
    # Killed before the changes of the store were written: all comes again to an empty one.
    again = geofences({"ann/home": HOME})
    assert again.send(*fixes) == outputs
    # Killed before the offsets were committed: nothing is told a second time.
    assert not first.send(*fixes)


def test_many_fences_at_one_place_are_all_told_and_the_index_grows_in_steps() -> None:
    driven = geofences({f"ann/{number:04}": HOME for number in range(900)})
    topology = driven.task._processor
    assert isinstance(topology, Geofences)
    assert len(driven.send(at(0, 0))) == 900
    for number in range(900, 2500):
        topology.define(f"ann/{number:04}", msgspec.convert(HOME, Geofence))
    # A device is in a thousand at most: a state has to fit into a record.
    assert len(driven.send(at(1, 0))) == 100
    assert len(driven.send(at(2, 9))) == 1000
    assert len(topology.fences) == 2500
    # The large tree still has those that are gone, or elsewhere.
    for number in range(2496):
        topology.define(f"ann/{number:04}", None)
    moved = {"circle": {"lat": 48.0, "lon": 9.0, "radius": 100}}
    topology.define("ann/2496", msgspec.convert(moved, Geofence))
    entered = transitions(driven.send(at(3, 0)))
    assert [fence for _, fence, _ in entered] == ["2497", "2498", "2499"]
