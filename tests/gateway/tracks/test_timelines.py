"""What a device did: stays, trips and gaps, out of its track alone."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tracks.timelines import VERTICES_MAX, timeline, within
from gateway.tracks.track_points import POINT, Points
from waylog.movement.diary import Gap, Item, Stay, Trip

MINUTE = 60_000
DEGREES_PER_METRE = 1 / 111_195
LAT, LON = 47.14, 9.52


def track(*rows: tuple[float, float], accuracy: float = math.nan, lon: float = LON) -> Points:
    """Return points from minutes, and metres north of a place."""
    points = np.empty(len(rows), POINT)
    for name in ("altitude", "speed", "course"):
        points[name] = math.nan
    points["accuracy"] = accuracy
    points["time"] = [round(minute * MINUTE) for minute, _ in rows]
    points["lat"] = [round((LAT + metres * DEGREES_PER_METRE) * 1e7) for _, metres in rows]
    points["lon"] = round(lon * 1e7)
    return points


def rest(begin: int, end: int, metres: float) -> list[tuple[float, float]]:
    """Return a fix a minute at one place, the last one at `end`."""
    return [(minute, metres) for minute in range(begin, end + 1)]


def drive(begin: int, end: int, start: float, stop: float) -> list[tuple[float, float]]:
    """Return a fix a minute on the way, without both ends."""
    return [
        (minute, start + (stop - start) * (minute - begin) / (end - begin))
        for minute in range(begin + 1, end)
    ]


def kinds(items: list[Item]) -> list[str]:
    """Return what the items are, with their times in minutes."""
    return [
        f"{type(item).__name__} {round(item.start / MINUTE)}-{round(item.end / MINUTE)}"
        for item in items
    ]


def test_a_day_is_stays_with_a_trip_between_them() -> None:
    items = timeline(track(*rest(0, 60, 0), *drive(60, 80, 0, 10_000), *rest(80, 120, 10_000)))
    assert kinds(items) == ["Stay 0-60", "Trip 60-80", "Stay 80-120"]
    home, way, office = items
    assert isinstance(home, Stay) and isinstance(way, Trip) and isinstance(office, Stay)
    assert home.lat == pytest.approx(LAT, abs=1e-6)
    assert office.lat == pytest.approx(LAT + 10_000 * DEGREES_PER_METRE, abs=1e-5)
    assert way.distance_m == pytest.approx(10_000, rel=0.01)
    assert way.moving_s == 20 * 60
    assert way.ended
    assert way.times == [60 * MINUTE, 80 * MINUTE]  # straight and steady: nothing in between


def test_a_silence_that_ends_elsewhere_is_a_gap_and_no_trip() -> None:
    items = timeline(track(*rest(0, 60, 0), *rest(200, 230, 20_000)))
    assert kinds(items) == ["Stay 0-60", "Gap 60-200", "Stay 200-230"]
    gap = items[1]
    assert isinstance(gap, Gap)
    assert gap.distance_m == pytest.approx(20_000, rel=0.01)
    assert len(gap.coordinates) == 2


def test_a_silence_at_one_place_is_part_of_the_stay() -> None:
    items = timeline(track(*rest(0, 30, 0), *rest(500, 530, 20)))
    assert kinds(items) == ["Stay 0-530"]
    assert isinstance(items[0], Stay)
    assert items[0].silent_s == 470 * 60


def test_a_phone_that_wakes_near_by_has_stayed_until_just_before() -> None:
    items = timeline(
        track(
            *rest(0, 30, 0), *[(500, 300.0)], *drive(500, 520, 300, 9_000), *rest(520, 540, 9_000)
        )
    )
    assert kinds(items) == ["Stay 0-495", "Gap 495-500", "Trip 500-520", "Stay 520-540"]


def test_a_silence_in_the_middle_of_a_trip_divides_it() -> None:
    items = timeline(
        track(
            *rest(0, 30, 0),
            *drive(30, 50, 0, 10_000),
            *drive(90, 110, 30_000, 40_000),
            *rest(110, 130, 40_000),
        )
    )
    assert kinds(items) == ["Stay 0-30", "Trip 30-49", "Gap 49-91", "Trip 91-110", "Stay 110-130"]


def test_the_trip_of_now_has_not_ended() -> None:
    items = timeline(track(*rest(0, 30, 0), *drive(30, 50, 0, 10_000)))
    assert kinds(items) == ["Stay 0-30", "Trip 30-49"]
    assert isinstance(items[1], Trip)
    assert not items[1].ended


def test_points_that_measure_badly_are_left_out() -> None:
    good = track(*rest(0, 60, 0))
    bad = track((30.5, 5_000), accuracy=400.0)
    points = np.concatenate([good, bad])
    assert kinds(timeline(points[np.argsort(points["time"])])) == ["Stay 0-60"]


def test_a_stay_at_the_antimeridian_is_there_and_not_at_greenwich() -> None:
    east, west = track(*rest(0, 20, 0), lon=179.9999), track(*rest(21, 40, 0), lon=-179.9999)
    (stay,) = timeline(np.concatenate([east, west]))
    assert isinstance(stay, Stay)
    assert abs(stay.lon) > 179.99


def test_nothing_has_no_timeline() -> None:
    assert timeline(track()) == []


def test_one_fix_is_a_stay() -> None:
    assert kinds(timeline(track((5, 0)))) == ["Stay 5-5"]


def test_only_what_touches_a_period_is_told() -> None:
    items = timeline(track(*rest(0, 60, 0), *drive(60, 80, 0, 10_000), *rest(80, 120, 10_000)))
    assert kinds(within(items, 65 * MINUTE, 70 * MINUTE)) == ["Trip 60-80"]


def test_the_lines_of_a_long_drive_are_bounded() -> None:
    wiggles = [(minute / 10, 3_000 * math.sin(minute) + 40 * minute) for minute in range(20_000)]
    items = timeline(track(*wiggles))
    assert sum(
        len(item.times) for item in items if isinstance(item, Trip)
    ) <= VERTICES_MAX + 4 * len(items)


steps = st.lists(
    st.tuples(
        st.floats(0.05, 40), st.floats(-3_000, 3_000), st.sampled_from([math.nan, 5.0, 90.0, 300.0])
    ),
    max_size=120,
)


@given(steps)
def test_a_timeline_has_no_holes_and_no_overlaps(moves: list[tuple[float, float, float]]) -> None:
    minutes = np.cumsum([minute for minute, _, _ in moves])
    metres = np.cumsum([metre for _, metre, _ in moves])
    points = track(*zip(minutes.tolist(), metres.tolist(), strict=True))
    points["accuracy"] = [accuracy for _, _, accuracy in moves]
    items = timeline(points)
    usable = points[~(points["accuracy"] > 100)]
    assert bool(items) == bool(len(usable))
    if not items:
        return
    assert items[0].start == usable["time"][0]
    assert items[-1].end == usable["time"][-1]
    for earlier, later in pairwise(items):
        assert earlier.end == later.start
    for item in items:
        assert item.start <= item.end
        if isinstance(item, Trip):
            assert len(item.times) == len(item.coordinates) >= 2
            assert item.start <= item.times[0] and item.times[-1] <= item.end
            # A line never crosses a silence that ended elsewhere.
            own = usable[(usable["time"] >= item.start) & (usable["time"] <= item.end)]
            pauses = np.diff(own["time"]) > 15 * MINUTE
            jumps = np.abs(np.diff(own["lat"])) / 1e7 / DEGREES_PER_METRE > 400
            assert not (pauses & jumps).any()
