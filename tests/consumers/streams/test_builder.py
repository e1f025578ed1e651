"""The operators compared with plain Python, and what becomes of records that are odd."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.streams.builder import BuiltTopology, stream
from consumers.streams.windows import hopping, sessions, tumbling
from consumers.worker.records import OutputRecord
from tests.consumers.streams.harness import BEGIN, Driven, Record, make_fix
from tests.odd_records import MALFORMED_VALUES
from waylog.config import ConfigError
from waylog.messages import Fix, encode


class Piped:
    """A topology whose processors hand records on to each other, without a broker."""

    def __init__(self, topology: BuiltTopology) -> None:
        self.driven = [Driven(each) for each in topology.processors()]
        self._inputs = [each.topic for each in topology.processors()]
        self.outputs: list[OutputRecord] = []

    def send(self, *records: Record) -> None:
        """Process records as one batch, in all processors."""
        batch: list[Record] = list(records)
        for number, driven in enumerate(self.driven):
            following = self._inputs[number + 1] if number + 1 < len(self._inputs) else None
            outputs = driven.task.process({0: batch}, {0: driven.store}, driven.now_ms)
            driven._take(outputs)
            batch = []
            for output in outputs:
                if output.topic == following:
                    batch.append(Record(output.value, output.key))
                else:
                    self.outputs.append(output)

    def restart(self) -> None:
        for driven in self.driven:
            driven.restart()

    def last(self, topic: str) -> dict[str, Any]:
        """Return the newest value of each key of a topic."""
        return dict(self.all(topic))

    def all(self, topic: str) -> list[tuple[str, Any]]:
        return [
            ((each.key or b"").decode("utf-8", "replace"), msgspec.json.decode(each.value))
            for each in self.outputs
            if each.topic == topic
        ]


class Trip(msgspec.Struct):
    """A value of another topic."""

    metres: int
    at: int = 0


def trip(key: str, metres: int, at: int = 0) -> Record:
    return Record(msgspec.json.encode(Trip(metres, at)), key.encode())


TRIPS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 99), st.integers(0, 500)),
    max_size=30,
)
BATCHES = st.lists(st.integers(1, 10), min_size=30, max_size=30)


def feed(piped: Piped, trips: list[tuple[str, int, int]], batches: list[int]) -> None:
    """Send trips in batches of these sizes, and restart between two of them."""
    left = [trip(*each) for each in trips]
    for number, size in enumerate(batches):
        piped.send(*left[:size])
        del left[:size]
        if number % 3 == 1:
            piped.restart()


def test_filter_map_and_flat_map_are_those_of_python() -> None:
    topology = (
        stream("fast", "location", Fix)
        .filter(lambda fix: (fix.speed or 0) > 30)
        .map(lambda fix: {"device": fix.device, "speed": fix.speed}, dict)
        .flat_map(lambda value: [value, value], dict)
        .to("fast")
    )
    [processor] = topology.processors()
    assert (topology.name, processor.topic, topology.topics()) == ("fast", "location", ())
    driven = Driven(processor)
    outputs = driven.send(*(make_fix(i, speed=speed) for i, speed in enumerate([20, 31, None, 40])))
    values = [msgspec.json.decode(each.value) for each in outputs]
    assert [value["speed"] for value in values] == [31, 31, 40, 40]
    assert {(each.topic, each.key, each.partition) for each in outputs} == {
        ("fast", b"ann/phone", None)
    }


@given(TRIPS, BATCHES)
def test_aggregate_reduce_and_count_are_those_of_python(
    trips: list[tuple[str, int, int]], batches: list[int]
) -> None:
    grouped = stream("t", "trip", Trip).filter(lambda trip: trip.metres % 2 == 0).group_by_key()
    total = Piped(
        grouped.aggregate(lambda: 0, lambda so_far, trip: so_far + trip.metres, int).to("x")
    )
    longest = Piped(
        grouped.reduce(lambda one, other: max(one, other, key=lambda trip: trip.metres)).to("x")
    )
    count = Piped(grouped.count().to("x"))
    for piped in (total, longest, count):
        feed(piped, trips, batches)
    expected: dict[str, list[int]] = defaultdict(list)
    for key, metres, _ in trips:
        if metres % 2 == 0:
            expected[key].append(metres)
    assert total.last("x") == {key: sum(each) for key, each in expected.items()}
    assert {key: trip["metres"] for key, trip in longest.last("x").items()} == {
        key: max(each) for key, each in expected.items()
    }
    assert count.last("x") == {key: len(each) for key, each in expected.items()}


@given(TRIPS, BATCHES)
def test_another_key_goes_through_a_topic(
    trips: list[tuple[str, int, int]], batches: list[int]
) -> None:
    topology = stream("t", "trip", Trip).group_by(lambda trip: str(trip.metres % 3)).count().to("x")
    assert [each.name for each in topology.topics()] == ["streams-t-repartition"]
    assert [each.name for each in topology.processors()] == ["t", "t-2"]
    piped = Piped(topology)
    feed(piped, trips, batches)
    keys = sorted(str(metres % 3) for _, metres, _ in trips)
    assert piped.last("x") == {key: len(list(each)) for key, each in itertools.groupby(keys)}


@given(TRIPS, BATCHES, st.sampled_from([(100, 100), (90, 30)]), st.sampled_from([0, 200, 1000]))
def test_windows_hold_what_came_before_they_closed(
    trips: list[tuple[str, int, int]], batches: list[int], window: tuple[int, int], grace: int
) -> None:
    size, advance = window
    windows = hopping(size / 1000, advance / 1000, grace_s=grace / 1000)
    topology = stream("t", "trip", Trip, time=lambda trip: trip.at)
    piped = Piped(topology.group_by_key().windowed_by(windows).count().to("x"))
    feed(piped, trips, batches)
    expected: dict[tuple[str, int], int] = defaultdict(int)
    stream_time = 0
    for key, _, at in trips:
        stream_time = max(stream_time, at)
        for start in range(-size, at + 1):
            is_open = start + size + grace > stream_time
            if start % advance == 0 and start <= at < start + size and is_open:
                expected[key, start] += 1
    found = {(each["key"], each["start"]): each["value"] for _, each in piped.all("x")}
    assert found == expected
    assert all(each["end"] - each["start"] == size for _, each in piped.all("x"))
    # Closed windows are not kept for ever: those of the last advance at most.
    piped.send(trip("z", 1, 1_000_000))
    assert len(piped.driven[0].store) == -(-size // advance)


@given(TRIPS, BATCHES)
def test_sessions_are_runs_without_a_gap(
    trips: list[tuple[str, int, int]], batches: list[int]
) -> None:
    topology = stream("t", "trip", Trip, time=lambda trip: trip.at)
    windows = sessions(0.02, grace_s=1)
    piped = Piped(topology.group_by_key().windowed_by(windows).count().to("x"))
    feed(piped, trips, batches)
    expected = {}
    for key in {key for key, _, _ in trips}:
        run: list[int] = []
        for at in [*sorted(at for each, _, at in trips if each == key), 10_000]:
            if run and at - run[-1] > 20:
                expected[key, run[0], run[-1]] = len(run)
                run = []
            run.append(at)
    found = {(each["key"], each["start"], each["end"]): each["value"] for _, each in piped.all("x")}
    assert {window: count for window, count in found.items() if count is not None} == expected


def test_a_session_that_has_closed_gets_no_more() -> None:
    topology = stream("t", "trip", Trip, time=lambda trip: trip.at)
    piped = Piped(topology.group_by_key().windowed_by(sessions(0.02)).count().to("x"))
    # The last one is not late itself: what comes up to 20 ms after it may still join it.
    piped.send(trip("a", 1, 0), trip("b", 1, 30), trip("a", 1, 15))
    found = sorted((each["start"], each["end"], each["value"]) for _, each in piped.all("x"))
    assert found == [(0, 0, 1), (15, 15, 1), (30, 30, 1)]


def test_sessions_need_to_know_how_two_become_one() -> None:
    grouped = stream("t", "trip", Trip).group_by_key().windowed_by(sessions(5))
    with pytest.raises(ConfigError, match="sessions need aggregate"):
        grouped.aggregate(list, lambda so_far, trip: [*so_far, trip.metres], list)


def test_records_that_fail_are_refused_and_those_behind_them_go_on() -> None:
    topology = stream("t", "trip", Trip).map(lambda trip: 100 / trip.metres, float).to("x")
    piped = Piped(topology)
    odd = [Record(value, b"a") for value in (*MALFORMED_VALUES, None, b"[1]", b'{"metres":"x"}')]
    piped.send(trip("a", 4), *odd, Record(b'{"metres":5}', b"\xff"), trip("a", 0), trip("a", 5))
    assert piped.all("x") == [("a", 25.0), ("a", 20.0)]
    reasons = [value["reason"] for _, value in piped.all("error")]
    assert len(reasons) == len(odd) + 2
    assert reasons[-1] == "topology t failed: ZeroDivisionError"
    assert reasons[-2] == "the key is no text in UTF-8"


def test_a_record_from_the_future_is_refused_and_makes_no_other_late() -> None:
    topology = stream("t", "trip", Trip, time=lambda trip: trip.at)
    piped = Piped(topology.group_by_key().windowed_by(tumbling(10)).count().to("x"))
    for at in (1 << 62, 1 << 70, -5, BEGIN):
        piped.send(trip("a", 1, at))
    assert [value["value"] for _, value in piped.all("x")] == [1]
    assert len(piped.all("error")) == 3


def test_a_group_or_result_that_no_record_can_hold_is_left_out() -> None:
    topology = stream("t", "trip", Trip).group_by(lambda trip: "k" * trip.metres)
    grown = topology.aggregate(str, lambda so_far, trip: so_far + "x" * trip.at, str).to("x")
    piped = Piped(grown)
    piped.send(trip("a", 1001, 1), trip("a", 3, 500_000), trip("a", 3, 500_000), trip("a", 2, 1))
    assert [key for key, _ in piped.all("x")] == ["kk"]
    assert piped.all("error")[0][1]["reason"].startswith("a key is a text of at most")
    assert [key for key, _ in piped.driven[1].store.items()] == ["kk"]


def test_fixes_are_read_as_all_consumers_of_ours_do() -> None:
    topology = stream("t", "location", Fix).group_by_key().count().to("x")
    driven = Driven(topology.processors()[0])
    fix = make_fix(1)
    driven.send(fix, encode(fix).replace(b"47.14", b"147.14"), b"{}", fix)
    assert [(each.topic, each.value) for each in driven.outputs if each.topic == "x"] == [
        ("x", b"2")
    ]
    assert len([each for each in driven.outputs if each.topic == "error"]) == 2
