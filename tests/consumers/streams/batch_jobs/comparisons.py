"""What topologies have told, compared with what batch jobs find in the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import duckdb
import h3
import msgspec
import pytest

from consumers.streams.heat_map.messages import CellCount
from consumers.streams.trips.messages import Trip, TripDay
from consumers.worker.records import OutputRecord
from tests.consumers.streams.batch_jobs.geofences import transitions
from tests.consumers.streams.batch_jobs.heat_map import Counts, counts
from tests.consumers.streams.batch_jobs.meetings import meetings
from tests.consumers.streams.batch_jobs.replay import FAR, Replay
from tests.consumers.streams.batch_jobs.silence import silences
from tests.consumers.streams.batch_jobs.speed import speedings
from tests.consumers.streams.batch_jobs.trips import trips_of
from tests.consumers.streams.harness import events_of

Outputs = Iterable[OutputRecord]


class Comparison(NamedTuple):
    """The properties of a topology, and what fails where it differs from the batch job."""

    properties: dict[str, str]
    check: Callable[[duckdb.DuckDBPyConnection, Replay, Sequence[OutputRecord]], None]


def _events(outputs: Outputs, kind: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Return device, time and attributes of the events of a type."""
    return [
        (each.device, each.time, each.attributes or {})
        for each in events_of(outputs)
        if each.type == kind
    ]


def check_geofences(
    history: duckdb.DuckDBPyConnection, replay: Replay, outputs: Sequence[OutputRecord]
) -> None:
    """Transitions are equal, with their times to the millisecond."""
    told = sorted(
        (device, more["transition"], f"{more['owner']}/{more['fence']}", time, more["since"])
        for device, time, more in _events(outputs, "geofence")
    )
    expected = transitions(history, replay.fences)
    assert told == expected
    assert {kind for _, kind, *_ in told} == {"enter", "dwell", "leave"}
    assert len(told) > 100


def check_speed(
    history: duckdb.DuckDBPyConnection, replay: Replay, outputs: Sequence[OutputRecord]
) -> None:
    """Times are equal, speeds to a micrometre a second."""
    limits = {"u0": 20 / 3.6, "friend1": 20 / 3.6}
    expected: list[tuple[Any, ...]] = []
    for each in speedings(history, limits, 36 / 3.6):
        expected.append((each.device, each.since, "begin", each.first))
        if each.end is not None:
            expected.append((each.device, each.end, "end", each.since, each.fastest))
    told = [
        (device, time, "begin", more["speed"])
        if more["transition"] == "begin"
        else (device, time, "end", more["since"], more["fastest"])
        for device, time, more in _events(outputs, "speeding")
    ]
    assert sorted(each[:3] for each in told) == sorted(each[:3] for each in expected)
    for one, other in zip(sorted(told), sorted(expected), strict=True):
        assert one[3:] == pytest.approx(other[3:], abs=1e-6), one
    assert len(told) > 100


def check_silence(
    history: duckdb.DuckDBPyConnection, replay: Replay, outputs: Sequence[OutputRecord]
) -> None:
    """All is equal: limits are rounded to milliseconds in both."""
    told = sorted(
        (
            device,
            more["transition"],
            time,
            more["since"],
            more["limit" if more["transition"] == "begin" else "seconds"],
        )
        for device, time, more in _events(outputs, "silence")
    )
    assert told == silences(history)
    limits = {more.get("limit") for _, _, more in _events(outputs, "silence")}
    assert limits - {None, 900.0, 86_400.0}, "no limit was learned"


def check_trips(
    history: duckdb.DuckDBPyConnection, replay: Replay, outputs: Sequence[OutputRecord]
) -> None:
    """Times are equal; lengths are told in decimetres and tenths of a second."""
    trips: dict[bytes | None, Trip] = {}
    days: dict[bytes | None, TripDay] = {}
    for each in outputs:
        if each.topic == "trip":
            trips[each.key] = msgspec.json.decode(each.value, type=Trip)
        elif each.topic == "trip-day":
            days[each.key] = msgspec.json.decode(each.value, type=TripDay)
    count = 0
    for device, (times, lengths, totals) in trips_of(history, replay.zone).items():
        own = sorted((each for each in trips.values() if each.device == device),
                     key=lambda each: each.start)  # fmt: skip
        assert [(each.start, each.end) for each in own] == times, device
        for trip, (metres, moving_ms) in zip(own, lengths, strict=True):
            assert (trip.distance_m, trip.moving_s) == pytest.approx(
                (metres, moving_ms / 1000), abs=0.051
            ), (device, trip)
        told = {each.date: each for each in days.values() if each.device == device}
        assert told.keys() == totals.keys(), device
        for date, (number, metres, moving_ms, unseen) in totals.items():
            day = told[date]
            assert day.trips == number
            assert (day.distance_m, day.moving_s, day.unseen_m) == pytest.approx(
                (metres, moving_ms / 1000, unseen), abs=0.051
            ), (device, date)
        count += len(times)
    assert count == len(trips) > 20


def check_heat_map(
    history: duckdb.DuckDBPyConnection, replay: Replay, outputs: Sequence[OutputRecord]
) -> None:
    """Counts are equal."""
    told: Counts = {}
    for each in outputs:
        if each.topic == "heat-map":
            count = msgspec.json.decode(each.value, type=CellCount)
            told[count.cell, count.window_s, count.start] = count.fixes, count.devices
    far = h3.latlng_to_cell(*FAR, 8)
    expected = counts(history, devices_min=2)
    assert {key: each for key, each in told.items() if key[0] != far} == {
        key: each for key, each in expected.items() if key[0] != far
    }
    assert {window for _, window, _ in told} == {60, 3600}


def check_meetings(
    history: duckdb.DuckDBPyConnection, replay: Replay, outputs: Sequence[OutputRecord]
) -> None:
    """Begins are equal, and the ends of those meetings that were told to have ended."""
    expected = {
        (*names, first): (last, is_convoy)
        for device, friend, first, last, is_convoy in meetings(
            history, replay.friends, near_m=50.3, leave_m=75.45
        )
        for names in ((device, friend), (friend, device))
    }
    told = _events(outputs, "meeting")
    begins = [
        (device, more["with"], more["since"])
        for device, _, more in told
        if more["transition"] == "begin"
    ]
    assert sorted(begins) == sorted(expected)
    for device, _, more in told:
        if more["transition"] == "end":
            assert expected[device, more["with"], more["since"]] == (more["until"], more["convoy"])
    assert len(begins) > 20


#: By topology.
COMPARISONS: Final = {
    "geofences": Comparison({}, check_geofences),
    "heat-map": Comparison({"devices_min": "2", "update_s": "1"}, check_heat_map),
    "meetings": Comparison({"near_m": "50.3", "idle_s": "1e7"}, check_meetings),
    "silence": Comparison({"idle_s": "1e7"}, check_silence),
    "speed": Comparison(
        {"limit_kmh": "36", "limit_kmh.u0": "20", "limit_kmh.friend1": "20"}, check_speed
    ),
    "trips": Comparison({"update_s": "600"}, check_trips),
}
