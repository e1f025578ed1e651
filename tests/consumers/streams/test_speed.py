"""Topology `speed`: the limit, its end, jumps, and speeds that nobody has said."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.properties import Properties
from consumers.streams.speed import Speed
from tests.consumers.streams.harness import BEGIN, NOW, Driven, events_of, make_fix, told
from waylog.config import ConfigError

#: Degrees of latitude that are 100 m.
STEP = 100 / 111_195


def speed(**texts: str) -> Driven:
    return Driven(Speed(Properties({"limit_kmh": "36", **texts})))


def at(seconds: int) -> int:
    return BEGIN + seconds * 1000


def test_a_speeding_is_told_at_its_begin_and_end_with_the_fastest() -> None:
    driven = speed()
    said = [9.0, 10.1, 14.0, 9.5, 12.0, 8.9, 10.0]
    outputs = driven.send(*(make_fix(10 * i, speed=each) for i, each in enumerate(said)))
    begin, end = events_of(outputs)
    assert told(outputs) == [("begin", at(10)), ("end", at(50))]
    assert begin.type == end.type == "speeding"
    assert begin.attributes is not None and end.attributes is not None
    assert begin.attributes["limit"] == 10.0
    assert (end.attributes["since"], end.attributes["fastest"]) == (at(10), 14.0)
    assert (begin.device, begin.user, begin.source) == ("ann/phone", "ann", "streams")


def test_a_device_that_says_no_speed_is_measured_by_its_way() -> None:
    driven = speed()
    ways = [0, 0.9, 2.9, 4.9, 5.1]  # of 100 m, every ten seconds
    outputs = driven.send(*(make_fix(10 * i, 47 + STEP * way) for i, way in enumerate(ways)))
    assert told(outputs) == [("begin", at(20)), ("end", at(40))]
    assert (events_of(outputs)[1].attributes or {})["fastest"] == pytest.approx(20, rel=1e-3)


def test_a_position_known_roughly_makes_nobody_speed() -> None:
    driven = speed()
    assert not driven.send(make_fix(0, accuracy=20), make_fix(10, 47.14 + 2 * STEP, accuracy=150))
    assert told(driven.send(make_fix(20, 47.14 + 8 * STEP, accuracy=20))) == [("begin", at(20))]
    # Whichever of the two is known roughly.
    assert not speed().send(make_fix(0, accuracy=150), make_fix(10, 47.14 + 2 * STEP, accuracy=20))


def test_a_jump_and_the_way_back_are_left_out() -> None:
    driven = speed()
    assert not driven.send(make_fix(0), make_fix(10, 48.0), make_fix(20), make_fix(30, speed=1e9))


def test_after_a_silence_the_speeding_has_ended_where_it_was_last_known() -> None:
    driven = speed()
    driven.send(make_fix(0, speed=20), make_fix(10, speed=30))
    outputs = driven.send(make_fix(1200, speed=25))
    assert told(outputs) == [("end", at(10)), ("begin", at(1200))]
    assert (events_of(outputs)[0].attributes or {})["fastest"] == 30


def test_late_and_repeated_fixes_change_nothing() -> None:
    driven = speed()
    slow, fast = make_fix(0, speed=1), make_fix(20, speed=20)
    assert told(driven.send(slow, fast, fast, slow, make_fix(10, speed=30))) == [
        *[("begin", at(20))],
    ]
    assert not driven.send(make_fix(20, speed=0.0, id="another"))


def test_a_fix_that_is_ahead_counts_with_its_time_or_that_of_its_arrival() -> None:
    now_s = (NOW - BEGIN) // 1000
    ahead, far_ahead = now_s + 290, now_s + 310
    assert told(speed().send(make_fix(ahead, speed=20, received=NOW))) == [("begin", at(ahead))]
    assert told(speed().send(make_fix(far_ahead, speed=20, received=NOW))) == [("begin", NOW)]
    (refused,) = speed().send(make_fix(far_ahead, speed=20))
    assert refused.topic == "error"


def test_a_limit_of_a_device_or_user_comes_before_that_of_all() -> None:
    driven = speed(**{"limit_kmh.ann": "72", "limit_kmh.ann/car": "108"})
    names = ["ann/car", "ann/phone", "bob/phone"]
    outputs = driven.send(*(make_fix(0, speed=25, device=name) for name in names))
    assert [(each.device, (each.attributes or {})["limit"]) for each in events_of(outputs)] == [
        *[("ann/phone", 20.0), ("bob/phone", 10.0)],
    ]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"limit_kmh": "fast"}, "--property limit_kmh=fast: a number is expected"),
        ({"limit_kmh": "nan"}, "a number is expected"),
        ({"limit_kmh.ann": "-3"}, "--property limit_kmh.ann=-3: at least 1 is expected"),
        ({"limit": "3"}, "has no such property; did you mean limit_kmh"),
    ],
)
def test_wrong_properties_are_named(texts: dict[str, str], message: str) -> None:
    properties = Properties(texts)
    with pytest.raises(ConfigError, match=message):
        Speed(properties)
        properties.check_all_known("speed")


@given(
    st.lists(
        st.builds(
            make_fix,
            st.integers(0, 300),
            st.floats(-90, 90),
            st.floats(-180, 180),
            speed=st.none() | st.floats(),
            accuracy=st.none() | st.floats(),
        ),
        max_size=8,
    ),
    st.sets(st.integers(0, 8)),
)
def test_any_fixes_give_begin_and_end_in_turn_whenever_the_process_is_restarted(
    fixes: list[Any], restarts: set[int]
) -> None:
    steady, restarted = speed(), speed()
    for number, fix in enumerate(fixes):
        steady.send(fix)
        if number in restarts:
            restarted.restart()
        restarted.send(fix)
    assert restarted.outputs == steady.outputs
    transitions = told(steady.outputs)
    assert [name for name, _ in transitions] == (["begin", "end"] * 8)[: len(transitions)]
    times = [time for _, time in transitions]
    assert times == sorted(times)
    for event in events_of(steady.outputs):
        assert math.isfinite((event.attributes or {}).get("fastest", 0.0))
