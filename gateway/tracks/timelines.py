"""What a device did, out of its track: stays, trips, and gaps of which nothing is known; sans-IO.

Trips are those of topology `trips` (waylog.movement). What is between them is a stay, unless the
device was silent meanwhile and came up elsewhere: that is a gap. A silence of which the device
comes back nearby was a stay until just before, since phones report late that they have left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from gateway.tracks.simplification import simplified_to
from gateway.tracks.track_points import Points
from waylog.movement.calendar import Calendar
from waylog.movement.diary import Gap, Item, Stay, Trip
from waylog.movement.movement import Course, Movement, Place, Rules, take_place

#: Metres that a point may be off in an answer, and the points of all its trips together.
TOLERANCE_M: Final = 4.0
VERTICES_MAX: Final = 5_000

ACCURACY_M: Final = 10.0  # of points that do not tell theirs
ACCURACY_MAX_M: Final = 100.0  # others are not looked at
#: A silence at rest that ends no farther away was a stay; it is left at a slow walk.
_NEAR_M: Final = 500.0
_WALK: Final = 1.0  # m/s
#: Shorter pauses between trips and gaps are no stays.
_STAY_MS: Final = 300_000


class Way(msgspec.Struct):
    """A stretch of time that is no stay, before it is described."""

    start: int
    end: int
    course: Course | None = None  # None: a gap
    ended: bool = True
    before: Place | None = None  # of a gap
    after: Place | None = None


def places_of(points: Points) -> Iterator[tuple[Place, float | None]]:
    """Yield the usable points of a track by time, with the speed (m/s) that the device has said."""
    last = -(2**63)
    accuracies = np.where(np.isnan(points["accuracy"]), ACCURACY_M, points["accuracy"])
    columns = (
        points["time"].tolist(),
        (points["lat"] / 1e7).tolist(),
        (points["lon"] / 1e7).tolist(),
        accuracies.tolist(),
        points["speed"].tolist(),
    )
    for time, lat, lon, accuracy, speed in zip(*columns, strict=True):
        if time > last and 0.0 <= accuracy <= ACCURACY_MAX_M:
            last = time
            # NaN is not equal to itself, and no speed.
            yield Place(time, lat, lon, accuracy), speed if speed >= 0.0 else None


def timeline(points: Points, rules: Rules | None = None) -> list[Item]:
    """Return what a device did, in order and without holes, from its first to its last point.

    Costs some 5 us a point.
    """
    rules = rules or Rules()
    usable = [place for place, _ in places_of(points)]
    if not usable:
        return []
    ways = _joined(_ways(points, rules), usable[0].time, usable[-1].time)
    items: list[Item] = []
    at = usable[0].time
    times = np.array([place.time for place in usable], np.int64)
    for way in ways:
        if way.start > at or (not items and way.start == at and way.course is None):
            items.append(_stay(usable, times, at, way.start, rules))
        items.append(_described(way))
        at = way.end
    if at < usable[-1].time or not items or ways[-1].course is None:
        items.append(_stay(usable, times, at, usable[-1].time, rules))
    _draw(items, points)
    return items


def _ways(points: Points, rules: Rules) -> list[Way]:
    calendar = Calendar("UTC")
    state = Movement(0)
    found: list[Way] = []
    for place, said in places_of(points):
        last, course = state.last, state.course
        silent = last is not None and place.time - last.time > rules.silence_ms
        ended = take_place(state, place, said, rules, calendar)
        state.days.clear()
        if ended is not None:
            found.append(Way(ended.course.origin.time, ended.end.time, ended.course))
        if silent and last is not None:
            metres = last.metres_to(place)
            if metres - last.accuracy - place.accuracy > rules.stay_m:
                start = last.time
                if course is None and metres <= _NEAR_M:
                    start = max(start, place.time - round(metres * 1000 / _WALK))
                found.append(Way(start, place.time, before=last, after=place))
    course = state.course
    if course is not None and course.is_trip and state.last is not None:
        found.append(Way(course.origin.time, state.last.time, course, ended=False))
    return found


def _joined(ways: list[Way], first: int, last: int) -> list[Way]:
    """Let trips reach to what is next to them where the pause is too short for a stay."""
    before = first
    for number, way in enumerate(ways):
        pause = way.start - before
        earlier = ways[number - 1] if number else None
        if 0 < pause < _STAY_MS:
            if earlier is not None and earlier.course is not None:
                earlier.end = way.start
            elif way.course is not None:
                way.start = before
        before = way.end
    if ways and 0 < last - ways[-1].end < _STAY_MS and ways[-1].course is not None:
        ways[-1].end = last
    return ways


def _described(way: Way) -> Item:
    if way.course is not None:
        course = way.course.way
        return Trip(
            way.start,
            way.end,
            way.ended,
            round(course.metres, 1),
            round(course.moving_ms / 1000, 1),
            round(course.fastest, 2),
        )
    assert way.before is not None and way.after is not None
    ends = [[way.before.lon, way.before.lat], [way.after.lon, way.after.lat]]
    return Gap(way.start, way.end, round(way.before.metres_to(way.after), 1), ends)


def _stay(
    usable: list[Place], times: np.typing.NDArray[np.int64], start: int, end: int, rules: Rules
) -> Stay:
    first, stop = np.searchsorted(times, [start, end + 1])
    own = usable[first : max(int(stop), int(first) + 1)] or usable[-1:]
    middle = own[len(own) // 2]
    # Offsets from one of the points, since longitudes jump at the antimeridian.
    east = [(place.lon - middle.lon + 180) % 360 - 180 for place in own]
    lon = (middle.lon + float(np.median(east)) + 180) % 360 - 180
    lat = float(np.median([place.lat for place in own]))
    steps = np.diff(times[first:stop], append=end) if stop > first else np.array([end - start])
    silent = int(steps[steps > rules.silence_ms].sum())
    return Stay(start, end, round(lat, 7), round(lon, 7), len(own), silent // 1000)


def _draw(items: list[Item], points: Points) -> None:
    """Give the trips their lines, with no more than VERTICES_MAX points together."""
    usable = ~(points["accuracy"] > ACCURACY_MAX_M)
    points = points[usable]
    times = points["time"].astype(np.int64)
    trips = [item for item in items if isinstance(item, Trip)]
    spans = [np.searchsorted(times, [trip.start, trip.end + 1]) for trip in trips]
    total = sum(int(stop - start) for start, stop in spans)
    for trip, (start, stop) in zip(trips, spans, strict=True):
        own = points[start:stop]
        share = max(2, VERTICES_MAX * len(own) // max(total, 1))
        kept = simplified_to(
            *(times[start:stop], own["lat"], own["lon"]),
            tolerance_m=TOLERANCE_M,
            points_max=share,
        )
        own = own[kept]
        trip.times = own["time"].tolist()
        trip.coordinates = np.column_stack([own["lon"] / 1e7, own["lat"] / 1e7]).tolist()


def within(items: list[Item], from_ms: int, to_ms: int) -> list[Item]:
    """Return the items that overlap a period, whole."""
    return [item for item in items if item.end >= from_ms and item.start <= to_ms]
