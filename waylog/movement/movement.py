"""Trips of a device out of its fixes in the order of their times; sans-IO.

A stay is found as in Li et al. (2008): its anchor is the first fix of a candidate, which ends with
the first fix that is farther from the anchor than the stay's radius, even by its accuracy. A
candidate that has lasted for the stay's time is a stay: a trip has ended at its anchor. The next
fix that is farther begins a trip, at the time of the fix before it. A silence ends a trip, too, at
the anchor: nothing is known of the way in between.

Distance is counted in steps from one counted position to the next: a fix counts once it is farther
from the one before than both accuracies together, and than the shortest step. Steps since the
anchor are not counted before the anchor moves on, so what a device at rest jitters is in no trip. A
step moves for as long as it took, but no longer than its distance takes at the slowest speed that
counts as moving; that is so for the part up to the last fix that did not count, and for the rest. A
trip that never was far from its origin is none, and is counted nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from waylog.great_circle import distance_m
from waylog.movement.calendar import Calendar

#: What has not been far from its origin for so long is no trip, in ms.
_NO_TRIP_MS: Final = 24 * 3_600_000


@dataclass(frozen=True)
class Rules:
    """What makes a stay, a step and a trip. Lengths are m, times ms, speeds m/s."""

    stay_m: float = 100.0
    stay_ms: int = 300_000
    silence_ms: int = 900_000
    step_m: float = 10.0
    minimum_m: float = 300.0
    slowest: float = 0.5
    implausible: float = 400 / 3.6


class Place(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a device was."""

    time: int  # ms
    lat: float
    lon: float
    accuracy: float  # m

    def metres_to(self, other: Place) -> float:
        """Return the distance along the great circle."""
        return distance_m(self.lat, self.lon, other.lat, other.lon)


class Way(msgspec.Struct, array_like=True, gc=False):
    """What was counted of a trip, or of a part of one."""

    metres: float = 0.0
    moving_ms: float = 0.0
    fastest: float = 0.0  # m/s

    def add(self, other: Way) -> None:
        """Add another one that comes after it."""
        self.metres += other.metres
        self.moving_ms += other.moving_ms
        self.fastest = max(self.fastest, other.fastest)


class Day(msgspec.Struct, array_like=True, gc=False):
    """The totals of a day."""

    way: Way
    trips: int = 0
    unseen: float = 0.0  # m
    changed: bool = True  # since it was told


class Course(msgspec.Struct, array_like=True):
    """A trip that goes on."""

    origin: Place  # with the time of the last fix there
    way: Way
    #: Its parts by date, until it has been far enough to be a trip.
    waiting: dict[str, Way] = msgspec.field(default_factory=dict)
    is_trip: bool = False


class Movement(msgspec.Struct, array_like=True, gc=False):
    """What is remembered of a device."""

    time: (
        int  # of the newest fix that was looked at, ms; for who looks, since nothing here reads it
    )
    anchor: Place | None = None
    last: Place | None = None
    step: Place | None = None
    course: Course | None = None  # None: at rest
    #: What is counted since the anchor, by date.
    pending: dict[str, Way] = msgspec.field(default_factory=dict)
    days: dict[str, Day] = msgspec.field(default_factory=dict)
    told: int = 0  # event time of what was told last, ms


class Ended(NamedTuple):
    """A trip that has ended."""

    course: Course
    end: Place


def take_place(
    state: Movement, place: Place, said: float | None, rules: Rules, calendar: Calendar
) -> Ended | None:
    """Change the movement of a device by its next place; return the trip that has ended by it.

    `said` is the speed in m/s that the device has said. Costs the same for each place.
    """
    last, anchor = state.last, state.anchor
    if last is None or anchor is None:
        _rest_at(state, place)
        return None
    if place.time - last.time > rules.silence_ms:
        ended = _end(state, anchor)
        metres = last.metres_to(place)
        if metres - last.accuracy - place.accuracy > rules.stay_m:
            day = _day_of(state, calendar.date_of(place.time))
            day.unseen += metres
            day.changed = True
        _rest_at(state, place)
        return ended
    if last.metres_to(place) * 1000 > rules.implausible * (place.time - last.time):
        return None
    state.last = place
    from_anchor = anchor.metres_to(place)
    is_away = from_anchor - place.accuracy > rules.stay_m
    course = state.course
    if course is None:
        if not is_away:
            return None
        # From the middle of the stay, at the time when the device was last seen there.
        origin = Place(last.time, anchor.lat, anchor.lon, anchor.accuracy)
        state.course = course = Course(origin, Way())
        state.step = origin
        from_anchor = 0.0  # how long that took is unknown
    _count_step(state, last, place, rules, calendar)
    speed = said if said is not None and said <= rules.implausible else None
    if is_away and speed is None:
        speed = from_anchor * 1000 / (place.time - anchor.time)
    if speed:
        way = _pending_of(state, calendar.date_of(place.time))
        way.fastest = max(way.fastest, speed)
    if is_away:
        state.anchor = place
        _settle(state, course, place, rules, calendar)
        return None
    if place.time - anchor.time >= rules.stay_ms:
        return _end(state, anchor)
    return None


def _rest_at(state: Movement, place: Place) -> None:
    state.anchor = state.last = state.step = place
    state.course = None
    state.pending = {}


def _end(state: Movement, anchor: Place) -> Ended | None:
    """End what goes on at the anchor; what is counted since then is jitter."""
    course, state.course = state.course, None
    state.pending = {}
    return Ended(course, anchor) if course is not None and course.is_trip else None


def _count_step(
    state: Movement, last: Place, place: Place, rules: Rules, calendar: Calendar
) -> None:
    step = state.step
    assert step is not None
    metres = step.metres_to(place)
    if metres <= max(rules.step_m, step.accuracy + place.accuracy):
        return
    state.step = place
    moving_ms = _moving_ms(last, place, rules)
    if step.time < last.time:
        moving_ms += _moving_ms(step, last, rules)
    for date, part in calendar.divided(step.time, place.time):
        _pending_of(state, date).add(Way(metres * part, moving_ms * part))


def _moving_ms(one: Place, other: Place, rules: Rules) -> float:
    return min(float(other.time - one.time), one.metres_to(other) * 1000 / rules.slowest)


def _settle(
    state: Movement, course: Course, anchor: Place, rules: Rules, calendar: Calendar
) -> None:
    """Count what is pending, now that the device is known to have moved on."""
    for way in state.pending.values():
        course.way.add(way)
    if not course.is_trip:
        for date, way in state.pending.items():
            course.waiting.setdefault(date, Way()).add(way)
        if course.origin.metres_to(anchor) < rules.minimum_m:
            state.pending = {}
            if anchor.time - course.origin.time > _NO_TRIP_MS:
                state.course = None
            return
        course.is_trip = True
        began = _day_of(state, calendar.date_of(course.origin.time))
        began.trips += 1
        began.changed = True
        state.pending, course.waiting = course.waiting, {}
    for date, way in state.pending.items():
        day = _day_of(state, date)
        day.way.add(way)
        day.changed = True
    state.pending = {}


def _pending_of(state: Movement, date: str) -> Way:
    way = state.pending.get(date)
    if way is None:
        way = state.pending[date] = Way()
    return way


def _day_of(state: Movement, date: str) -> Day:
    day = state.days.get(date)
    if day is None:
        day = state.days[date] = Day(Way())
    return day


def forget_days(state: Movement, calendar: Calendar) -> None:
    """Forget the days that are told, and that nothing can be added to any more."""
    if len(state.days) < 2:
        return
    assert state.anchor is not None
    time = state.anchor.time
    course = state.course
    if course is not None and not course.is_trip:
        time = min(time, course.origin.time)
    first = calendar.date_of(time)
    for date in [date for date, day in state.days.items() if date < first and not day.changed]:
        del state.days[date]
