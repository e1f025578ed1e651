"""Totals of a device by day, week, month or year out of its track; sans-IO.

They are the totals of topology `trips` (waylog.movement), with the places at which trips began and
ended, for who wants to name the towns.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gateway.tracks.timelines import places_of
from gateway.tracks.track_points import Points
from waylog.movement.calendar import Calendar
from waylog.movement.diary import Total
from waylog.movement.movement import Ended, Movement, Place, Rules, take_place

#: Places of one total, and the digits of their degrees: of a kilometre, several are one.
_VISITED_MAX: Final = 40
_DIGITS: Final = 2
_QUARTER_MS: Final = 15 * 60_000


def days_of(times: NDArray[np.int64], calendar: Calendar) -> Counter[str]:
    """Return how many of some times (ms) are of each date."""
    quarters, counts = np.unique(times // _QUARTER_MS, return_counts=True)
    found: Counter[str] = Counter()
    for quarter, count in zip(quarters.tolist(), counts.tolist(), strict=True):
        found[calendar.date_of_quarter(quarter)] += count
    return found


def first_day(day: str, span: str) -> str:
    """Return the first day of the day, week, month or year that a date is in."""
    if span == "year":
        return f"{day[:4]}-01-01"
    if span == "month":
        return f"{day[:7]}-01"
    if span == "week":
        own = date.fromisoformat(day)
        return (own - timedelta(days=own.weekday())).isoformat()
    return day


class Statistics:
    """Takes a track piece by piece, in the order of time, and returns the totals."""

    def __init__(self, calendar: Calendar, rules: Rules | None = None) -> None:
        self._calendar = calendar
        self._rules = rules or Rules()
        self._state = Movement(0)
        self._fixes: Counter[str] = Counter()
        self._visited: dict[str, set[tuple[float, float]]] = {}

    def add(self, points: Points) -> None:
        """Take the next points; those that are not newer than the last ones are left out."""
        state, rules, calendar = self._state, self._rules, self._calendar
        self._fixes += days_of(points["time"].astype(np.int64), calendar)
        for place, said in places_of(points):
            if place.time <= state.time:
                continue
            state.time = place.time
            last = state.last
            ended = take_place(state, place, said, rules, calendar)
            self._note(ended, last, place)

    def _note(self, ended: Ended | None, last: Place | None, place: Place) -> None:
        if ended is not None:
            self._visit(ended.course.origin)
            self._visit(ended.end)
        if last is None or place.time - last.time > self._rules.silence_ms:
            self._visit(place)

    def _visit(self, place: Place) -> None:
        known = self._visited.setdefault(self._calendar.date_of(place.time), set())
        if len(known) < _VISITED_MAX:
            known.add((round(place.lat, _DIGITS), round(place.lon, _DIGITS)))

    def totals(self, span: str, first: str, last: str) -> list[Total]:
        """Return the totals of the days from `first` to `last` that have fixes, by date.

        `span` is one of gateway.tracks.spans.SPANS.
        """
        found: dict[str, Total] = {}
        for day, fixes in sorted(self._fixes.items()):
            if not first <= day <= last:
                continue
            total = found.setdefault(first_day(day, span), Total(first_day(day, span)))
            total.days += 1
            total.fixes += fixes
            own = self._state.days.get(day)
            if own is not None:
                total.trips += own.trips
                total.distance_m = round(total.distance_m + own.way.metres, 1)
                total.moving_s = round(total.moving_s + own.way.moving_ms / 1000, 1)
                total.fastest = round(max(total.fastest, own.way.fastest), 2)
                total.unseen_m = round(total.unseen_m + own.unseen, 1)
            seen = [[*place] for place in sorted(self._visited.get(day, ()))]
            new = [place for place in seen if place not in total.visited]
            total.visited = (total.visited + new)[:_VISITED_MAX]
        return list(found.values())
