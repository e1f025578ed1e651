"""Totals by day, week, month and year."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tracks.spans import SPANS
from gateway.tracks.statistics import Statistics, days_of, first_day
from gateway.tracks.track_points import Points
from tests.gateway.tracks.test_timelines import drive, rest, track
from waylog.movement.calendar import Calendar

DAY = 24 * 60


def two_days() -> Points:
    """Return a drive of 10 km on 1 January 1970, and one of 20 km on the next day (UTC)."""
    return track(
        *rest(300, 360, 0),
        *drive(360, 380, 0, 10_000),
        *rest(380, 420, 10_000),
        *rest(DAY + 300, DAY + 360, 10_000),
        *drive(DAY + 360, DAY + 390, 10_000, 30_000),
        *rest(DAY + 390, DAY + 420, 30_000),
    )


def totals(
    points: Points, span: str, zone: str = "UTC", pieces: int = 1
) -> list[tuple[str, int, float]]:
    """Return the date, the trips and the kilometres of each total."""
    statistics = Statistics(Calendar(zone))
    for piece in np.array_split(points, pieces):
        statistics.add(piece)
    found = statistics.totals(span, "1969-01-01", "1975-01-01")
    return [(each.date, each.trips, round(each.distance_m / 1000, 1)) for each in found]


def test_each_day_has_its_own() -> None:
    found = totals(two_days(), "day")
    assert [row[:2] for row in found] == [("1970-01-01", 1), ("1970-01-02", 1)]
    assert [row[2] for row in found] == pytest.approx([10, 20], rel=0.01)


@pytest.mark.parametrize(
    ("span", "first"), [("week", "1969-12-29"), ("month", "1970-01-01"), ("year", "1970-01-01")]
)
def test_days_are_added_up(span: str, first: str) -> None:
    ((day, trips, kilometres),) = totals(two_days(), span)
    assert (day, trips) == (first, 2)
    assert kilometres == pytest.approx(30, rel=0.01)


def test_days_are_those_of_the_zone() -> None:
    # 6:00 UTC is the evening before in Honolulu.
    assert [row[0] for row in totals(two_days(), "day", "Pacific/Honolulu")] == [
        "1969-12-31",
        "1970-01-01",
    ]


def test_days_outside_of_the_period_are_left_out() -> None:
    statistics = Statistics(Calendar("UTC"))
    statistics.add(two_days())
    assert [each.date for each in statistics.totals("day", "1970-01-02", "1970-01-09")] == [
        "1970-01-02"
    ]


def test_places_are_where_trips_began_and_ended() -> None:
    statistics = Statistics(Calendar("UTC"))
    statistics.add(two_days())
    first, second = statistics.totals("day", "1970-01-01", "1970-01-02")
    assert first.visited == [[47.14, 9.52], [47.23, 9.52]]
    assert second.visited == [[47.23, 9.52], [47.41, 9.52]]


@given(st.integers(1, 40))
def test_pieces_give_the_same_as_the_whole(pieces: int) -> None:
    assert totals(two_days(), "day", pieces=pieces) == totals(two_days(), "day")


@given(st.dates(date(1970, 1, 1), date(2100, 1, 1)), st.sampled_from(SPANS))
def test_the_first_day_is_the_first_day_of_itself(day: date, span: str) -> None:
    first = first_day(day.isoformat(), span)
    assert first <= day.isoformat()
    assert first_day(first, span) == first
    assert (day - date.fromisoformat(first)).days <= {
        "day": 0,
        "week": 6,
        "month": 30,
        "year": 365,
    }[span]


@given(
    st.lists(st.integers(0, 4_000_000_000_000), max_size=60),
    st.sampled_from(["UTC", "Asia/Kathmandu", "America/St_Johns"]),
)
def test_every_fix_is_of_one_day(times: list[int], zone: str) -> None:
    calendar = Calendar(zone)
    found = days_of(np.array(times, np.int64), calendar)
    assert found.total() == len(times)
    assert set(found) == {calendar.date_of(time) for time in times}
